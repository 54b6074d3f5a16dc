"""Sentences and tokens with their places in the text, for any language, in linear time.

First stage of the offline checks: text → `Sentence`, `Word` and `Token` values. Scripts without spaces (Chinese,
Japanese, Thai, ...) give one token a character; every other script gives one token a word. No dictionary is needed.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar

from ragpulse_evaluators.grounding.lexicon import (
    ABBREVIATIONS,
    FUNCTION_WORDS,
    NEGATIONS,
    NUMBER_WORDS,
    OPPOSITES,
    UNITS,
    UNSPACED_WORDS,
)

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_MARKS = (
    "\u0300-\u036f\u0590-\u05cf\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0730-\u074a\u07a6-\u07b0"
    "\u07eb-\u07f3\u0900-\u0dff\u0f18-\u0f39\u0f3e-\u0fbc"
)
"""Vowels and tones that belong to the word of their letter: of Hebrew to Thaana, of scripts of India, of Tibetan."""
_WHOLE = "|".join(
    sorted(
        {w for w in chain(UNSPACED_WORDS, OPPOSITES, UNITS, NEGATIONS) if len(w) > 1 and "\u3040" <= w[0] <= "\u9fff"},
        key=lambda word: (-len(word), word),
    )
)
_TOKEN = re.compile(
    rf"(?P<number>(?:(?<![^\s(\[=:])[-−])?\d+(?:/\d{{1,2}}/\d{{4}}|[.,:]\d+)*)"
    rf"|(?=[{_UNSPACED}])(?P<char>{_WHOLE}|[\u30a1-\u30fa\u30fc]+|.)"
    rf"|(?P<word>(?:(?![{_UNSPACED}])[^\W\d_])(?:[{_MARKS}]"
    rf"|(?![{_UNSPACED}])[^\W\d_]|['’](?=[^\W\d_]))*)|(?P<sign>[%％‰°$€£¥₹])"
)
_END = re.compile(
    r"[.!?\n。！？…؟۔।॥](?:(?:(?<=[.!?])[.!?]*|(?<=[。！？…؟۔।॥])[。！？…؟۔।॥]*)"
    r"[\"'”’»)\]」』】]*(?:\s*(?:\[[^\]\n]{1,40}\]|【[^】\n]{1,40}】))*|(?<=\n)\n*)"
)
"""It begins with one set of characters, for which the engine scans a text fast."""
_ACRONYM = re.compile(r"(?:\w\.)+\w")
_MAX_SENTENCE = 2_000
"""Longer runs without an end are cut, which bounds the work on hostile input."""
_SUFFIXES = ("ations", "ation", "ments", "ingly", "ment", "ings", "edly", "ing", "ies", "ied", "ers", "est", "ed", "es")


_ROOT = 7
"""Longer words meet by their first letters, which joins most inflections of most languages."""
_LONGEST_KEPT = 40
_MOST_KEPT = 16_384


@dataclass(slots=True, eq=False)
class Word:
    """One word, number, sign or unspaced character, wherever it stands: equal texts share one value."""

    text: str
    norm: str
    """Case-folded NFKC."""
    key: str
    """Light stem under which inflections meet; numbers in one spelling."""
    kind: str
    """`word`, `number`, `char` (scripts without spaces) or `sign`."""
    function: bool
    """True for articles, pronouns, prepositions and the like."""
    negation: bool
    content: bool
    """True for what a claim is made of: no function word, no sign, no negation."""
    numeric: bool
    """True for what a quantity may begin with: a number in digits or letters."""
    capital: bool
    """True for a word with a capital first that is no function word: a name, inside a sentence."""


@dataclass(slots=True, eq=False)
class Token(Word):
    """A word in its place; `start` and `end` are offsets in the text it came from."""

    start: int
    end: int


class Sentence(NamedTuple):
    """One sentence; `start` and `end` are offsets in the text it came from (`text == source[start:end]`)."""

    text: str
    start: int
    end: int


Place = TypeVar("Place", bound=Word)


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


_UNSPLIT = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aad\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f]"
)
_UNSPLIT_SHARE = 0.2


@lru_cache(maxsize=4)
def is_unsplit(text: str) -> bool:
    """Tell whether much of a text is Thai, Lao, Burmese, Khmer or the like: no spaces, letters that say nothing.

    It is kept for the next check of the same case.
    """
    found = len(_UNSPLIT.findall(text))
    return found > 0 and found > _UNSPLIT_SHARE * sum(map(str.isalpha, text))


def words(text: str) -> list[Word]:
    """Cut text into words, numbers, currency and percent signs, single characters of unspaced scripts."""
    return list(chain.from_iterable(map(_PIECES.__getitem__, text.split())))


def content_size(text: str) -> int:
    """The number of words that carry content."""
    return sum(not word.function for word in words(text))


def tokenize(text: str) -> list[Token]:
    """Cut text into the same words, each with its place."""
    return [_placed(_WORDS[m[0]], m.start(), m.end()) for m in _TOKEN.finditer(text)]


def names(tokens: Sequence[Place]) -> list[Place]:
    """Return tokens written like names: capital inside a sentence, acronyms, letters in a script that has case."""
    return [t for i, t in enumerate(tokens) if t.capital and (i > 0 or any(c.isupper() for c in t.text[1:]))]


def _placed(word: Word, start: int, end: int) -> Token:
    return Token(**{name: getattr(word, name) for name in Word.__slots__}, start=start, end=end)


Made = TypeVar("Made")


class Kept(dict[str, Made]):
    """What is made of short texts, so that frequent ones are made once; found in C, unlike in a function's cache."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, text: str) -> Made:
        made = self._make(text)
        if len(text) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[text] = made
        return made


