"""Edit distances against rapidfuzz."""

from __future__ import annotations

import asyncio

import pytest
import rapidfuzz.distance
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.text import ENTRIES


def verdict(name: str, response: str, reference: str | tuple[str, ...], **params: object) -> EvaluationResult:
    """What the evaluator says of an answer."""
    made = next(entry for entry in ENTRIES if entry.name == name).factory(**params)
    return asyncio.run(made(Case(response=response, reference=reference)))


@settings(max_examples=40, deadline=None)
@given(
    st.text(max_size=20),
    st.text(min_size=1, max_size=20).filter(str.strip),
    st.sampled_from(["Levenshtein", "DamerauLevenshtein", "Jaro", "JaroWinkler", "Hamming", "Indel"]),
)
def test_string_distance_agrees_with_rapidfuzz(response: str, reference: str, name: str) -> None:
    """Every distance, and closeness as its complement."""
    snake = "".join("_" + c.lower() if c.isupper() else c for c in name).strip("_")
    found = verdict("string_distance", response, reference, metric=snake)
    expected = getattr(rapidfuzz.distance, name).normalized_distance(response, reference)
    assert found.score == pytest.approx(expected)
    assert found.normalized == pytest.approx(1 - expected)


def test_string_distance_reports_nearest_mean_and_farthest() -> None:
    """PolyEval's avg, min and max over the references; the nearest is the score, a threshold is an upper one."""
    found = verdict("string_distance", "cat", ("cat", "car", "dog"), threshold=0.1)
    assert found.parts == pytest.approx({"min": 0.0, "avg": (0 + 1 / 3 + 1) / 3, "max": 1.0})
    assert (found.score, found.normalized, found.passing) == (0.0, 1.0, True)
    assert verdict("string_distance", "cat", "dog", threshold=0.1).passing is False
