"""Means, rates and their intervals against closed forms, scipy and the worked numbers of the design."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import (
    Estimate,
    bootstrap_ci,
    clopper_pearson,
    effective_n,
    hajek,
    mean_ci,
    needed_n,
    wilson,
)
from ragpulse_evaluators.statistics.distributions import student_quantile

chances = st.floats(0.01, 1.0)
scores = st.floats(0.0, 1.0)


def some(estimate: Estimate | None) -> Estimate:
    """The estimate, which must exist."""
    assert estimate is not None
    return estimate


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.data())
def test_wilson_agrees_with_scipy(n: int, data: st.DataObject) -> None:
    """Wilson's bounds are scipy's for every k and n."""
    k = data.draw(st.integers(0, n))
    lo, hi = some(wilson(k, n))
    expected = scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
    assert (lo, hi) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_reproduces_the_worked_numbers() -> None:
    """2 of 3 and 20 of 20, as the design documents print them."""
    assert tuple(some(wilson(2, 3))) == pytest.approx((0.208, 0.939), abs=5e-4)
    assert tuple(some(wilson(20, 20))) == pytest.approx((0.839, 1.0), abs=5e-4)


def test_wilson_of_nothing_is_none_and_nonsense_is_refused() -> None:
    """No trials: undefined. More successes than trials: an error."""
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="0 <= k <= n"):
        wilson(3, 2)


def test_mean_ci_reproduces_the_judge_interval_of_the_seed() -> None:
    """Three judgements 1, 1, 0 give AdalFlow's (0.0133, 1), and the same one every time."""
    first = some(mean_ci([1, 1, 0], bounds=(0.0, 1.0)))
    assert [first.lo, first.hi] == pytest.approx([0.013333333333333197, 1.0], abs=1e-12)
    assert mean_ci([1, 1, 0], bounds=(0.0, 1.0)) == first


def test_one_value_has_a_mean_but_no_interval() -> None:
    """A single value says nothing about spread; no value says nothing at all."""
    assert some(mean_ci([3.0])).lo is None
    assert mean_ci([]) is None


@settings(max_examples=30, deadline=None)
@given(st.floats(0.501, 0.9999), st.floats(1.0, 500.0))
def test_student_quantile_agrees_with_scipy(probability: float, df: float) -> None:
    """The own t quantile is scipy's."""
    assert student_quantile(probability, df) == pytest.approx(scipy.stats.t.ppf(probability, df), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(scores, chances), min_size=2, max_size=40))
def test_hajek_is_the_weighted_mean_with_the_stated_error(sample: list[tuple[float, float]]) -> None:
    """m = Σ(y/π)/Σ(1/π) and SE = √Σ((y-m)/π)²/Σ(1/π), worked out with numpy."""
    y, pi = np.array(sample).T
    found = some(hajek(y.tolist(), pi.tolist()))
    mean = (y / pi).sum() / (1 / pi).sum()
    assert found.estimate == pytest.approx(mean, abs=1e-9)
    assert found.se == pytest.approx(math.sqrt((((y - mean) / pi) ** 2).sum()) / (1 / pi).sum(), abs=1e-9)
    assert found.n_eff == pytest.approx((1 / pi).sum() ** 2 / (1 / pi**2).sum())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), chances)
def test_hajek_of_equally_likely_passes_is_wilson(passes: list[bool], chance: float) -> None:
    """With one sampling rate the weighted interval is Wilson's own."""
    found = some(hajek([float(value) for value in passes], [chance] * len(passes)))
    expected = some(wilson(sum(passes), len(passes)))
    assert (found.estimate, found.lo, found.hi) == pytest.approx((expected.estimate, *expected), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(scores, chances), min_size=1, max_size=30))
def test_hajek_stays_within_bounds_and_around_its_estimate(sample: list[tuple[float, float]]) -> None:
    """0 <= lo <= estimate <= hi <= 1 whatever is scored."""
    found = some(hajek(*map(list, zip(*sample, strict=True))))
    assert found.lo is not None
    assert found.hi is not None
    assert 0.0 <= found.lo <= found.estimate + 1e-9
    assert found.estimate - 1e-9 <= found.hi <= 1.0


