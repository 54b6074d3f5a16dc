"""Estimates from sums: equal to those from the scores, also when the sums come in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import Moments, hajek

SAMPLES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 1)), min_size=1, max_size=30)


def moments(sample: list[tuple[float, float]]) -> Moments | None:
    """The sums as a store adds them up."""
    weighted = [(y, 1.0 / pi) for y, pi in sample]
    sums = [sum(w**a * y**b for y, w in weighted) for a, b in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2))]
    ends = [min((y for y, _ in sample), default=None), max((y for y, _ in sample), default=None)]
    rarest = min((pi for _, pi in sample), default=None)
    return Moments.of([len(sample), *sums, *ends, rarest, sum(0 < y < 1 for y, _ in sample)])


@given(SAMPLES, SAMPLES)
def test_sums_in_parts_give_hajeks_estimate(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> None:
    """Two buckets added up say the same as all their scores."""
    parts = [part for part in (moments(one), moments(other)) if part is not None]
    joined = Moments.joined(parts)
    expected = hajek([y for y, _ in one + other], [pi for _, pi in one + other])
    assert joined is not None
    assert expected is not None
    assert (joined.n, joined.mean) == (expected.n, pytest.approx(expected.estimate, abs=1e-9))
    assert joined.se == pytest.approx(expected.se, abs=1e-6)
    assert joined.estimate().n_eff == pytest.approx(expected.n_eff)


def test_nothing_measured_has_no_sums() -> None:
    """Neither of no scores nor of no parts."""
    assert moments([]) is None
    assert Moments.joined([]) is None
