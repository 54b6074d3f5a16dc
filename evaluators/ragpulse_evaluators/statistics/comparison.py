"""Is A better than B: tests for rates, pairs and continuously watched experiments.

Has a series changed: cumulative sums while it runs, change points in hindsight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal

from ragpulse_evaluators.statistics.agreement import ranks
from ragpulse_evaluators.statistics.distributions import normal_two_sided_p
from ragpulse_evaluators.statistics.intervals import wilson
from ragpulse_evaluators.statistics.weighted import Estimate, Uncertain

ENOUGH_CLUSTERS = 30
"""Below this many clusters (users, sessions) in an arm an experiment has no verdict."""

_Z = 1.96
"""Half the width of a normal 95 % interval in standard errors."""

Verdict = Literal["better", "worse", "undecided", "not enough data"]


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The result of a test: statistic and two-sided p-value, from `n` informative observations."""

    __test__ = False

    statistic: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class Interval(Uncertain):
    """A value and the ends of its interval, all known."""

    value: float
    lo: float
    hi: float

    @classmethod
    def of(cls, found: Uncertain | None) -> Interval | None:
        """Read a figure; None where its interval is unknown."""
        if found is None or found.value is None or found.lo is None or found.hi is None:
            return None
        return cls(found.value, found.lo, found.hi)

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Extend equally far to both sides."""
        return cls(value, value - half, value + half)

    @classmethod
    def normal(cls, value: float, se: float) -> Interval:
        """The normal interval, 1.96 standard errors to both sides."""
        return cls.around(value, _Z * se)

    def within(self, low: float, high: float) -> Interval:
        """Cut value and ends at the bounds of the scale."""
        return Interval(*(min(high, max(low, end)) for end in (self.value, self.lo, self.hi)))

    def times(self, factor: float) -> Interval:
        """Multiply value and ends by a factor that is not negative."""
        return Interval(factor * self.value, factor * self.lo, factor * self.hi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Interval):
    """One value minus another with its interval, test statistic and two-sided p-value."""

    statistic: float | None
    p: float | None

    @property
    def difference(self) -> float:
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential(Difference):
    """The state of an experiment that may be looked at any time: `p` and the interval hold under peeking."""

    se: float
    statistic: float
    """The likelihood ratio."""
    p: float

    @property
    def likelihood_ratio(self) -> float:
        """The statistic."""
        return self.statistic


def minus(a: Interval, b: Interval) -> Interval:
    """a - b of independent estimates, with the interval that their own intervals give (Zou and Donner 2008).

    It keeps the skew of each interval. For two rates it is Newcombe's (1998).
    """
    value = a.value - b.value
    return Interval(
        value, value - math.hypot(a.value - a.lo, b.hi - b.value), value + math.hypot(a.hi - a.value, b.value - b.lo)
    )


def plus(a: Interval, b: Interval) -> Interval:
    """a + b of independent estimates, with the interval that their own intervals give (Zou and Donner 2008)."""
    return minus(a, Interval(-b.value, -b.hi, -b.lo))


def two_proportion(k1: int, n1: int, k2: int, n2: int, *, confidence: float = 0.95) -> Difference | None:
    """The rate k1/n1 minus k2/n2: pooled z test, Newcombe's (1998) interval. None where an n is 0.

    Statistic and p are None where both rates are 0 or both 1.
    """
    first = Interval.of(wilson(k1, n1, confidence=confidence))
    second = Interval.of(wilson(k2, n2, confidence=confidence))
    if first is None or second is None:
        return None
    difference = minus(first, second)
    pooled = (k1 + k2) / (n1 + n2)
    se = math.sqrt(pooled * (1.0 - pooled) * (1.0 / n1 + 1.0 / n2))
    z = difference.value / se if se > 0.0 else None
    p = None if z is None else normal_two_sided_p(z)
    return Difference(difference.value, difference.lo, difference.hi, statistic=z, p=p)


def mcnemar(b: int, c: int) -> TestResult | None:
    """Did a change flip more answers one way than the other: exact McNemar (sign) test of b against c flips.

    None without any flip.
    """
    n, fewer = b + c, min(b, c)
    if n == 0:
        return None
    log_half = n * math.log(2.0)
    tail = math.fsum(math.exp(_log_choose(n, k) - log_half) for k in range(fewer + 1))
    return TestResult(statistic=float(fewer), p=min(1.0, 2.0 * tail), n=n)


def fisher(k1: int, n1: int, k2: int, n2: int) -> TestResult:
    """Do the rates k1/n1 and k2/n2 differ: Fisher's exact test, the smaller tail doubled, for few events."""
    n, k = n1 + n2, k1 + k2
    counts = range(max(k1, k - n2), min(k, n1) + 1) if k1 * n2 > k2 * n1 else range(max(0, k - n2), k1 + 1)
    every = _log_choose(n, k)
    tail = math.fsum(math.exp(_log_choose(n1, i) + _log_choose(n2, k - i) - every) for i in counts)
    return TestResult(statistic=float(k1), p=min(1.0, 2.0 * tail), n=n)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def wilcoxon(differences: Sequence[float]) -> TestResult | None:
    """Wilcoxon's signed-rank test of paired differences (zeros left out); None where all are zero.

    Exact up to 50 differences without ties, else the normal approximation with tie correction, as scipy has it.
    """
    nonzero = [value for value in differences if value]
    n = len(nonzero)
    if n == 0:
        return None
    ranked = ranks([abs(value) for value in nonzero])
    above = math.fsum(rank for rank, value in zip(ranked, nonzero, strict=True) if value > 0)
    smaller = min(above, n * (n + 1) / 2.0 - above)
    ties = Counter(ranked).values()
    if n <= 50 and len(ties) == n and n == len(differences):
        return TestResult(statistic=smaller, p=_exact_signed_rank_p(int(smaller), n), n=n)
    variance = n * (n + 1) * (2 * n + 1) / 24.0 - sum(t**3 - t for t in ties) / 48.0
    z = (smaller - n * (n + 1) / 4.0) / math.sqrt(variance)
    return TestResult(statistic=smaller, p=normal_two_sided_p(z), n=n)


