"""Means and rates with their intervals, weighted by the chance with which each value was sampled; bootstrap intervals.

Every function takes plain sequences and answers an `Estimate`, or None where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from random import Random
from statistics import stdev
from typing import Any

from ragpulse_evaluators.statistics.distributions import beta_quantile, normal_quantile
from ragpulse_evaluators.statistics.moments import Moments
from ragpulse_evaluators.statistics.weighted import Estimate, wilson_bounds


def wilson(k: float, n: float, *, confidence: float = 0.95) -> Estimate | None:
    """The rate k/n with Wilson's score interval (Wilson 1927), honest for small n and rates near 0 or 1.

    `k` and `n` may be fractional (an effective number of trials). None where n is 0. ValueError unless 0 <= k <= n.
    """
    if not 0 <= k <= n:
        raise ValueError(f"wilson needs 0 <= k <= n, got k={k}, n={n}")
    if n == 0:
        return None
    p = k / n
    lo, hi = wilson_bounds(p, n, confidence)
    return Estimate(value=p, se=math.sqrt(p * (1.0 - p) / n), lo=lo, hi=hi, n=int(n), n_eff=float(n))


def clopper_pearson(k: float, n: float, *, confidence: float = 0.95) -> Estimate | None:
    """The rate k/n with Clopper and Pearson's (1934) interval, which never covers less than `confidence`.

    `k` and `n` may be fractional: a score from 0 to 1 varies at most as much as a yes-or-no one with its mean. None
    where n is 0 or less.
    """
    if n <= 0:
        return None
    tail, p = (1.0 - confidence) / 2.0, k / n
    lo = 0.0 if k <= 0 else beta_quantile(tail, k, n - k + 1.0)
    hi = 1.0 if k >= n else beta_quantile(1.0 - tail, k + 1.0, n - k)
    return Estimate(value=p, se=math.sqrt(max(0.0, p * (1.0 - p)) / n), lo=lo, hi=hi, n=int(n), n_eff=float(n))


def mean_ci(values: Sequence[float], *, z: float = 1.96, bounds: tuple[float, float] | None = None) -> Estimate | None:
    """The plain mean of equally weighted values, mean ± z·s/√n with s over n-1; `bounds` clips the interval.

    The form AdalFlow's judge reports; for rates use `wilson`, for sampled scores `hajek`. None without values.
    """
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(value=mean, se=None, lo=None, hi=None, n=1, n_eff=1.0)
    se = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) / math.sqrt(n)
    low, high = bounds or (-math.inf, math.inf)
    return Estimate(value=mean, se=se, lo=max(low, mean - z * se), hi=min(high, mean + z * se), n=n, n_eff=float(n))


def effective_n(weights: Sequence[float]) -> float:
    """Kish's effective number of observations, (Σw)²/Σw²: n for equal weights, fewer the more they differ."""
    squares = math.fsum(weight * weight for weight in weights)
    return math.fsum(weights) ** 2 / squares if squares else 0.0


def hajek(
    values: Sequence[float],
    pi: Sequence[float],
    finite: bool = False,
    *,
    clusters: Sequence[Hashable] | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    confidence: float = 0.95,
) -> Estimate | None:
    """The mean of the service's traffic from scores sampled with known chances: Σ(y/π)/Σ(1/π), with its interval.

    `pi` is each value's inclusion probability in (0, 1]; `clusters` names the user (else session, trace) of each value,
    whose answers are alike. Without clusters all values count as independent. The estimand is the service's rate;
    `finite=True` estimates this very list of requests instead (each term of the variance times 1-π; clusters then do
    not matter). The interval is Wilson's with as many trials as the variance between clusters leaves, and Student's
    quantile where that variance is estimated (docs/statistics.md). Differences of scores have the `bounds` (-1, 1);
    values outside `bounds`, or None, mean an open scale. Below an effective number of 5 clusters there is no interval
    and `reason` says "not enough users". `thin` marks intervals that rest on little, as wide as they may be.
    None without values; ValueError for unequal lengths, a non-finite value or π outside (0, 1].
    """
    _check_sample(values, pi)
    if not values:
        return None
    if finite and min(pi) >= 1.0:
        n, mean = len(values), math.fsum(values) / len(values)
        return Estimate(value=mean, se=0.0, lo=mean, hi=mean, n=n, n_eff=float(n), clusters=n)
    names = range(len(values)) if finite or clusters is None else clusters
    if len(names) != len(values):
        raise ValueError(f"{len(values)} values but {len(names)} clusters")
    return Moments.added(values, pi, names, bounds=bounds, finite=finite).estimate(bounds=bounds, confidence=confidence)


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Hajek's mean Σwy/Σw."""
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / math.fsum(weights)


def influence(values: Sequence[float], weights: Sequence[float]) -> tuple[list[float], float]:
    """The pull of each answer on the weighted mean, and that mean."""
    mean = weighted_mean(values, weights)
    total = math.fsum(weights)
    return [weight / total * (value - mean) for weight, value in zip(weights, values, strict=True)], mean


