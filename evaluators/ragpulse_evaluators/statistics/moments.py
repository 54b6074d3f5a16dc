"""Hajek's estimate from weighted sums, so that a store can add them up and no score has to be read.

Equal to `hajek` on the same values: both end in `WeightedMean`, and a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from ragpulse_evaluators.statistics.weighted import Estimate, WeightedMean

__all__ = ["Moments"]


@dataclass(frozen=True, slots=True)
class Moments:
    """n, Σw, Σwy, Σwy², Σw², Σw²y, Σw²y² (w = 1/π); smallest and largest y, smallest π; how many lie within 0 and 1."""

    n: int
    w: float
    wy: float
    wyy: float
    ww: float
    wwy: float
    wwyy: float
    least: float
    most: float
    rarest: float
    between: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> Moments | None:
        """Read the sums in the order of the fields; None where nothing was measured."""
        n, *sums, between = row
        return cls(*[int(n), *sums, int(between)]) if n else None

    @classmethod
    def joined(cls, parts: Iterable[Moments]) -> Moments | None:
        """Add up the sums of parts that share no unit; None for nothing."""
        rows = [_FIGURES(one) for one in parts]
        if not rows:
            return None
        n, *sums, least, most, rarest, between = zip(*rows, strict=True)
        added: list[Any] = [sum(n), *map(math.fsum, sums), min(least), max(most), min(rarest), sum(between)]
        return cls(*added)

    @property
    def mean(self) -> float:
        """Hajek's mean Σwy/Σw."""
        return self.wy / self.w

    @property
    def se(self) -> float:
        """√Σ(w(y-m))²/Σw: the estimand is the service's rate, not this finite list."""
        m = self.mean
        return math.sqrt(max(0.0, self.wwyy - 2 * m * self.wwy + m * m * self.ww)) / self.w

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0)) -> Estimate:
        """Mean and interval; `bounds` None for scores on an open scale."""
        found = WeightedMean(
            mean=self.mean,
            se=self.se,
            variance=max(0.0, self.wyy / self.w - self.mean**2),
            n=self.n,
            kish=self.w * self.w / self.ww,
            heaviest=1.0 / (self.rarest * self.w),
            least=self.least,
            most=self.most,
            between=self.between > 0,
        )
        return found.estimate(bounds=bounds)


_FIGURES = attrgetter(*(field.name for field in fields(Moments)))  # `astuple` copies deeply, 20 times as slow
