"""Estimates from sums: equal to those from the scores, also when the sums come in parts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import Moments, hajek

SAMPLES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 1), st.integers(0, 12)), min_size=1, max_size=40)

OF_TWO_CLASSES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1.0, 0.05]), st.integers(0, 200)),
    min_size=30, max_size=80,
)  # fmt: skip


def moments(sample: list[tuple[float, float, int]]) -> Moments | None:
    """The sums as a store adds them up."""
    answers = [(y, 1.0 / pi) for y, pi, _ in sample]
    users = {user: [(y, 1.0 / pi) for y, pi, of in sample if of == user] for _, _, user in sample}
    parts = [(sum(w for _, w in one), sum(w * y for y, w in one), sum(w * w for _, w in one)) for one in users.values()]
    sums = [sum(w**a * y**b for y, w in answers) for a, b in ((1, 0), (1, 1), (1, 2), (2, 0))]
    of_users = [sum(w**a * s**b for w, s, _ in parts) for a, b in ((2, 0), (1, 1), (0, 2), (-1, 2))]
    own = sum(ww / w for w, _, ww in parts)
    ends = [max((w for _, w in answers), default=0), max((w for w, _, _ in parts), default=0)]
    ends += [min((y for y, _ in answers), default=0), max((y for y, _ in answers), default=0)]
    graded = sum(0 < y < 1 for y, _ in answers)
    return Moments.of([len(sample), len(users), *sums, *of_users, own, *ends, graded, *by_class(answers)])


def by_class(answers: list[tuple[float, float]]) -> tuple[float, float, int]:
    """The sums by classes of weights, a factor of two wide each, and the least number of answers of a class."""
    classes: dict[int, list[tuple[float, float]]] = {}
    for y, w in answers:
        classes.setdefault(math.floor(math.log2(w)), []).append((y, w))
    wwy = wwyy = 0.0
    for of_class in classes.values():
        n, ww = len(of_class), sum(w * w for _, w in of_class)
        q, e = (sum(w * y**power for y, w in of_class) / sum(w for _, w in of_class) for power in (1, 2))
        wwy, wwyy = wwy + ww * (n * q + 1) / (n + 2), wwyy + ww * (n * e + 1) / (n + 2)
    return wwy, wwyy, min(map(len, classes.values()), default=0)


@given(st.one_of(SAMPLES, OF_TWO_CLASSES))
def test_sums_give_hajeks_estimate(sample: list[tuple[float, float, int]]) -> None:
    """Sums over answers and over users say the same as all scores."""
    found = moments(sample)
    ys, pis, users = (list(column) for column in zip(*sample, strict=True))
    expected = hajek(ys, pis, clusters=users)
    assert found is not None
    assert expected is not None
    assert (found.n, found.clusters, found.mean) == (
        expected.n, expected.clusters, pytest.approx(expected.estimate, abs=1e-9),
    )  # fmt: skip
    got = found.estimate()
    assert (got.n_eff, got.reason) == (pytest.approx(expected.n_eff), expected.reason)
    assert list(got) == [None if end is None else pytest.approx(end, abs=1e-6) for end in expected]


def test_nothing_measured_has_no_sums() -> None:
    """No scores have no mean."""
    assert moments([]) is None


def test_the_heavy_class_that_varies_least_does_not_widen_the_interval() -> None:
    """Doubtful answers are scored one in two and fail often, the others one in twenty and nearly never."""
    doubtful = [(float(n < 60), 0.5) for n in range(100)]
    rest = [(float(n > 0), 0.05) for n in range(100)]
    estimate = hajek(*(list(column) for column in zip(*doubtful, *rest, strict=True)))
    assert estimate is not None
    share = 200 / 2200
    variance = share**2 * (0.24 + 0.35**2) / 100 + (1 - share) ** 2 * (0.0099 + 0.04**2) / 100
    half = ((estimate.hi or 0.0) - (estimate.lo or 0.0)) / 2
    assert half < 1.4 * 1.96 * math.sqrt(variance)
