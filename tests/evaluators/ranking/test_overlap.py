"""Overlap of retrieved lists: values worked by hand, and what must hold of any two lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.ranking.metrics import jaccard, rank_biased_overlap

rankings = st.lists(st.integers(0, 15), max_size=10, unique=True)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("abc", "abc", 1.0), ("abc", "cab", 1.0), ("abc", "bcd", 0.5), ("ab", "cd", 0.0), ("", "", 1.0), ("aa", "a", 1.0)],
)
def test_jaccard_is_the_shared_share(one: str, other: str, expected: float) -> None:
    """Order and repeats do not count; two empty lists are the same."""
    assert jaccard(one, other) == expected


@pytest.mark.parametrize(
    ("one", "other", "p", "expected"),
    [
        ("abc", "abc", 0.9, 1.0),
        ("abc", "cba", 0.9, (1 / 9) * (0.81 / 2 + 0.729) + 0.729),  # X = 0, 1, 3
        ("abc", "xyz", 0.9, 0.0),
        ("a", "ab", 0.5, 1.0),  # a ranking and its own beginning
        ("b", "ab", 0.5, 0.25),  # X = 0, 1: 1/2 * 1/4 seen, (1 - 0) / 2 * 1/4 taken to go on
        ("ab", "acb", 0.5, 0.5 + 0.125 + 1 / 12 + 1 / 48 + (1 / 3 + 1 / 2) * 0.125),  # X = 1, 1, 2; beyond: 1/(2*3)/8
        ("", "ab", 0.9, 0.0),
        ("", "", 0.9, 1.0),
        ("aba", "ab", 0.9, 1.0),
    ],
)
def test_rank_biased_overlap_by_hand(one: str, other: str, p: float, expected: float) -> None:
    """The extrapolated form for even and uneven lists."""
    assert rank_biased_overlap(one, other, p=p) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(rankings, rankings, st.floats(0.5, 0.99))
def test_both_are_symmetric_and_within_bounds(one: list[int], other: list[int], p: float) -> None:
    """Neither list is the reference; 1 for a list and itself, 0 where nothing is shared."""
    for measure in (jaccard, lambda a, b: rank_biased_overlap(a, b, p=p)):
        found = measure(one, other)
        assert -1e-9 <= found <= 1.0 + 1e-9
        assert found == pytest.approx(measure(other, one), abs=1e-12)
        assert measure(one, one) == pytest.approx(1.0)
        assert (found > 1e-12) == bool(set(one) & set(other) or not (one or other))


@pytest.mark.parametrize("p", [0.0, 1.0, -1.0])
def test_a_weight_outside_is_refused(p: float) -> None:
    """p is the chance of looking one rank further."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        rank_biased_overlap("ab", "ab", p=p)