def _word(text: str) -> Word:
    match = _TOKEN.match(text)
    kind = (match and match.lastgroup) or "word"
    norm = _norm(text)
    function = norm in FUNCTION_WORDS
    negation = norm in NEGATIONS or norm.endswith("n't") or _KOREAN_NEGATION.match(norm) is not None
    return Word(
        text=text,
        norm=norm,
        key=_key(norm, kind),
        kind=kind,
        function=function,
        negation=negation,
        content=not (function or kind == "sign" or negation),
        numeric=kind == "number" or norm in NUMBER_WORDS or (kind == "char" and norm == "十"),
        capital=kind == "word" and not function and text[0].isupper(),
    )


def _words_of(piece: str) -> tuple[Word, ...]:
    """The words of what stands between spaces: none reaches across one."""
    return tuple(_WORDS[m[0]] for m in _TOKEN.finditer(piece))


_WORDS, _PIECES = Kept(_word), Kept(_words_of)


def _key(norm: str, kind: str) -> str:
    if norm in NUMBER_WORDS:
        return str(NUMBER_WORDS[norm])
    return stem(norm)[:_ROOT] if kind == "word" else norm.replace(",", "")


def _norm(surface: str) -> str:
    folded = unicodedata.normalize("NFKC", surface).casefold().replace("’", "'").replace("−", "-")
    return folded[:-2] if folded.endswith("'s") and len(folded) > 3 else folded


def stem(word: str) -> str:
    """Return a light stem: the endings that carry number and tense in English are cut, short words are kept.

    Korean loses its particles, Arabic its article and the letters written in two ways. It is only a key under which
    forms meet; the forms of other languages meet by their first letters.
    """
    if not word.isascii():
        return _stem_other(word)
    if len(word) < 4:
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return _undouble(word[: -len(suffix)] + ("y" if suffix in ("ies", "ied") else ""))
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _undouble(word[:-1] if word.endswith("e") and len(word) > 3 else word)


_KOREAN = re.compile(
    r"([가-힣]{2,}?)(?:입니다|이다|에서는|에서|에게|으로|까지|부터|은|는|이|가|을|를|의|에|와|과|도|로|만)"
)
_KOREAN_NEGATION = re.compile(r"않|없|아니|아닙|못하")
_ARABIC_ARTICLE = re.compile(r"(?:وال|بال|كال|فال|لل|ال|و)(?=[\u0621-\u064a]{3})")
_ARABIC_LETTERS = str.maketrans("أإآىة", "ااايه")


def _stem_other(word: str) -> str:
    if "\u0621" <= word[0] <= "\u064a":
        return _ARABIC_ARTICLE.sub("", word, count=1).translate(_ARABIC_LETTERS)
    korean = _KOREAN.fullmatch(word) if "가" <= word[0] <= "힣" else None
    return korean.group(1) if korean else word


def _undouble(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
