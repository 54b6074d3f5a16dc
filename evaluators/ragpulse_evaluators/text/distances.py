"""How many edits lie between answer and reference: 0 equal, 1 nothing in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import spoken

__all__ = ("DISTANCES", "ENTRIES", "string_distance")

DISTANCES: Mapping[str, str] = {
    "levenshtein": "Levenshtein",
    "damerau_levenshtein": "DamerauLevenshtein",
    "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler",
    "hamming": "Hamming",
    "indel": "Indel",
}
"""The distance's name and that of rapidfuzz's module."""

_SLOW = frozenset({"damerau_levenshtein"})
"""Quadratic in time without rapidfuzz's bit-parallel tricks."""
_CELLS = 1_000_000_000
_SCALE = Scale(reverse=True)


def string_distance(
    response: str, reference: str | tuple[str, ...], *, metric: str = "levenshtein", ignore_case: bool = False
) -> Outcome:
    """The normalised distance to the nearest reference, 0 (equal) to 1; parts: min, avg and max over the references.

    `metric` is one of `DISTANCES`. Lower is better, so `normalized` is 1 - distance. `Unreadable` for texts too
    long for a slow metric.
    """
    form = str.casefold if ignore_case else str
    measure, references = _measure(metric), spoken(reference)
    if metric in _SLOW and len(response) * max(map(len, references)) > _CELLS:
        raise Unreadable(f"{metric} of texts this long takes minutes; levenshtein does not")
    found = [measure(form(response), form(text)) for text in references]
    return Outcome(score=min(found), parts={"min": min(found), "avg": sum(found) / len(found), "max": max(found)})


@cache
def _measure(metric: str) -> Callable[[str, str], float]:
    import rapidfuzz.distance

    found: Callable[[str, str], float] = getattr(rapidfuzz.distance, DISTANCES[metric]).normalized_distance
    return found


def _string_distance(
    *, metric: str = "levenshtein", ignore_case: bool = False, threshold: float | None = None
) -> Evaluator:
    if metric not in DISTANCES:
        raise ConfigurationError(f"string_distance has no metric {metric!r}; choose one of {', '.join(DISTANCES)}")
    return Function(string_distance, scale=_SCALE, threshold=threshold, metric=metric, ignore_case=ignore_case)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="string_distance",
        factory=_string_distance,
        needs=("response", "reference"),
        scale=_SCALE,
        source="PolyEval StringDistanceEvaluator; rapidfuzz",
        description="How many edits make the answer the reference, as a share of its length?",
        example='get_evaluator("string_distance", metric="jaro_winkler", threshold=0.2)',
    ),
)