def test_hajek_undoes_oversampling_of_risky_traces() -> None:
    """The design's example: truth 0.905, the naive mean near 0.63, the weighted one within 0.002 over seeds."""
    generator = random.Random(1)
    errors = []
    for _ in range(120):
        sample = []
        for _ in range(6000):
            risky = generator.random() < 0.1
            pi = 0.5 if risky else 0.02
            if generator.random() < pi:
                sample.append((float(generator.random() < (0.5 if risky else 0.95)), pi))
        errors.append(some(hajek(*map(list, zip(*sample, strict=True)))).estimate - 0.905)
    naive = sum(value for value, _ in sample) / len(sample)
    assert abs(sum(errors) / len(errors)) < 0.006
    assert naive < 0.7


def test_an_interval_is_no_surer_than_the_heavy_weights() -> None:
    """Nine passes of weight 20 and twenty mixed ones of weight 1: one of the nine could be a failure."""
    found = some(hajek([1.0] * 9 + [1.0, 0.0] * 10, [0.05] * 9 + [1.0] * 20))
    alike = some(wilson(found.estimate * found.n_eff, found.n_eff))
    assert found.hi == 1.0
    assert float(found.lo or 0) < float(alike.lo or 0) < 0.85


def test_few_heavy_answers_could_hide_a_failing_one() -> None:
    """Three passes stand for an eighth of the traffic: the lower bound has a part of another one, failing, inside."""
    found = some(hajek([1.0] * 3 + ([1.0] * 49 + [0.0]) * 20, [0.02] * 3 + [1.0] * 1000))
    p, kish = found.estimate, found.n_eff
    assert float(found.lo or 0) < 0.93 < float(some(wilson(p * kish, kish)).lo or 0)


def test_graded_scores_near_an_end_are_not_trusted_to_student() -> None:
    """One low score of forty whose weights differ a little: the interval reaches further than m ± t·SE."""
    values, pi = [1.0] * 39 + [0.9], [0.5, 0.4] * 20
    found = some(hajek(values, pi))
    assert found.thin
    assert found.n_eff > 28
    assert float(found.lo or 0) < found.estimate - 4 * float(found.se or 0)


def test_weights_nearly_alike_have_the_published_interval() -> None:
    """Wilson with min(n, m(1-m)/SE²) where Kish's n is at least 0.7 n: a factor of two between the chances."""
    values, pi = [1.0, 0.0, 1.0, 1.0] * 10, [0.5] * 20 + [1.0] * 20
    found = some(hajek(values, pi))
    trials = min(40.0, found.estimate * (1 - found.estimate) / float(found.se or 1) ** 2)
    assert found.n_eff > 28
    assert tuple(found) == pytest.approx(tuple(some(wilson(found.estimate * trials, trials))))


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        ([0.2, 0.9, 0.4, 0.7, 0.5] * 6, 0.95, 1.05),
        ([0.2, 0.9, 0.4, 0.7, 0.5] * 20, 0.98, 1.02),
        ([0.9, 1.0, 0.8, 0.7] * 20, 0.95, 1.06),
        ([1.0] * 37 + [0.2, 0.5, 0.7], 1.05, 1.3),  # three low ones of forty: Student's law does not hold
        ([0.0] * 37 + [0.8, 0.5, 0.3], 1.05, 1.3),
    ],
)
def test_graded_answers_that_stand_alone_have_about_students_interval(
    values: list[float], least: float, most: float
) -> None:
    """As wide as t·SE with n-1 degrees of freedom to 5 %, wider where few scores say what low ones are like."""
    n, found = len(values), some(hajek(values, [0.5] * len(values)))
    half = scipy.stats.t.ppf(0.975, n - 1) * float(found.se or 0)
    assert least <= (float(found.hi or 0) - float(found.lo or 0)) / (2 * half) <= most


ANSWERS = [float(answer % 10 != 0) for answer in range(600)]


