"""Estimates tokens without a tokenizer: for packing contexts into a window and for bills made before asking."""

from __future__ import annotations

import re

__all__ = ("count_tokens", "split_text")

_DENSE = re.compile(
    r"[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]"
)


def count_tokens(text: str) -> int:
    """Roughly the tokens of a text: one a character in dense scripts, one in four characters elsewhere, rounded up."""
    dense = 0 if text.isascii() else len(_DENSE.findall(text))
    return dense + -(-(len(text) - dense) // 4)


def split_text(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` estimated tokens, at white space where there is some."""
    pieces = []
    while count_tokens(text) > limit:
        cut = _cut(text, limit)
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text] if text or not pieces else pieces


def _cut(text: str, limit: int) -> int:
    low, high = 1, min(len(text), 4 * limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) <= limit else (low, middle - 1)
    space = max(text.rfind(" ", low // 2, low), text.rfind("\n", low // 2, low))
    return space + 1 if space > 0 else low
