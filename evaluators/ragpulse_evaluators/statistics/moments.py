"""Hajek's estimate from weighted sums, so that a store can add them up and no score has to be read.

Equal to `hajek` on the same values: both end in `WeightedMean`, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse_evaluators.statistics.weighted import Estimate, WeightedMean

__all__ = ["Moments"]


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over answers (w = 1/π) and over clusters (W = Σw and S = Σwy of one user's answers)."""

    n: int
    clusters: int
    w: float
    wy: float
    wyy: float
    ww: float
    """Σw²."""
    cluster_ww: float
    """ΣW²."""
    cluster_ws: float
    """ΣWS."""
    cluster_ss: float
    """ΣS²."""
    cluster_means: float
    """ΣS²/W."""
    cluster_own: float
    """Σ_g(Σw²/W)."""
    heaviest: float
    """max w."""
    largest: float
    """max W."""
    least: float
    most: float
    between: int
    """How many scores lie within 0 and 1, the ends left out."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Moments | None:
        """Read the sums in the order of the fields; None where nothing was measured."""
        n, clusters, *sums, between = row
        return cls(*[int(n), int(clusters), *sums, int(between)]) if n else None

    @property
    def mean(self) -> float:
        """Hajek's mean Σwy/Σw."""
        return self.wy / self.w

    @property
    def se(self) -> float:
        """√Σ_g(S-mW)²/Σw: the estimand is the service's rate, not this finite list."""
        m = self.mean
        return float(max(0.0, self.cluster_ss - 2 * m * self.cluster_ws + m * m * self.cluster_ww) ** 0.5 / self.w)

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0), confidence: float = 0.95) -> Estimate:
        """Mean and interval; `bounds` None for scores on an open scale."""
        return self._mean.estimate(bounds=bounds, confidence=confidence)

    def trials(self, confidence: float = 0.95) -> float | None:
        """How many independent yes-or-no answers are as informative as these scores from 0 to 1."""
        return self._mean.trials(confidence)

    @property
    def _mean(self) -> WeightedMean:
        return WeightedMean(
            mean=self.mean,
            n=self.n,
            clusters=self.clusters,
            error=self.se**2,
            variance=max(0.0, self.wyy / self.w - self.mean**2),
            between=max(0.0, self.cluster_means / self.w - self.mean**2),
            squares=self.ww / self.w**2,
            cluster_squares=self.cluster_ww / self.w**2,
            own=self.cluster_own / self.w,
            heaviest=self.heaviest / self.w,
            largest=self.largest / self.w,
            least=self.least,
            most=self.most,
            graded=self.between > 0,
        )
