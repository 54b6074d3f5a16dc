"""Bootstrap intervals: bias-corrected and accelerated (BCa, Efron 1987), in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from random import Random
from statistics import stdev
from typing import Any

from ragpulse_evaluators.statistics.distributions import normal_quantile
from ragpulse_evaluators.statistics.weighted import Estimate

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
        return Estimate(estimate=observed, se=None, lo=None, hi=None, n=n, n_eff=n_eff)
    lo, hi = (_quantile(draws, level) for level in _levels(draws, observed, _jackknife(measure, members), confidence))
    return Estimate(estimate=observed, se=stdev(draws), lo=lo, hi=hi, n=n, n_eff=n_eff)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _members(values: Sequence[Any], groups: Sequence[Hashable] | None) -> list[list[Any]]:
    """The values of each group; without groups each value is its own."""
    if groups is None:
        return [[value] for value in values]
    if len(groups) != len(values):
        raise ValueError(f"{len(values)} values but {len(groups)} groups")
    found: dict[Hashable, list[Any]] = {}
    for value, group in zip(values, groups, strict=True):
        found.setdefault(group, []).append(value)
    return list(found.values())


def _draws(measure: Statistic, members: list[list[Any]], random: Random, resamples: int) -> list[float]:
    """The statistic of each resample, sorted; a resample without positives has no AUC and is left out."""
    size = len(members)
    found = (measure(list(chain.from_iterable(random.choices(members, k=size)))) for _ in range(resamples))
    return sorted(value for value in found if math.isfinite(value))


def _jackknife(measure: Statistic, members: list[list[Any]]) -> list[float]:
    """The statistic without each group in turn; that of the mean is known without computing it n times."""
    if measure is _mean and all(len(group) == 1 for group in members):
        total = math.fsum(value for [value] in members)
        return [(total - value) / (len(members) - 1) for [value] in members]
    rests = (members[:index] + members[index + 1 :] for index in range(len(members)))
    found = (measure(list(chain.from_iterable(rest))) for rest in rests)
    return [value for value in found if math.isfinite(value)]


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
    place = level * (len(ordered) - 1)
    low = min(int(place), len(ordered) - 2)
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
