"""Texts as the metrics read them: normalised answers, words of any language, references that hold text.

Scripts written without spaces (Chinese, Japanese, Thai, ...) give one token a character, all others one a word;
ROUGE's usual ASCII tokens are the same for ASCII text, but identical Chinese texts are identical here.
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.result import Outcome

if TYPE_CHECKING:
    import regex

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_WORD = rf"{_UNSPACED}\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--{_UNSPACED}]+|\p{{So}}"
_ARTICLES = frozenset({"a", "an", "the"})
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")


class _Punctuation(dict[int, int | None]):
    """A translation table that deletes punctuation of every script, filled one character at a time."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        dropped = unicodedata.category(character)[0] == "P" or character in _ASCII_SYMBOLS
        self[code] = None if dropped else code
        return self[code]


_PUNCTUATION = _Punctuation()


@cache
def _patterns() -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    import regex

    return regex.compile(_WORD, regex.V1), regex.compile(_UNSPACED)


def words(text: str) -> list[str]:
    """The words of a text in lower case: punctuation dropped, unspaced scripts by character, emoji kept."""
    return list(_words(text))


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_patterns()[0].findall(unicodedata.normalize("NFKC", text).casefold()))


def is_unspaced(text: str) -> bool:
    """True where the text holds a script written without spaces."""
    return not text.isascii() and _patterns()[1].search(text) is not None


@lru_cache(maxsize=1024)
def normalize_answer(text: str) -> str:
    """SQuAD's normal form for any language: folded case, no punctuation, no English articles, single spaces.

    A text of nothing else ("The", "!") keeps what it has, so that it equals itself only.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = folded.translate(_PUNCTUATION)
    content = " ".join(word for word in plain.split() if word not in _ARTICLES)
    return content or " ".join(folded.split())


def overlap_outcome(shared: int, answer: int, reference: int) -> Outcome:
    """F1 with precision and recall of what answer and reference share, by the sizes of the three."""
    precision, recall = (shared / size if size else 0.0 for size in (answer, reference))
    f1 = 2.0 * precision * recall / (precision + recall) if shared else 0.0
    return Outcome(score=f1, parts={"precision": precision, "recall": recall})


def nonempty_references(reference: str | tuple[str, ...]) -> tuple[str, ...]:
    """The references that hold text; raises `MissingField` when none does: every text contains an empty one."""
    texts = (reference,) if isinstance(reference, str) else reference
    nonempty = tuple(text for text in texts if text.strip())
    if not nonempty:
        raise MissingField("reference")
    return nonempty
