"""Tests for rates, pairs, sequential experiments, corrected means and changes, against reference packages."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import scipy.stats
import statsmodels.stats.contingency_tables
import statsmodels.stats.proportion
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import (
    Interval,
    benjamini_hochberg,
    change_points,
    compare_arms,
    cusum,
    cusum_run_length,
    cusum_threshold,
    fisher,
    hajek,
    mcnemar,
    mean_ci,
    minus,
    msprt,
    plus,
    ppi_mean,
    rogan_gladen,
    two_proportion,
    verdict,
    wilcoxon,
    wilson,
)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.data())
def test_two_proportion_agrees_with_statsmodels(n1: int, n2: int, data: st.DataObject) -> None:
    """The pooled z test and Newcombe's interval."""
    k1, k2 = data.draw(st.integers(0, n1)), data.draw(st.integers(0, n2))
    found = two_proportion(k1, n1, k2, n2)
    assert found is not None
    interval = statsmodels.stats.proportion.confint_proportions_2indep(k1, n1, k2, n2, method="newcomb")
    assert (found.lo, found.hi) == pytest.approx(interval, abs=1e-9)
    if found.p is not None:
        expected = statsmodels.stats.proportion.proportions_ztest([k1, k2], [n1, n2])
        assert (found.statistic, found.p) == pytest.approx(expected, abs=1e-9)


def test_two_proportion_of_an_empty_arm_is_none() -> None:
    """Nothing to compare; two perfect arms have a difference but no test."""
    assert two_proportion(0, 0, 1, 2) is None
    perfect = two_proportion(3, 3, 4, 4)
    assert perfect is not None
    assert perfect.p is None


@pytest.mark.parametrize(
    ("k1", "n1", "k2", "n2"), [(8, 27, 4, 300), (0, 5, 3, 9), (3, 4, 1, 4), (2, 9, 2, 9), (0, 3, 0, 4)]
)
def test_fisher_doubles_the_smaller_tail_of_scipy(k1: int, n1: int, k2: int, n2: int) -> None:
    """In the direction of the difference."""
    less, more = (
        scipy.stats.fisher_exact([[k1, n1 - k1], [k2, n2 - k2]], alternative=side).pvalue
        for side in ("less", "greater")
    )
    expected = more if k1 * n2 > k2 * n1 else less
    assert fisher(k1, n1, k2, n2).p == pytest.approx(min(1.0, 2.0 * expected))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 200), st.integers(1, 200))
def test_mcnemar_agrees_with_statsmodels(b: int, c: int) -> None:
    """The exact test on discordant pairs."""
    found = mcnemar(b, c)
    assert found is not None
    expected = statsmodels.stats.contingency_tables.mcnemar([[0, b], [c, 0]], exact=True)
    assert found.p == pytest.approx(expected.pvalue, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-9, 9).filter(bool), min_size=2, max_size=40))
def test_wilcoxon_with_ties_is_scipys_approximation(values: list[int]) -> None:
    """Ties bring the normal approximation; without them the exact distribution."""
    exact = len({abs(value) for value in values}) == len(values)
    found = wilcoxon([float(value) for value in values])
    assert found is not None
    expected = scipy.stats.wilcoxon(values, method="exact" if exact else "asymptotic")
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-9)


def test_tests_without_information_are_none() -> None:
    """No flips, no differences, no spread."""
    assert mcnemar(0, 0) is None
    assert wilcoxon([0.0, 0.0]) is None
    assert msprt(0.1, 0.0, 0.1) is None


def test_msprt_is_the_stated_formula_and_only_falls() -> None:
    """Λ worked out by hand; p never rises again; the interval leaves 0 exactly when p < 0.05."""
    d, s, tau = 0.12, 0.03, 0.1
    ratio = math.sqrt(s**2 / (s**2 + tau**2)) * math.exp(d**2 * tau**2 / (2 * s**2 * (s**2 + tau**2)))
    found = msprt(d, s, tau)
    assert found is not None
    assert (found.likelihood_ratio, found.p) == pytest.approx((ratio, 1 / ratio))
    assert (found.lo > 0) == (found.p < 0.05)
    later = msprt(0.0, s, tau, previous_p=found.p)
    assert later is not None
    assert later.p == found.p


