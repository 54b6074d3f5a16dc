"""Means and rates with their intervals, weighted by the chance with which each value was sampled.

Every function takes plain sequences and answers an `Estimate`, or None where nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ragpulse_evaluators.statistics.distributions import regularized_beta
from ragpulse_evaluators.statistics.weighted import Estimate, WeightedMean, wilson_bounds


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
    return Estimate(estimate=p, se=math.sqrt(p * (1.0 - p) / n), lo=lo, hi=hi, n=int(n), n_eff=float(n))


def clopper_pearson(k: float, n: float, *, confidence: float = 0.95) -> Estimate | None:
    """The rate k/n with Clopper and Pearson's (1934) interval, which never covers less than `confidence`.

    `k` and `n` may be fractional: a score from 0 to 1 varies at most as much as a yes-or-no one with its mean. None
    where n is 0 or less.
    """
    if n <= 0:
        return None
    tail, p = (1.0 - confidence) / 2.0, k / n
    lo = 0.0 if k <= 0 else _solve(lambda x: regularized_beta(x, k, n - k + 1.0), tail)
    hi = 1.0 if k >= n else _solve(lambda x: regularized_beta(x, k + 1.0, n - k), 1.0 - tail)
    return Estimate(estimate=p, se=math.sqrt(max(0.0, p * (1.0 - p)) / n), lo=lo, hi=hi, n=int(n), n_eff=float(n))


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    """Where a rising function of 0..1 has the wanted value, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2.0


def mean_ci(values: Sequence[float], *, z: float = 1.96, bounds: tuple[float, float] | None = None) -> Estimate | None:
    """The plain mean of equally weighted values, mean ± z·s/√n with s over n-1; `bounds` clips the interval.

    The form AdalFlow's judge reports; for rates use `wilson`, for sampled scores `hajek`. None without values.
    """
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(estimate=mean, se=None, lo=None, hi=None, n=1, n_eff=1.0)
    se = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) / math.sqrt(n)
    lo, hi = _clipped(mean - z * se, mean + z * se, bounds)
    return Estimate(estimate=mean, se=se, lo=lo, hi=hi, n=n, n_eff=float(n))


def effective_n(weights: Sequence[float]) -> float:
    """Kish's effective number of observations, (Σw)²/Σw²: n for equal weights, fewer the more they differ."""
    squares = math.fsum(weight * weight for weight in weights)
    return math.fsum(weights) ** 2 / squares if squares else 0.0


def hajek(
    values: Sequence[float],
    pi: Sequence[float],
    finite: bool = False,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Estimate | None:
    """The mean of the service's traffic from scores sampled with known chances: Σ(y/π)/Σ(1/π), with its interval.

    `pi` is each value's inclusion probability in (0, 1]. The estimand is the service's rate; `finite=True` estimates
    this very list of requests instead (each term of the variance times 1-π). Scores of 0 and 1 get Wilson's interval
    with n* = min(n, m(1-m)/SE²) trials (Kish's n where all are equal); graded ones Student's, cut at `bounds`. Where
    weights lie far apart (Kish's n below 0.7 n), and for graded means near an end that rest on few scores away from it,
    a cautious Wilson's interval is taken: what an unseen answer could change is inside (docs/statistics.md).
    Values outside `bounds` count as unbounded. `thin` marks intervals that rest on little, as wide as they may be.
    None without values; ValueError for unequal lengths, a non-finite value or π outside (0, 1].
    """
    _check_sample(values, pi)
    if not values:
        return None
    weights = [1.0 / chance for chance in pi]
    mean, se = weighted_mean(values, weights, chances=pi if finite else None)
    kish = effective_n(weights)
    if finite and min(pi) >= 1.0:
        return Estimate(estimate=mean, se=0.0, lo=mean, hi=mean, n=len(values), n_eff=kish)
    total, squares = math.fsum(weights), math.fsum(weight * weight for weight in weights)
    spread = math.fsum(weight * (value - mean) ** 2 for weight, value in zip(weights, values, strict=True))
    unseen = math.fsum(weight * (weight - 1.0) for weight in weights) / squares if finite else 1.0
    found = WeightedMean(
        mean=mean,
        se=se,
        variance=spread / total,
        n=len(values),
        kish=kish,
        heaviest=max(weights) / total,
        least=min(values),
        most=max(values),
        between=any(bounds[0] < value < bounds[1] for value in values),
        unseen=unseen,
    )
    return found.estimate(bounds=bounds, confidence=confidence)


def weighted_mean(
    values: Sequence[float], weights: Sequence[float], *, chances: Sequence[float] | None = None
) -> tuple[float, float]:
    """Hajek's mean and its standard error √Σ(w(y-m))²/Σw; with `chances` each term is multiplied by 1-π."""
    total = math.fsum(weights)
    mean = math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total
    terms = [(weight * (value - mean)) ** 2 for weight, value in zip(weights, values, strict=True)]
    if chances is not None:
        terms = [term * (1.0 - chance) for term, chance in zip(terms, chances, strict=True)]
    return mean, math.sqrt(math.fsum(terms)) / total


def _check_sample(values: Sequence[float], pi: Sequence[float]) -> None:
    if len(values) != len(pi):
        raise ValueError(f"{len(values)} values but {len(pi)} inclusion probabilities")
    if not all(0.0 < chance <= 1.0 for chance in pi):
        raise ValueError("inclusion probabilities lie in (0, 1]: a trace with pi = 0 is not covered and has no score")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("values must be finite numbers")


def _clipped(lo: float, hi: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    return (lo, hi) if bounds is None else (max(bounds[0], lo), min(bounds[1], hi))


def needed_n(rate: float, half_width: float, *, confidence: float = 0.95) -> int:
    """How many scored traces bring Wilson's interval at this expected rate down to ± `half_width` (`ragpulse plan`)."""
    if not (0.0 <= rate <= 1.0 and 0.0 < half_width < 1.0):
        raise ValueError("needed_n takes a rate in [0, 1] and a half-width in (0, 1)")
    low, high = 1, 1
    while _half_width(rate, high, confidence) > half_width:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _half_width(rate, middle, confidence) > half_width else (low, middle)
    return low


def _half_width(rate: float, n: int, confidence: float) -> float:
    lo, hi = wilson_bounds(rate, n, confidence)
    return (hi - lo) / 2.0
