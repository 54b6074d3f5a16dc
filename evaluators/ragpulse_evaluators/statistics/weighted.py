"""The interval of a weighted mean: one formula for scores in memory (`hajek`) and for sums added up by a store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ragpulse_evaluators.statistics.distributions import normal_quantile, student_quantile

__all__ = ["Estimate", "WeightedMean", "wilson_bounds"]

_FEW = 10.0
"""Below so many effective answers `thin` says so: a handful carries the interval, wide as it is."""
_ALIKE = 0.7
"""From this share of n on, Kish's number calls weights alike: the plain formula keeps its word there (simulated)."""
_RARE = 5.0
"""A graded mean near an end rests on its few low (or high) scores; fewer than so many are `thin`."""
_SKEWED = 20.0
"""Fewer than so many leave Student's law unmet: Wilson's interval ..."""
_NEAR = 0.25
"""... where weights differ at all, or where the mean of ten and more equal ones lies nearer to an end than this."""
_UNSEEN = 0.5
"""So many answers at the far end are taken to be still unseen."""
_HEAVY = 2.0
"""An answer that stands for more than this many of Kish's average ones is among few heavy ones."""
_STEP = 0.5
"""Half a success: the continuity correction that keeps yes-or-no answers from covering less at some rates."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its standard error and interval; iterating gives `lo, hi`.

    `n` counts the values used, `n_eff` is Kish's effective number: how many equally weighted values would be as
    informative. `se`, `lo` and `hi` are None where one value alone cannot tell them. `thin` says that too little stands
    behind the interval for it to hold as often as it claims.
    """

    estimate: float
    se: float | None
    lo: float | None
    hi: float | None
    n: int
    n_eff: float
    thin: bool = False

    def __iter__(self) -> Iterator[float | None]:
        return iter((self.lo, self.hi))

    def __getitem__(self, index: int) -> float | None:
        return (self.lo, self.hi)[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMean:
    """Hajek's mean of scores with weights w = 1/π, and what its interval depends on."""

    mean: float
    se: float
    """√Σ(w(y-m))²/Σw."""
    variance: float
    """Σw(y-m)²/Σw: the spread of the service's answers, whichever weights they carry."""
    n: int
    kish: float
    """(Σw)²/Σw²."""
    heaviest: float
    """max w/Σw: what the answer drawn with the least chance stands for."""
    least: float
    most: float
    between: bool
    """Whether any score lies strictly between the bounds."""
    unseen: float = 1.0
    """Σw²(1-π)/Σw² where a finite list is meant, 1 where the service's rate is."""

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0), confidence: float = 0.95) -> Estimate:
        """Mean and interval; `bounds` None, or scores beyond them, mean an open scale."""
        upper = 0.5 + confidence / 2.0
        few = self.kish < _FEW
        if bounds is None or self.least < bounds[0] or self.most > bounds[1]:
            return self._estimate(None if self._equal else self._student(upper), thin=few)
        low, width = bounds[0], bounds[1] - bounds[0]
        unit = self if bounds == (0.0, 1.0) else self._moved(low, width)
        lo, hi = unit._bounded(upper, confidence)
        return self._estimate((low + lo * width, low + hi * width), thin=few or unit._rests_on_fewer_than(_RARE))

    def _moved(self, low: float, width: float) -> WeightedMean:
        """The same scores on a scale from 0 to 1."""
        return replace(
            self, mean=(self.mean - low) / width, se=self.se / width, variance=self.variance / width**2,
            least=(self.least - low) / width, most=(self.most - low) / width,
        )  # fmt: skip

    def _bounded(self, upper: float, confidence: float) -> tuple[float, float]:
        """The interval of scores from 0 to 1: the plain formula where weights are alike, else the cautious one."""
        if self._alike and not self._graded:
            return wilson_bounds(self._p, self._trials(), confidence)
        if self._alike and self._follows_student:
            lo, hi = self._student(upper)
            return max(0.0, lo), min(1.0, hi)
        p, freedom, step = self._p, self._freedom(upper), 0.0 if self.between else _STEP
        below, above = (trials * freedom for trials in self._cautious_trials(p))
        lo, _ = wilson_bounds(p - step / below, below, confidence)
        _, hi = wilson_bounds(p + step / above, above, confidence)
        return lo, hi

    @property
    def _p(self) -> float:
        return min(1.0, max(0.0, self.mean))

    @property
    def _equal(self) -> bool:
        return self.least == self.most

    @property
    def _graded(self) -> bool:
        return self.between and not self._equal

    @property
    def _alike(self) -> bool:
        return self.kish >= _ALIKE * self.n

    @property
    def _same_weights(self) -> bool:
        return self.kish >= (1.0 - 1e-9) * self.n

    @property
    def _follows_student(self) -> bool:
        """Whether Student's law is near enough; for equal weights it is also where the published formula does well."""
        published = self._same_weights and (self.n < _FEW or min(self._p, 1.0 - self._p) >= _NEAR)
        return published or not self._rests_on_fewer_than(_SKEWED)

    def _rests_on_fewer_than(self, count: float) -> bool:
        """Whether a graded mean rests on fewer low (or high) scores than this."""
        if not self._graded:
            return False
        p, error = self._p, max(self.se * self.se, self.variance * self.unseen / self.kish)
        return p * (1.0 - p) * min(p, 1.0 - p) < count * error

    def _trials(self) -> float:
        """n*: yes-or-no answers as informative as these scores; Kish's number where all are equal."""
        error = self.se * self.se
        if self._equal or error <= 0.0:
            return self.kish
        return min(self._p * (1.0 - self._p) / error, self.n / self.unseen)

    def _cautious_trials(self, p: float) -> tuple[float, float]:
        """n* for the lower and the upper bound: what is unseen towards the scale's far end may be heavy.

        The variance is at least what Kish's number of such answers leaves, graded ones with a part of one more at the
        far end; and where the heaviest are few, a part of one of them at the far end adds its own (Fay and Feuer 1997).
        """
        most = p * (1.0 - p)  # what yes-or-no answers of this mean vary by; no score from 0 to 1 varies by more
        if self._equal or most <= 0.0:
            return self.kish, self.kish
        seen, heavy = self.se * self.se, max(0.0, self.heaviest**2 - (_HEAVY / self.kish) ** 2) * self.unseen

        def trials(hidden: float) -> float:
            spread = min(most, self.variance + hidden / self.kish) if self.between else self.variance
            error = max(seen, spread * self.unseen / self.kish) + hidden * heavy
            return most / error if error > 0.0 else self.kish  # squares of scores near 1e-200 are 0

        return trials(_UNSEEN * p * p), trials(_UNSEEN * (1.0 - p) ** 2)

    def _freedom(self, upper: float) -> float:
        """Korn and Graubard's (1998) factor: weights apart leave as many degrees of freedom as Kish's number says."""
        whole, left = (student_quantile(upper, _degrees(one)) for one in (float(self.n), self.kish))
        return (whole / left) ** 2

    def _student(self, upper: float) -> tuple[float, float]:
        half = student_quantile(upper, _degrees(self.kish)) * self.se
        return self.mean - half, self.mean + half

    def _estimate(self, ends: tuple[float, float] | None, *, thin: bool) -> Estimate:
        lo, hi = ends or (None, None)
        return Estimate(estimate=self.mean, se=self.se, lo=lo, hi=hi, n=self.n, n_eff=self.kish, thin=thin)


def _degrees(n: float) -> float:
    return max(1.0, round(n - 1.0, 3))


def wilson_bounds(p: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's (1927) score interval of a rate p in n trials."""
    z = normal_quantile(0.5 + confidence / 2.0)
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2.0 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1.0 - p)) / n + z * z / (4.0 * n * n)) / scale
    # At p = 0 and 1 the bound is exactly p; rounding must not move it inside.
    return (0.0 if p <= 0.0 else max(0.0, centre - half)), (1.0 if p >= 1.0 else min(1.0, centre + half))