def test_clustered_error_counts_users_not_answers() -> None:
    """Twenty equal answers of each user are one answer each: the error of 10 users, not of 200 answers."""
    users = [index // 20 for index in range(200)]
    values = [float(user % 2) for user in users]
    found, plain = hajek(values, [1.0] * 200, clusters=users), hajek(values, [1.0] * 200)
    assert found is not None
    assert plain is not None
    assert (found.clusters, plain.clusters) == (10, 200)
    assert found.se == pytest.approx(math.sqrt(20 * 10 / 9) * float(plain.se or 0))


def test_peeking_at_correlated_users_keeps_the_false_alarms_down() -> None:
    """A/A with 60 users x 10 answers, looked at six times: far fewer alarms than a naive test repeated."""
    generator, alarms = random.Random(4), 0
    for _ in range(100):
        rates = [min(1.0, max(0.0, generator.gauss(0.8, 0.2))) for _ in range(60)]
        p = 1.0
        for look in range(1, 7):
            arms = []
            for half in (0, 1):
                users = [u for u in range(60)[half::2][: 5 * look] for _ in range(10)]
                answers = [float(generator.random() < rates[u]) for u in users]
                arms.append(hajek(answers, [1.0] * len(users), clusters=users))
            found = compare_arms(arms[0], arms[1], tau=0.1, previous_p=p)
            p = found.p if found else p
        alarms += p < 0.05
    assert alarms <= 5


def test_no_verdict_below_thirty_clusters() -> None:
    """However clear the difference, few users decide nothing."""
    few = [hajek([rate] * 9 + [1.0 - rate], [1.0] * 10) for rate in (1.0, 0.0)]
    many = [hajek([rate] * 99 + [1.0 - rate], [1.0] * 100) for rate in (1.0, 0.0)]
    assert verdict(few, compare_arms(*few, tau=0.1)) == "not enough data"
    assert verdict(many, compare_arms(*many, tau=0.1)) == "better"
    assert verdict(many[::-1], compare_arms(*many[::-1], tau=0.1)) == "worse"
    assert verdict([many[0], many[0]], compare_arms(many[0], many[0], tau=0.1)) == "undecided"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_benjamini_hochberg_agrees_with_scipy(p_values: list[float]) -> None:
    """Adjusted p-values in the order given."""
    expected = scipy.stats.false_discovery_control(p_values)
    assert benjamini_hochberg(p_values) == pytest.approx(expected.tolist(), abs=1e-12)


@pytest.mark.parametrize(
    ("seed", "n", "n_all", "expected"),
    [
        (1, 60, 600, (0.4082230432398776, 0.36039908494258116, 0.4560470015371741)),
        (2, 120, 1500, (0.44956909212980756, 0.4185856347768265, 0.48055254948278864)),
        (3, 40, 90, (0.47082976921174835, 0.4030648545887013, 0.5385946838347954)),
    ],
)
def test_ppi_mean_agrees_with_ppi_python(seed: int, n: int, n_all: int, expected: tuple[float, float, float]) -> None:
    """Estimate and interval printed by ppi-python 0.2.3 on the same numbers."""
    generator = np.random.default_rng(seed)
    judged = np.round(generator.random(n + n_all), 3)
    truth = np.round(np.clip(judged + generator.normal(0, 0.2, n + n_all) - 0.05, 0, 1), 3)
    found = ppi_mean(judged[n:].tolist(), judged[:n].tolist(), truth[:n].tolist())
    assert found is not None
    assert (found.estimate, *found) == pytest.approx(expected, abs=1e-9)


def test_ppi_corrects_a_lenient_judge_and_narrows_the_interval() -> None:
    """A judge 10 points too kind: the corrected mean is near the truth, >= 30 % narrower than labels alone."""
    generator = np.random.default_rng(7)
    truth = generator.beta(4, 1, 2200)
    judged = np.clip(truth + 0.1 + generator.normal(0, 0.05, 2200), 0, 1)
    found = ppi_mean(judged[200:].tolist(), judged[:200].tolist(), truth[:200].tolist())
    labels = hajek(truth[:200].tolist(), [1.0] * 200)
    assert found is not None
    assert labels is not None
    assert abs(found.estimate - truth.mean()) < 0.015
    assert judged.mean() > truth.mean() + 0.03
    assert float(found.hi or 0) - float(found.lo or 0) < 0.7 * (float(labels.hi or 0) - float(labels.lo or 0))


def test_few_disagreements_get_two_pseudo_labels() -> None:
    """A judge that was right twenty times of twenty is not certain, and twenty labels are not enough to show."""
    found = ppi_mean([1.0] * 180 + [0.0] * 20, [1.0] * 18 + [0.0] * 2, [1.0] * 18 + [0.0] * 2)
    assert found is not None
    assert found.lam == 1.0
    assert found.note == "not enough labels"
    assert float(found.hi or 0) - float(found.lo or 0) > 0.1


@pytest.mark.parametrize(("guess", "truth"), [(1.0, 1.0), (0.0, 1.0), (0.5, 0.5), (1.0, 0.25)])
def test_labels_that_all_say_the_same_are_not_certain(guess: float, truth: float) -> None:
    """A judge and people without any spread still leave an interval."""
    found = ppi_mean([guess] * 500, [guess] * 50, [truth] * 50)
    assert found is not None
    assert found.estimate == pytest.approx(truth, abs=0.03)
    assert float(found.hi or 0) - float(found.lo or 0) > 0.02


def test_a_hundred_labels_narrow_a_yes_or_no_rate_by_a_third() -> None:
    """Eight disagreements of a hundred: near the bound 1 - √(1 - ρ²/(1 + n/N)), which is 0.37 at ρ = 0.82."""
    human = [1.0] * 70 + [0.0] * 30
    judge = [1.0] * 66 + [0.0] * 4 + [0.0] * 26 + [1.0] * 4
    found, alone = ppi_mean(judge * 10, judge, human), hajek(human, [1.0] * 100)
    assert found is not None
    assert alone is not None
    assert 0.0 < found.lam < 1.0
    narrower = 1 - (float(found.hi or 0) - float(found.lo or 0)) / (float(alone.hi or 0) - float(alone.lo or 0))
    assert 0.30 < narrower < 0.37


def test_ppi_without_labels_is_none_and_unequal_lengths_are_refused() -> None:
    """No label: nothing to correct with."""
    assert ppi_mean([1.0, 0.0], [], []) is None
    with pytest.raises(ValueError, match="2 judged"):
        ppi_mean([1.0], [1.0, 0.0], [1.0])


def test_ppi_weighs_both_means() -> None:
    """With the labels' own chances the correction undoes labelling the doubtful more often."""
    generator = random.Random(3)
    judged = [float(generator.random() < 0.7) for _ in range(4000)]
    truth = [g if generator.random() < (0.95 if g else 0.6) else 1 - g for g in judged]
    chances = [0.05 if g else 0.4 for g in judged]
    picked = [i for i in range(4000) if generator.random() < chances[i]]
    found = ppi_mean(
        judged, [judged[i] for i in picked], [truth[i] for i in picked], pi_labelled=[chances[i] for i in picked]
    )
    assert found is not None
    assert abs(found.estimate - sum(truth) / 4000) < 0.03


def test_rogan_gladen_by_hand() -> None:
    """(0.8 + 0.9 - 1) / (0.95 + 0.9 - 1); cut to 0..1; None for a judge no better than chance."""
    assert rogan_gladen(0.8, 0.95, 0.9) == pytest.approx(0.7 / 0.85)
    assert rogan_gladen(0.05, 0.9, 0.9) == 0.0
    assert rogan_gladen(0.5, 0.5, 0.5) is None


def test_cusum_alarms_soon_after_a_fall_and_names_the_direction() -> None:
    """A fall by one sigma adds up to an alarm within about ten points."""
    found = cusum([0.0] * 20 + [-1.5] * 20, target=0.0, sigma=1.0)
    assert found.direction == "down"
    assert 20 <= found.alarms[0] <= 30
    assert cusum([0.0] * 40, target=0.0, sigma=[1.0] * 40).direction is None


def test_cusum_threshold_keeps_its_false_alarm_budget() -> None:
    """Slack ½ and threshold 5 have the textbook run length 465; simulated quiet series agree with the budget."""
    assert cusum_run_length(5.0) == pytest.approx(465, rel=0.01)
    threshold = cusum_threshold(100.0)
    generator = random.Random(2)
    quiet = [generator.gauss(0, 1) for _ in range(60_000)]
    alarms = len(cusum(quiet, target=0.0, sigma=1.0, threshold=threshold).alarms)
    assert 60_000 / alarms == pytest.approx(100, rel=0.15)


def segment_cost(values: list[float], weights: list[float]) -> float:
    """Weighted squared distance from the weighted mean."""
    return float(np.cov(values, aweights=weights, ddof=0) * sum(weights))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.5, 3)), min_size=3, max_size=7), st.floats(0.1, 5))
