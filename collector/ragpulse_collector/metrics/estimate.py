"""Hajek's estimate from sums that the store adds up, so that no score travels to be averaged.

Equal to `ragpulse_evaluators.statistics.hajek` on the same values (a test holds the two together).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse_evaluators.statistics import Estimate, wilson
from ragpulse_evaluators.statistics._distributions import student_quantile

__all__ = ["MOMENTS", "Moments", "point"]

MOMENTS = (
    "count({y}), sum(1 / pi) FILTER ({y} IS NOT NULL), sum({y} / pi), sum(1 / pi / pi) FILTER ({y} IS NOT NULL),"
    " sum({y} / pi / pi), sum({y} * {y} / pi / pi), min({y}), max({y}), count(*) FILTER ({y} > 0 AND {y} < 1)"
)
"""The nine sums of one group, for a column `pi` and a value `{y}` that is NULL where there is none."""


@dataclass(frozen=True, slots=True)
class Moments:
    """n, Σ1/π, Σy/π, Σ1/π², Σy/π², Σy²/π², smallest and largest y, and how many lie strictly between 0 and 1."""

    n: int
    w: float
    wy: float
    ww: float
    wwy: float
    wwyy: float
    least: float
    most: float
    between: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> Moments | None:
        """Read the nine columns of MOMENTS; None where nothing was measured."""
        return cls(*row) if row[0] else None

    @property
    def mean(self) -> float:
        """Hajek's mean Σ(y/π)/Σ(1/π)."""
        return self.wy / self.w

    @property
    def se(self) -> float:
        """√Σ((y-m)/π)² / Σ(1/π): the estimand is the service's rate, not this finite list."""
        m = self.mean
        return math.sqrt(max(0.0, self.wwyy - 2 * m * self.wwy + m * m * self.ww)) / self.w

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0)) -> Estimate:
        """Mean and interval; `bounds` None for scores on an open scale."""
        mean, se, kish = self.mean, self.se, self.w * self.w / self.ww
        lo, hi = self._interval(mean, se, kish, bounds)
        return Estimate(estimate=mean, se=se, lo=lo, hi=hi, n=self.n, n_eff=kish)

    def _interval(
        self, mean: float, se: float, kish: float, bounds: tuple[float, float] | None
    ) -> tuple[float | None, float | None]:
        equal = self.least == self.most
        inside = bounds is not None and bounds[0] <= self.least and self.most <= bounds[1]
        if not inside and equal:
            return None, None
        if not inside or (self.between and not equal):
            half = student_quantile(0.975, max(1.0, round(kish - 1.0, 3))) * se
            lo, hi = mean - half, mean + half
            return (max(0.0, lo), min(1.0, hi)) if inside else (lo, hi)
        p = min(1.0, max(0.0, mean))
        trials = kish if equal or se <= 0.0 else min(float(self.n), p * (1.0 - p) / (se * se))
        found = wilson(p * trials, trials)
        return (None, None) if found is None else (found.lo, found.hi)


def point(estimate: Estimate | None) -> dict[str, Any]:
    """The figures of an estimate as the API shows them; all null where nothing was measured."""
    if estimate is None:
        return {"value": None, "lo": None, "hi": None, "n": 0, "n_eff": 0.0}
    return {
        "value": estimate.estimate,
        "lo": estimate.lo,
        "hi": estimate.hi,
        "n": estimate.n,
        "n_eff": round(estimate.n_eff, 9),
    }
