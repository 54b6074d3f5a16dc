"""Sentences and tokens with their places in the text, for any language, in linear time.

First stage of the offline checks: text → `Sentence` and `Token` values. Scripts without spaces (Chinese, Japanese,
Thai, ...) give one token a character; every other script gives one token a word. No dictionary is needed.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ragpulse_evaluators.grounding.lexicon import ABBREVIATIONS, FUNCTION_WORDS, NEGATIONS, NUMBER_WORDS

__all__ = ["Sentence", "Token", "split_sentences", "stem", "tokenize"]

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_TOKEN = re.compile(
    rf"(?P<number>\d+(?:[.,:]\d+)*)|(?P<char>[{_UNSPACED}])"
    rf"|(?P<word>(?:(?![{_UNSPACED}])[^\W\d_])(?:[\u0300-\u036f\u0590-\u05cf\u0610-\u061a\u064b-\u065f\u0900-\u0d7f]"
    rf"|(?![{_UNSPACED}])[^\W\d_]|['’](?=[^\W\d_]))*)|(?P<sign>[%‰°$€£¥₹])"
)
_END = re.compile(r"(?:[.!?]+|[。！？…؟۔।॥]+)[\"'”’»)\]」』】]*(?:\s*(?:\[[^\]\n]{1,40}\]|【[^】\n]{1,40}】))*|\n+")
_ACRONYM = re.compile(r"(?:\w\.)+\w")
_MAX_SENTENCE = 2_000
"""Longer runs without an end are cut, which bounds the work on hostile input."""
_SUFFIXES = ("ations", "ation", "ments", "ingly", "ment", "ings", "edly", "ing", "ies", "ied", "ers", "est", "ed", "es")


class Token(NamedTuple):
    """One word, number, sign or unspaced character; `start` and `end` are offsets in the text it came from."""

    text: str
    start: int
    end: int
    norm: str
    """Case-folded NFKC."""
    key: str
    """Light stem under which inflections meet; numbers in one spelling."""
    kind: str
    """`word`, `number`, `char` (scripts without spaces) or `sign`."""
    function: bool
    """True for articles, pronouns, prepositions and the like."""
    negation: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence; `start` and `end` are offsets in the text it came from (`text == source[start:end]`)."""

    text: str
    start: int
    end: int


def split_sentences(text: str) -> list[Sentence]:
    """Split text at sentence ends and line breaks; citation marks after the full stop stay with their sentence.

    Decimals ("3.5"), initials, and common abbreviations do not end a sentence. Pieces without a letter or digit join
    the sentence before them, so no sentence is empty.
    """
    sentences: list[Sentence] = []
    start = 0
    for match in _END.finditer(text):
        if match.group()[0] in ".!?" and not _ends_here(text, start, match):
            continue
        start = _append(sentences, text, start, match.end())
    _append(sentences, text, start, len(text))
    return sentences


def _ends_here(text: str, start: int, match: re.Match[str]) -> bool:
    after = text[match.end() : match.end() + 1]
    if match.group() != ".":
        return not after or not after.isalnum() or ord(after) > 0x2E7F
    if after and not after.isspace():
        return ord(after) > 0x2E7F
    word = text[max(start, match.start() - 12) : match.start()].rsplit(None, 1)[-1:]
    before = word[0].lstrip("(\"'“") if word and text[match.start() - 1 : match.start()].strip() else ""
    if "." in before and _ACRONYM.fullmatch(before):
        return text[match.end() : match.end() + 9].lstrip()[:1].isupper()
    return not (len(before) == 1 and before.isupper()) and before.casefold() not in ABBREVIATIONS


def _append(sentences: list[Sentence], text: str, start: int, end: int) -> int:
    piece = text[start:end]
    left = start + len(piece) - len(piece.lstrip())
    right = start + len(piece.rstrip())
    if left >= right:
        return end
    if any(c.isalnum() for c in text[left:right]):
        for at in range(left, right, _MAX_SENTENCE):
            piece_end = min(right, at + _MAX_SENTENCE)
            sentences.append(Sentence(text[at:piece_end], at, piece_end))
    elif sentences and right - sentences[-1].start <= _MAX_SENTENCE:
        sentences[-1] = Sentence(text[sentences[-1].start : right], sentences[-1].start, right)
    return end


def tokenize(text: str) -> list[Token]:
    """Cut text into tokens: words, numbers, currency and percent signs, single characters of unspaced scripts."""
    return [Token(m[0], m.start(), m.end(), *_forms(m[0], m.lastgroup or "word")) for m in _TOKEN.finditer(text)]


@lru_cache(maxsize=65536)
def _forms(surface: str, kind: str) -> tuple[str, str, str, bool, bool]:
    norm = _norm(surface)
    negation = norm in NEGATIONS or norm.endswith("n't")
    return norm, _key(norm, kind), kind, norm in FUNCTION_WORDS, negation


def _key(norm: str, kind: str) -> str:
    if norm in NUMBER_WORDS:
        return str(NUMBER_WORDS[norm])
    return stem(norm) if kind == "word" else norm.replace(",", "")


def _norm(surface: str) -> str:
    folded = unicodedata.normalize("NFKC", surface).casefold().replace("’", "'")
    return folded[:-2] if folded.endswith("'s") and len(folded) > 3 else folded


def stem(word: str) -> str:
    """Return a light stem: the endings that carry number and tense in English are cut, short words are kept.

    It is only a key under which forms meet; other languages meet by shared beginnings (`evidence.same_root`).
    """
    if len(word) < 4 or not word.isascii():
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return _undouble(word[: -len(suffix)] + ("y" if suffix in ("ies", "ied") else ""))
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _undouble(word[:-1] if word.endswith("e") and len(word) > 3 else word)


def _undouble(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