def _exact_signed_rank_p(statistic: int, n: int) -> float:
    """2·P(W <= statistic) by counting subsets of the ranks 1..n with each sum."""
    ways = [1] + [0] * statistic
    for rank in range(1, n + 1):
        for total in range(statistic, rank - 1, -1):
            ways[total] += ways[total - rank]
    return min(1.0, float(sum(ways)) / 2.0 ** (n - 1))


def msprt(
    difference: float, se: float, tau: float, *, previous_p: float = 1.0, confidence: float = 0.95
) -> Sequential | None:
    """A test of difference = 0 that may be repeated after every answer (mixture SPRT, Johari et al. 2017).

    Λ = √(s²/(s²+τ²))·exp(d²τ²/(2s²(s²+τ²))), p = min(previous p, 1/Λ); `tau` is the size of effect expected. The
    interval is the confidence sequence that excludes 0 when 1/Λ < 1 - `confidence`. None where `se` is 0.
    """
    if se <= 0.0:
        return None
    s2, t2 = se * se, tau * tau
    log_ratio = 0.5 * math.log(s2 / (s2 + t2)) + difference**2 * t2 / (2.0 * s2 * (s2 + t2))
    reach = 2.0 * math.log(1.0 / (1.0 - confidence)) + math.log((s2 + t2) / s2)
    half = math.sqrt(s2 * (s2 + t2) / t2 * reach)
    return Sequential(
        difference,
        difference - half,
        difference + half,
        se=se,
        p=min(previous_p, math.exp(-max(0.0, log_ratio))),
        statistic=math.exp(min(log_ratio, 700.0)),
    )


def verdict(arms: Sequence[Estimate | None], sequential: Sequential | None, *, alpha: float = 0.05) -> Verdict:
    """'better' or 'worse' (the first arm than the second) once p <= alpha, never below 30 clusters an arm.

    Nor where a few clusters gave nearly all answers (`thin`).
    """
    if sequential is None or any(arm is None or arm.clusters < ENOUGH_CLUSTERS or arm.thin for arm in arms):
        return "not enough data"
    if sequential.p > alpha:
        return "undecided"
    return "better" if sequential.difference > 0.0 else "worse"


def compare_arms(a: Estimate | None, b: Estimate | None, *, tau: float, previous_p: float = 1.0) -> Sequential | None:
    """Arm a minus arm b as a sequential test on clustered errors; None where an arm is empty or has no spread."""
    if a is None or b is None or a.se is None or b.se is None:
        return None
    return msprt(a.estimate - b.estimate, math.hypot(a.se, b.se), tau, previous_p=previous_p)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for having looked at many (false discovery rate), in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    adjusted, smallest = [0.0] * len(p_values), 1.0
    for larger, index in enumerate(order):
        smallest = min(smallest, p_values[index] * len(p_values) / (len(p_values) - larger))
        adjusted[index] = smallest
    return adjusted


@dataclass(frozen=True, kw_only=True)
class Cusum:
    """Cumulative sums above and below the target in standard errors, and the indices where they alarmed."""

    upper: tuple[float, ...]
    lower: tuple[float, ...]
    alarms: tuple[int, ...]

    @property
    def direction(self) -> str | None:
        """'up' or 'down' at the first alarm, None without one."""
        if not self.alarms:
            return None
        return "up" if self.upper[self.alarms[0]] >= self.lower[self.alarms[0]] else "down"


