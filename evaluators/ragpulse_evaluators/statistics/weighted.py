"""The interval of a weighted mean: one formula for scores in memory (`hajek`) and for sums added up by a store."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragpulse_evaluators.statistics._distributions import normal_quantile, student_quantile
from ragpulse_evaluators.statistics.estimate import Estimate

__all__ = ["WeightedMean", "wilson_bounds"]

_FEW = 10.0
"""Below so many effective answers no interval from weighted ones keeps its word: a handful carries it."""
_ALIKE = 0.7
"""From this share of n on, Kish's number calls weights alike: the plain formula keeps its word there (simulated)."""
_RARE = 5.0
"""A graded mean near an end rests on its few low (or high) scores; fewer than so many leave Student's law unmet."""


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
    least: float
    most: float
    between: bool
    """Whether any score lies strictly between the bounds."""
    unseen: float = 1.0
    """Σw²(1-π)/Σw² where a finite list is meant, 1 where the service's rate is."""

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0), confidence: float = 0.95) -> Estimate:
        """Mean and interval; `bounds` None, or scores beyond them, mean an open scale."""
        upper = 0.5 + confidence / 2.0
        equal = self.least == self.most
        if bounds is None or self.least < bounds[0] or self.most > bounds[1]:
            return self._told(None if equal else self._student(upper), rare=False)
        low, high = bounds
        width = high - low
        p = min(1.0, max(0.0, (self.mean - low) / width))
        variance = p * (1.0 - p) * width * width
        graded = self.between and not equal
        rare = graded and variance * min(p, 1.0 - p) < _RARE * self._cautious_error
        if graded and self._alike:
            ends = self._student(upper)
            return self._told((max(low, ends[0]), min(high, ends[1])), rare=rare)
        lo, hi = wilson_bounds(p, self._trials(variance) * self._freedom(upper), confidence)
        return self._told((low + lo * width, low + hi * width), rare=rare)

    @property
    def _alike(self) -> bool:
        return self.kish >= _ALIKE * self.n

    @property
    def _cautious_error(self) -> float:
        """SE², at least what Kish's number of such spread gives: heavy answers of which none failed are not sure."""
        return max(self.se * self.se, self.variance * self.unseen / self.kish)

    def _trials(self, variance: float) -> float:
        """n*: yes-or-no answers as informative as these scores; Kish's number where all are equal."""
        if self.least == self.most or self.se <= 0.0:
            return self.kish
        if self._alike:
            return min(variance / (self.se * self.se), self.n / self.unseen)
        return variance / self._cautious_error

    def _freedom(self, upper: float) -> float:
        """Korn and Graubard's (1998) factor: weights apart leave as many degrees of freedom as Kish's number says."""
        if self._alike:
            return 1.0
        whole, left = (student_quantile(upper, _degrees(one)) for one in (float(self.n), self.kish))
        return (whole / left) ** 2

    def _student(self, upper: float) -> tuple[float, float]:
        half = student_quantile(upper, _degrees(self.kish)) * self.se
        return self.mean - half, self.mean + half

    def _told(self, ends: tuple[float, float] | None, *, rare: bool) -> Estimate:
        lo, hi = ends or (None, None)
        thin = self.kish < _FEW or rare
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
