"""Does the answer say the reference: exact, fuzzy and rule-based matching, token F1, edit distances.

Every metric of texts compares them as they are read here: normalised answers, words of any language, references that
hold text. Scripts written without spaces (Chinese, Japanese, Thai, ...) give one token a character, all others one a
word; ROUGE's usual ASCII tokens are the same for ASCII text, but identical Chinese texts are identical here.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

from ragpulse_evaluators.errors import MissingField, Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

if TYPE_CHECKING:
    import regex

References = str | tuple[str, ...]
"""An expected text, or several acceptable ones."""
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


def tokens(text: str) -> list[str]:
    """The words of a text; a text without any has its parts between spaces, so that it equals itself."""
    return words(text) or text.split()


def composed(text: str) -> str:
    """The text in Unicode's composed form (NFC): `é` is one character, however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def form_of(nfc: bool) -> Callable[[str], str]:
    """How texts are read before they are compared: composed, or as they are."""
    return composed if nfc else str


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


def nonempty_references(reference: References) -> tuple[str, ...]:
    """The references that hold text; raises `MissingField` when none does: every text contains an empty one."""
    texts = (reference,) if isinstance(reference, str) else reference
    nonempty = tuple(text for text in texts if text.strip())
    if not nonempty:
        raise MissingField("reference")
    return nonempty


Rule = Literal["match", "include", "startswith", "endswith", "fuzzy_match"]


def exact_match(response: str, reference: References, *, normalize: bool = True, nfc: bool = True) -> bool:
    """True where the answer equals a reference, after SQuAD's normalisation unless `normalize=False`.

    `nfc=False` then keeps apart what differs in its Unicode form only.
    """
    form = normalize_answer if normalize else form_of(nfc)
    return form(response) in map(form, nonempty_references(reference))


def fuzzy_match(response: str, reference: References, *, whole_words: bool = False) -> bool:
    """True where the normalised answer contains a normalised reference (AdalFlow's AnswerMatchAcc "fuzzy_match").

    `whole_words=True` refuses "cat" in "concatenate".
    """
    if whole_words:
        response_words = tokens(response)
        return any(_runs_in(tokens(text), response_words) for text in nonempty_references(reference))
    answer = normalize_answer(response)
    return any(normalize_answer(text) in answer for text in nonempty_references(reference))


def _runs_in(run: list[str], text: list[str]) -> bool:
    size = len(run)
    return size > 0 and any(text[start : start + size] == run for start in range(len(text) - size + 1))


def match(
    response: str,
    reference: References,
    *,
    rule: Rule = "match",
    ignore_case: bool = False,
    nfc: bool = True,
) -> bool:
    """True where the answer keeps PolyEval's `rule` towards a reference.

    `fuzzy_match`: either contains the other once normalised; an empty answer contains nothing and is in nothing.
    `nfc=False` keeps apart what differs in its Unicode form only.
    """
    read = form_of(nfc)
    form = normalize_answer if rule == "fuzzy_match" else str.casefold if ignore_case else str
    answer = form(read(response.strip()))
    return bool(answer) and any(
        _RULES[rule](answer, form(read(text.strip()))) for text in nonempty_references(reference)
    )


_RULES: dict[str, Callable[[str, str], bool]] = {
    "match": str.__eq__,
    "include": str.__contains__,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "fuzzy_match": lambda answer, reference: reference in answer or answer in reference,
}


def token_f1(response: str, reference: References) -> Outcome:
    """F1 of the tokens shared with the nearest reference (SQuAD 1.1, Rajpurkar et al. 2016); 0 where nothing is shared.

    Parts: precision and recall of that reference. Articles do not count; unspaced scripts count by character.
    """
    counts = _content(response)
    others = map(_content, nonempty_references(reference))
    outcomes = [overlap_outcome((counts & other).total(), counts.total(), other.total()) for other in others]
    return max(outcomes, key=lambda outcome: outcome.score or 0.0)


def _content(text: str) -> Counter[str]:
    normal = normalize_answer(text)
    return Counter(normal.split() if normal.isascii() else tokens(normal))


Distance = Literal["levenshtein", "damerau_levenshtein", "jaro", "jaro_winkler", "hamming", "indel"]
"""In rapidfuzz `DamerauLevenshtein`, ..."""

_SLOW = frozenset({"damerau_levenshtein"})
"""Quadratic in time without rapidfuzz's bit-parallel tricks."""
_CELLS = 1_000_000_000


def string_distance(
    response: str,
    reference: References,
    *,
    metric: Distance = "levenshtein",
    ignore_case: bool = False,
    nfc: bool = True,
) -> Outcome:
    """The normalised distance to the nearest reference, 0 (equal) to 1; parts: min, avg and max over the references.

    Lower is better, so `normalized` is 1 - distance. `Unreadable` for texts too
    long for a slow metric. `nfc=False` keeps apart what differs in its Unicode form only.
    """
    read, form = form_of(nfc), str.casefold if ignore_case else str
    measure, references = _measure(metric), nonempty_references(reference)
    if metric in _SLOW and len(response) * max(map(len, references)) > _CELLS:
        raise Unreadable(f"{metric} of texts this long takes minutes; levenshtein does not")
    answer = form(read(response))
    distances = [measure(answer, form(read(text))) for text in references]
    average = sum(distances) / len(distances)
    return Outcome(score=min(distances), parts={"min": min(distances), "avg": average, "max": max(distances)})


@cache
def _measure(metric: str) -> Callable[[str, str], float]:
    import rapidfuzz.distance

    distance: Callable[[str, str], float] = getattr(
        rapidfuzz.distance, metric.title().replace("_", "")
    ).normalized_distance
    return distance


ENTRIES = (
    Entry.of_function(
        exact_match,
        source="SQuAD; AdalFlow AnswerMatchAcc",
        description="Does the answer equal the reference, apart from case, punctuation and articles?",
    ),
    Entry.of_function(
        fuzzy_match,
        source="AdalFlow AnswerMatchAcc",
        description="Does the answer contain the reference?",
        options="whole_words=True",
    ),
    Entry.of_function(
        match,
        source="PolyEval Matchness",
        description="Does the answer equal, include, start or end with the reference, depending on `rule`?",
        options='rule="startswith", ignore_case=True',
    ),
    Entry.of_function(
        token_f1,
        threshold=True,
        source="SQuAD 1.1 (Rajpurkar et al. 2016)",
        description="How many words do answer and reference share?",
        options="threshold=0.5",
    ),
    Entry.of_function(
        string_distance,
        scale=Scale(reverse=True),
        threshold=True,
        source="PolyEval StringDistanceEvaluator; rapidfuzz",
        description="How many edits make the answer the reference, as a share of its length?",
        options='metric="jaro_winkler", threshold=0.2',
    ),
)