def cusum(
    values: Sequence[float],
    *,
    target: float,
    sigma: float | Sequence[float],
    slack: float = 0.5,
    threshold: float = 5.0,
) -> Cusum:
    """Two-sided tabular CUSUM (Page 1954): alarms when small shifts from `target` add up.

    `sigma` is one point's standard error, or one for each (a weighted bucket's `se`). A shift of 2·`slack` sigmas is
    what it notices best; `threshold` in sigmas sets the false alarms (`cusum_threshold`). Sums restart after an alarm.
    """
    errors = [float(sigma)] * len(values) if isinstance(sigma, int | float) else [float(error) for error in sigma]
    upper, lower, alarms = [], [], []
    high = low = 0.0
    for index, (value, error) in enumerate(zip(values, errors, strict=True)):
        z = (value - target) / error if error > 0.0 else 0.0
        high, low = max(0.0, high + z - slack), max(0.0, low - z - slack)
        upper.append(high)
        lower.append(low)
        if max(high, low) > threshold:
            alarms.append(index)
            high = low = 0.0
    return Cusum(upper=tuple(upper), lower=tuple(lower), alarms=tuple(alarms))


def cusum_run_length(threshold: float, *, slack: float = 0.5) -> float:
    """The mean number of points without any change until a false alarm (Siegmund 1985, two-sided)."""
    reach = 2.0 * slack * (threshold + 1.166)
    return (math.exp(reach) - reach - 1.0) / (2.0 * slack * slack) / 2.0


def cusum_threshold(run_length: float, *, slack: float = 0.5) -> float:
    """The threshold whose false alarms are `run_length` points apart on average: a false-alarm budget."""
    low, high = 0.0, 1.0
    while cusum_run_length(high, slack=slack) < run_length:
        high *= 2.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        low, high = (middle, high) if cusum_run_length(middle, slack=slack) < run_length else (low, middle)
    return high


def change_points(
    values: Sequence[float], weights: Sequence[float] | None = None, *, penalty: float | None = None
) -> list[int]:
    """The indices at which a new level begins: PELT with squared error (Killick et al. 2012).

    `weights` is each point's effective n. `penalty` is what one more change costs; default 3·ln(n)·σ̂² with σ̂ from
    successive differences, which a level shift hardly moves. An empty list where nothing changed.
    """
    n = len(values)
    weights = [1.0] * n if weights is None else list(weights)
    if len(weights) != n or any(weight <= 0.0 for weight in weights):
        raise ValueError("change_points needs one positive weight per value")
    if n < 2:
        return []
    # Distances from the mean keep the sums of squares from cancelling on a large level.
    centre = math.fsum(values) / n
    shifted = [value - centre for value in values]
    penalty = 3.0 * math.log(n) * _noise(shifted, weights) if penalty is None else penalty
    return _pelt(shifted, weights, penalty)


def _noise(values: Sequence[float], weights: Sequence[float]) -> float:
    """σ² of one value of weight 1, robustly from differences of neighbours."""
    steps = [
        (second - first) / math.sqrt(1.0 / w1 + 1.0 / w2)
        for (first, second), (w1, w2) in zip(pairwise(values), pairwise(weights), strict=True)
    ]
    robust = 1.4826 * median(abs(step) for step in steps)
    # More than half of the steps 0: a stepped series, whose few steps are all the spread there is.
    return robust**2 if robust > 0.0 else math.fsum(step * step for step in steps) / len(steps)


def _pelt(values: Sequence[float], weights: Sequence[float], penalty: float) -> list[int]:
    sums = [0.0, *accumulate(w * v for w, v in zip(weights, values, strict=True))]
    squares = [0.0, *accumulate(w * v * v for w, v in zip(weights, values, strict=True))]
    totals = [0.0, *accumulate(weights)]

    def cost(start: int, stop: int) -> float:
        return squares[stop] - squares[start] - (sums[stop] - sums[start]) ** 2 / (totals[stop] - totals[start])

    best, previous, candidates = [-penalty], [0], [0]
    tiny = 1e-12 * (1.0 + squares[-1])
    for stop in range(1, len(values) + 1):
        options = [(best[start] + cost(start, stop) + penalty, start) for start in candidates]
        value, start = min(options)
        best.append(value)
        previous.append(start)
        candidates = [s for total, s in options if total - penalty <= value + tiny] + [stop]
    changes, start = [], previous[-1]
    while start > 0:
        changes.append(start)
        start = previous[start]
    return changes[::-1]
