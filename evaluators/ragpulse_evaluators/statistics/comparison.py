"""Is A better than B: tests for rates, pairs and continuously watched experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ragpulse_evaluators.statistics.agreement import ranks
from ragpulse_evaluators.statistics.distributions import normal_two_sided_p
from ragpulse_evaluators.statistics.intervals import wilson
from ragpulse_evaluators.statistics.weighted import Estimate

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


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One rate minus another with its interval, test statistic and two-sided p-value."""

    difference: float
    lo: float
    hi: float
    statistic: float | None
    p: float | None


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the ends of its 95 % interval."""

    value: float
    lo: float
    hi: float

    @classmethod
    def of(cls, estimate: Estimate | None) -> Interval | None:
        """Read an estimate; None where its interval is unknown."""
        if estimate is None or estimate.lo is None or estimate.hi is None:
            return None
        return cls(estimate.estimate, estimate.lo, estimate.hi)

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


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """The state of an experiment that may be looked at any time: `p` and the interval hold under peeking."""

    difference: float
    se: float
    lo: float
    hi: float
    p: float
    likelihood_ratio: float


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
    return Difference(
        difference=difference.value,
        lo=difference.lo,
        hi=difference.hi,
        statistic=z,
        p=None if z is None else normal_two_sided_p(z),
    )


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
        difference=difference,
        se=se,
        lo=difference - half,
        hi=difference + half,
        p=min(previous_p, math.exp(-max(0.0, log_ratio))),
        likelihood_ratio=math.exp(min(log_ratio, 700.0)),
    )


def always_valid(estimate: Estimate, tau: float) -> Interval | None:
    """An interval within 0 and 1 that holds however often it is looked at (confidence sequence of `msprt`).

    None where the estimate has no interval.
    """
    if estimate.lo is None or estimate.hi is None:
        return None
    spread = estimate.se or math.sqrt(max(0.25 / (estimate.n_eff + 4.0), 1e-12))
    # Where few heavy answers may hide something, the interval is wider than the standard error says.
    spread = max(spread, (estimate.estimate - estimate.lo) / _Z, (estimate.hi - estimate.estimate) / _Z)
    sequence = msprt(estimate.estimate, spread, tau)
    return None if sequence is None else Interval(estimate.estimate, max(0.0, sequence.lo), min(1.0, sequence.hi))


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
