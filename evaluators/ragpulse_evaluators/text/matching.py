"""Does the answer say the reference: exact, fuzzy and rule-based matching, token F1, edit distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Literal

from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import nonempty_references, normalize_answer, overlap_outcome, words

Rule = Literal["match", "include", "startswith", "endswith", "fuzzy_match"]


def exact_match(response: str, reference: str | tuple[str, ...], *, normalize: bool = True) -> bool:
    """True where the answer equals a reference, after SQuAD's normalisation unless `normalize=False`."""
    form = normalize_answer if normalize else str
    return form(response) in map(form, nonempty_references(reference))


def fuzzy_match(response: str, reference: str | tuple[str, ...], *, whole_words: bool = False) -> bool:
    """True where the normalised answer contains a normalised reference (AdalFlow's AnswerMatchAcc "fuzzy_match").

    `whole_words=True` refuses "cat" in "concatenate".
    """
    if whole_words:
        response_words = words(response)
        return any(_runs_in(words(text), response_words) for text in nonempty_references(reference))
    answer = normalize_answer(response)
    return any(normalize_answer(text) in answer for text in nonempty_references(reference))


def _runs_in(run: list[str], tokens: list[str]) -> bool:
    size = len(run)
    return size > 0 and any(tokens[start : start + size] == run for start in range(len(tokens) - size + 1))


def match(response: str, reference: str | tuple[str, ...], *, rule: Rule = "match", ignore_case: bool = False) -> bool:
    """True where the answer keeps PolyEval's `rule` towards a reference.

    `fuzzy_match`: either contains the other once normalised; an empty answer contains nothing and is in nothing.
    """
    form = normalize_answer if rule == "fuzzy_match" else str.casefold if ignore_case else str
    answer = form(response.strip())
    return bool(answer) and any(_RULES[rule](answer, form(text.strip())) for text in nonempty_references(reference))


_RULES: dict[str, Callable[[str, str], bool]] = {
    "match": str.__eq__,
    "include": str.__contains__,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "fuzzy_match": lambda answer, reference: reference in answer or answer in reference,
}


def token_f1(response: str, reference: str | tuple[str, ...]) -> Outcome:
    """F1 of the tokens shared with the nearest reference (SQuAD 1.1, Rajpurkar et al. 2016); 0 where nothing is shared.

    Parts: precision and recall of that reference. Articles do not count; unspaced scripts count by character.
    """
    counts = _content(response)
    outcomes = [_f1(counts, _content(text)) for text in nonempty_references(reference)]
    return max(outcomes, key=lambda outcome: outcome.score or 0.0)


def _content(text: str) -> Counter[str]:
    normal = normalize_answer(text)
    return Counter(normal.split() if normal.isascii() else words(normal))


def _f1(answer: Counter[str], reference: Counter[str]) -> Outcome:
    return overlap_outcome((answer & reference).total(), answer.total(), reference.total())


Distance = Literal["levenshtein", "damerau_levenshtein", "jaro", "jaro_winkler", "hamming", "indel"]
"""In rapidfuzz `DamerauLevenshtein`, ..."""

_SLOW = frozenset({"damerau_levenshtein"})
"""Quadratic in time without rapidfuzz's bit-parallel tricks."""
_CELLS = 1_000_000_000


def string_distance(
    response: str, reference: str | tuple[str, ...], *, metric: Distance = "levenshtein", ignore_case: bool = False
) -> Outcome:
    """The normalised distance to the nearest reference, 0 (equal) to 1; parts: min, avg and max over the references.

    Lower is better, so `normalized` is 1 - distance. `Unreadable` for texts too
    long for a slow metric.
    """
    form = str.casefold if ignore_case else str
    measure, references = _measure(metric), nonempty_references(reference)
    if metric in _SLOW and len(response) * max(map(len, references)) > _CELLS:
        raise Unreadable(f"{metric} of texts this long takes minutes; levenshtein does not")
    distances = [measure(form(response), form(text)) for text in references]
    average = sum(distances) / len(distances)
    return Outcome(score=min(distances), parts={"min": min(distances), "avg": average, "max": max(distances)})


@cache
def _measure(metric: str) -> Callable[[str, str], float]:
    import rapidfuzz.distance

    distance: Callable[[str, str], float] = getattr(
        rapidfuzz.distance, metric.title().replace("_", "")
    ).normalized_distance
    return distance


ENTRIES: tuple[Entry, ...] = (
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
