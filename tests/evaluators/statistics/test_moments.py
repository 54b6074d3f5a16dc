"""Estimates from sums: equal to those from the scores, also when the sums come in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import Moments, hajek

SAMPLES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 1), st.integers(0, 12)), min_size=1, max_size=40)


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
    return Moments.of([len(sample), len(users), *sums, *of_users, own, *ends, sum(0 < y < 1 for y, _ in answers)])


@given(SAMPLES)
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
