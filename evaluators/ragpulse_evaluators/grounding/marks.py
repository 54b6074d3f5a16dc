"""Citation marks in a response: `[1]`, `[2,3]`, `[1-3]`, `[^1]`, `【1】`, `(doc 2)`, a context's own id in brackets."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Mark", "blank_marks", "find_marks"]

_MARK = re.compile(r"\[([^\[\]\n]{1,80})\](?!\()|【([^【】\n]{1,80})】|\(([^()\n]{1,80})\)")
_NUMBERS = re.compile(
    r"\^?(?:(?:doc(?:ument)?|source|context|passage|ref|chunk|文档|来源|資料|资料|quelle|fuente|fonte)s?\.?\s*#?:?\s*)?"
    r"(\d{1,3}(?:\s*(?:[-–,;、，]|and|&)\s*\^?\d{1,3})*)(?:†[^\]】]*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:doc(?:ument)?|source|context|id|ref)s?\.?\s*[:#]\s*", re.IGNORECASE)
_MAX_RANGE = 50
MAX_MARKS = 100
"""More marks than this are left unread, which bounds the work."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark in a response: its place, its text, and the ids or numbers it names."""

    start: int
    end: int
    text: str
    targets: tuple[str, ...]


def find_marks(response: str, ids: Sequence[str | None] = ()) -> list[Mark]:
    """Find citation marks; a bracket that is neither numbers nor a known id is ordinary text."""
    known = {i for i in ids if i}
    marks: list[Mark] = []
    for match in _MARK.finditer(response):
        targets = _read(match, known)
        if targets and len(marks) < MAX_MARKS:
            marks.append(Mark(match.start(), match.end(), match.group(), targets))
    return marks


def _read(match: re.Match[str], known: set[str]) -> tuple[str, ...]:
    inner = next(g for g in match.groups() if g is not None).strip()
    return _targets(inner, known, round_brackets=match.group().startswith("("))


def _targets(inner: str, known: set[str], *, round_brackets: bool) -> tuple[str, ...]:
    pieces = [_LABEL.sub("", p.strip()) for p in re.split(r"[,;，；]\s*", inner)]
    if any(p in known for p in pieces):
        return tuple(p for p in pieces if p)
    match = _NUMBERS.fullmatch(inner)
    if not match or (round_brackets and inner[0].isdigit()):
        return ()
    return tuple(dict.fromkeys(_expand(match.group(1))))


def _expand(numbers: str) -> Iterator[str]:
    for piece in re.split(r"\s*(?:[,;、，]|and|&)\s*", numbers.replace("^", "")):
        first, dash, last = re.sub(r"\s*[-–]\s*", "-", piece).partition("-")
        if not dash:
            yield str(int(first))
            continue
        for n in range(int(first), min(int(last.partition("-")[0]), int(first) + _MAX_RANGE) + 1):
            yield str(n)


def blank_marks(response: str) -> str:
    """Replace numbered citation marks by spaces, so that "[1]" is not read as a number; offsets stay the same."""
    return _MARK.sub(_blank, response)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group()) if _read(match, set()) else match.group()