def _check_sample(values: Sequence[float], pi: Sequence[float]) -> None:
    if len(values) != len(pi):
        raise ValueError(f"{len(values)} values but {len(pi)} inclusion probabilities")
    if not all(0.0 < chance <= 1.0 for chance in pi):
        raise ValueError("inclusion probabilities lie in (0, 1]: a trace with pi = 0 is not covered and has no score")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("values must be finite numbers")


def needed_n(rate: float, half_width: float, *, confidence: float = 0.95) -> int:
    """The number of scored traces at which Wilson's interval at this rate is ± `half_width` wide (`ragpulse plan`)."""
    if not (0.0 <= rate <= 1.0 and 0.0 < half_width < 1.0):
        raise ValueError("needed_n takes a rate in [0, 1] and a half-width in (0, 1)")
    low, high = 1, 1
    while _half_width(rate, high, confidence) > half_width:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _half_width(rate, middle, confidence) > half_width else (low, middle)
    return low


def planned_half_width(deviation: float, n: float) -> float | None:
    """Half the width of the interval that so many answers will have, each asked by a user of its own; None below 1."""
    return None if n < 1 else normal_quantile(0.975) * deviation / math.sqrt(n)


def _half_width(rate: float, n: int, confidence: float) -> float:
    lo, hi = wilson_bounds(rate, n, confidence)
    return (hi - lo) / 2.0


Statistic = Callable[[list[Any]], float]


def bootstrap_ci(
    values: Sequence[Any],
    seed: int = 0,
    *,
    statistic: Statistic | None = None,
    groups: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> Estimate | None:
    """A statistic of the values (default: the mean) with a bootstrap interval, the same for the same seed.

    `statistic` gets a list of values. `groups` resamples whole groups (all answers about one passage, one user) and
    accelerates over groups. None without values or where the statistic is undefined (NaN).
    """
    if not values:
        return None
    measure = statistic or _mean
    observed = float(measure(list(values)))
    if not math.isfinite(observed):
        return None
    members = _members(values, groups)
    draws = _draws(measure, members, Random(seed), resamples) if len(members) > 1 else []
    n, n_eff = len(values), float(len(members))
    if len(draws) < 2:
        return Estimate(value=observed, se=None, lo=None, hi=None, n=n, n_eff=n_eff)
    lo, hi = (_quantile(draws, level) for level in _levels(draws, observed, _jackknife(measure, members), confidence))
    return Estimate(value=observed, se=stdev(draws), lo=lo, hi=hi, n=n, n_eff=n_eff)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _members(values: Sequence[Any], groups: Sequence[Hashable] | None) -> list[list[Any]]:
    """The values of each group; without groups each value is its own."""
    if groups is None:
        return [[value] for value in values]
    if len(groups) != len(values):
        raise ValueError(f"{len(values)} values but {len(groups)} groups")
    by_group: dict[Hashable, list[Any]] = {}
    for value, group in zip(values, groups, strict=True):
        by_group.setdefault(group, []).append(value)
    return list(by_group.values())


def _draws(measure: Statistic, members: list[list[Any]], random: Random, resamples: int) -> list[float]:
    """The statistic of each resample, sorted; a resample without positives has no AUC and is left out."""
    size = len(members)
    values = (measure(list(chain.from_iterable(random.choices(members, k=size)))) for _ in range(resamples))
    return sorted(value for value in values if math.isfinite(value))


def _jackknife(measure: Statistic, members: list[list[Any]]) -> list[float]:
    """The statistic without each group in turn; that of the mean is known without computing it n times."""
    if measure is _mean and all(len(group) == 1 for group in members):
        total = math.fsum(value for [value] in members)
        return [(total - value) / (len(members) - 1) for [value] in members]
    samples = (members[:index] + members[index + 1 :] for index in range(len(members)))
    values = (measure(list(chain.from_iterable(sample))) for sample in samples)
    return [value for value in values if math.isfinite(value)]


def _levels(draws: list[float], observed: float, jackknife: list[float], confidence: float) -> list[float]:
    below = sum(draw < observed for draw in draws) + sum(draw <= observed for draw in draws)
    bias = normal_quantile(min(max(below / (2.0 * len(draws)), 1e-6), 1.0 - 1e-6))
    center = _mean(jackknife) if jackknife else 0.0
    squares = math.fsum((center - value) ** 2 for value in jackknife)
    cubes = math.fsum((center - value) ** 3 for value in jackknife)
    acceleration = cubes / (6.0 * squares**1.5) if squares > 0.0 else 0.0
    return [_level(level, bias, acceleration) for level in (0.5 - confidence / 2.0, 0.5 + confidence / 2.0)]


def _level(level: float, bias: float, acceleration: float) -> float:
    z = bias + normal_quantile(level)
    return 0.5 * math.erfc(-(bias + z / (1.0 - acceleration * z)) / math.sqrt(2.0))


def _quantile(ordered: Sequence[float], level: float) -> float:
    """The value at a level, interpolated between neighbours (Hyndman and Fan's type 7)."""
    position = level * (len(ordered) - 1)
    low = min(int(position), len(ordered) - 2)
    return ordered[low] + (position - low) * (ordered[low + 1] - ordered[low])