def test_answers_of_one_user_count_as_dependent() -> None:
    """60 users whose answers are alike: as unsure as 60 answers; spread over users: as sure as 600 to 5 %."""
    alone = some(hajek(ANSWERS, [1.0] * 600))
    spread = some(hajek(ANSWERS, [1.0] * 600, clusters=[answer % 60 // 10 + answer // 60 * 6 for answer in range(600)]))
    alike = some(hajek(sorted(ANSWERS), [1.0] * 600, clusters=[answer // 10 for answer in range(600)]))
    few = some(wilson(54, 60))
    width, least = float(alone.hi or 0) - float(alone.lo or 0), float(few.hi or 0) - float(few.lo or 0)
    assert (alone.clusters, spread.clusters, alike.clusters) == (600, 60, 60)
    assert width <= float(spread.hi or 0) - float(spread.lo or 0) <= 1.06 * width
    assert least <= float(alike.hi or 0) - float(alike.lo or 0) <= 1.15 * least


def test_few_users_have_no_interval_but_a_reason() -> None:
    """Four users, or one who asks nearly everything: fewer than five effective ones; the mean stays."""
    few = some(hajek(ANSWERS, [1.0] * 600, clusters=[answer % 4 for answer in range(600)]))
    one = some(hajek(ANSWERS, [1.0] * 600, clusters=[max(0, answer - 500) for answer in range(600)]))
    for found in (few, one):
        assert (found.estimate, found.lo, found.hi, found.reason) == (0.9, None, None, "not enough users")
    with pytest.raises(ValueError, match="3 values but 2 clusters"):
        hajek([1.0] * 3, [1.0] * 3, clusters=["a", "b"])


@pytest.mark.parametrize(
    ("values", "pi", "thin"),
    [
        ([1.0] * 20, [0.5] * 20, False),  # twenty passes are twenty trials
        ([1.0] * 5, [0.5] * 5, True),
        ([1.0, 0.0] * 20 + [1.0] * 2, [1.0] * 40 + [0.01] * 2, True),  # two answers carry it
        ([1.0] * 28 + [0.5] * 2, [0.5] * 30, True),  # two low scores say what low scores are like
        ([0.5, 0.7] * 15, [0.5] * 30, False),
    ],
)
def test_what_rests_on_too_little_is_thin(values: list[float], pi: list[float], thin: bool) -> None:
    """Fewer than ten effective answers, or a graded mean near an end with too few scores away from it."""
    assert some(hajek(values, pi)).thin is thin


def test_a_census_of_a_finite_list_has_no_uncertainty() -> None:
    """finite=True with everything scored is exact; the service's rate is not."""
    assert tuple(some(hajek([1, 0, 1], [1, 1, 1], finite=True))) == (2 / 3, 2 / 3)
    assert some(hajek([1, 0, 1], [1, 1, 1])).lo == pytest.approx(0.2077, abs=1e-4)


def test_finite_multiplies_each_term_by_what_was_not_seen() -> None:
    """With one rate the error of the finite list is √(1-π) of the service's."""
    wide, narrow = hajek([0.2, 0.9, 0.4], [0.5] * 3), hajek([0.2, 0.9, 0.4], [0.5] * 3, finite=True)
    assert some(narrow).se == pytest.approx(math.sqrt(0.5) * float(some(wide).se or 0))


def test_equal_scores_still_have_an_interval() -> None:
    """Twenty times 1.0 is [0.839, 1.0], not [1.0, 1.0]; a middle value has as much room to either end."""
    assert some(hajek([1.0] * 20, [0.1] * 20)).lo == pytest.approx(0.839, abs=5e-4)
    assert tuple(some(hajek([0.5] * 20, [0.1] * 20))) == pytest.approx((0.4194, 0.5806), abs=5e-4)


def test_hajek_on_another_scale_is_the_same_interval_stretched() -> None:
    """Scores 1..5 with bounds=(1, 5) give the 0..1 interval mapped to that scale."""
    unit = some(hajek([0.0, 1.0, 1.0], [0.5, 0.5, 1.0]))
    native = some(hajek([1.0, 5.0, 5.0], [0.5, 0.5, 1.0], bounds=(1.0, 5.0)))
    assert native.lo == pytest.approx(1 + 4 * float(unit.lo or 0))


@pytest.mark.parametrize(("values", "pi"), [([1.0], [0.0]), ([1.0], [1.5]), ([1.0], [0.5, 0.5]), ([math.nan], [1.0])])
def test_hajek_refuses_what_cannot_be_weighted(values: list[float], pi: list[float]) -> None:
    """π of 0 (not covered), above 1, unequal lengths and NaN are errors, not numbers."""
    with pytest.raises(ValueError, match=r"."):
        hajek(values, pi)


def test_effective_n_shrinks_with_unequal_weights() -> None:
    """Equal weights count fully; one heavy weight dominates."""
    assert effective_n([2.0, 2.0, 2.0]) == pytest.approx(3.0)
    assert effective_n([100.0, 1.0, 1.0]) < 1.1
    assert effective_n([]) == 0.0


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 1.0), st.floats(0.005, 0.2))
def test_needed_n_is_the_smallest_that_suffices(rate: float, half_width: float) -> None:
    """One scored trace fewer would leave a wider interval."""
    n = needed_n(rate, half_width)

    def half(count: int) -> float:
        lo, hi = some(wilson(rate * count, count))
        return (float(hi or 0) - float(lo or 0)) / 2

    assert half(n) <= half_width + 1e-9
    assert n == 1 or half(n - 1) > half_width - 1e-9


def test_bootstrap_agrees_with_scipy_and_repeats() -> None:
    """The BCa interval is scipy's up to Monte-Carlo error, and equal for equal seeds."""
    values = [float(v) for v in np.random.default_rng(3).gamma(2.0, 1.0, 200)]
    found = some(bootstrap_ci(values, seed=5, resamples=4000))
    expected = scipy.stats.bootstrap((values,), np.mean, n_resamples=4000, rng=np.random.default_rng(1))
    assert tuple(found) == pytest.approx(tuple(expected.confidence_interval), abs=0.03)
    assert bootstrap_ci(values, seed=5, resamples=4000) == found


def test_bootstrap_by_group_is_wider_where_groups_agree() -> None:
    """Twenty copies of ten values carry ten values' worth of information."""
    values = [float(i % 10) for i in range(200)]
    single = some(bootstrap_ci(values))
    grouped = some(bootstrap_ci(values, groups=[i % 10 for i in range(200)]))
    assert float(grouped.se or 0) > 3 * float(single.se or 0)
    assert grouped.n_eff == 10


@given(st.integers(1, 200), st.data())
def test_clopper_pearson_agrees_with_scipy(n: int, data: st.DataObject) -> None:
    """The exact interval at any confidence."""
    k, confidence = data.draw(st.integers(0, n)), data.draw(st.sampled_from([0.8, 0.95, 0.9999]))
    found = clopper_pearson(k, n, confidence=confidence)
    expected = scipy.stats.binomtest(k, n).proportion_ci(confidence, method="exact")
    assert found is not None
    assert (found.lo, found.hi) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(
    ("k", "n"),
    [(1e-300, 5.0), (1e-17, 1.0), (1e-3, 10.0), (0.5, 1.0), (10 - 1e-13, 10.0), (5 - 1e-15, 5.0), (1e9 - 1, 1e9)],
)
def test_clopper_pearson_near_an_end(k: float, n: float) -> None:
    """Weighted sums come as near to nothing or to all as numbers can be: an interval around the rate, no error."""
    found = clopper_pearson(k, n)
    assert found is not None
    assert found.lo is not None
    assert found.hi is not None
    assert 0.0 <= found.lo <= k / n <= found.hi
    assert found.hi <= 1.0


def test_clopper_pearson_of_nothing_is_none() -> None:
    """No trials, no interval."""
    assert clopper_pearson(0, 0) is None


def test_scores_whose_squares_vanish_have_an_interval() -> None:
    """A score of 1e-223 has a square of 0 in floating point: its interval is that of equal scores."""
    found = some(hajek([0.0, 1e-223], [0.125, 1.0]))
    assert found.lo == pytest.approx(0.0)
    assert found.hi is not None
    assert 0.2 < found.hi < 1.0