def test_change_points_are_the_best_of_all_segmentations(found: list[tuple[float, float]], penalty: float) -> None:
    """Compared with trying every set of boundaries."""
    values, weights = map(list, zip(*found, strict=True))

    def total(cuts: tuple[int, ...]) -> float:
        edges = [0, *cuts, len(values)]
        spans = itertools.pairwise(edges)
        return sum(segment_cost(values[a:b], weights[a:b]) for a, b in spans) + penalty * len(cuts)

    inner = range(1, len(values))
    best = min(total(cuts) for size in range(len(values)) for cuts in itertools.combinations(inner, size))
    assert total(tuple(change_points(values, weights, penalty=penalty))) == pytest.approx(best, abs=1e-7)


def test_change_points_find_a_level_shift_and_leave_noise_alone() -> None:
    """60 noisy days with one fall of four sigmas; and without."""
    generator = random.Random(8)
    noise = [generator.gauss(0.9, 0.01) for _ in range(60)]
    assert change_points(noise) == []
    assert change_points([value - 0.04 * (day >= 35) for day, value in enumerate(noise)]) == [35]
    assert change_points([1.0] * 10 + [0.0] * 10) == [10]
    assert change_points([0.9]) == []


def test_minus_of_two_rates_is_newcombes_interval() -> None:
    """Newcombe's (1998) example of 56/70 and 48/80, and a + b as a - (-b)."""
    a, b = Interval.of(wilson(56, 70)), Interval.of(wilson(48, 80))
    assert a is not None
    assert b is not None
    found = minus(a, b)
    assert (found.value, found.lo, found.hi) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    again = plus(found, b)
    assert again.value == pytest.approx(a.value)
    assert again.lo < a.lo < a.hi < again.hi


def test_an_estimate_without_ends_is_no_interval() -> None:
    """One value alone has none."""
    assert Interval.of(mean_ci([1.0])) is None
    assert Interval.of(None) is None


def test_paired_differences_have_room_for_a_change_that_did_not_show() -> None:
    """200 verdicts without a change leave ±0.02; two users who flip together are one flip."""
    still = hajek([0.0] * 200, [1.0] * 200, bounds=(-1.0, 1.0))
    assert still is not None
    assert (still.lo, still.hi) == (pytest.approx(-0.019, abs=5e-4), pytest.approx(0.019, abs=5e-4))
    flips = [1.0] * 10 + [0.0] * 90
    alone = hajek(flips, [1.0] * 100, bounds=(-1.0, 1.0))
    together = hajek(flips, [1.0] * 100, clusters=[index // 10 for index in range(100)], bounds=(-1.0, 1.0))
    assert alone is not None
    assert together is not None
    assert (alone.lo or 0.0) > 0.0 > (together.lo or 0.0)
