"""The sums over answers and users that a store adds up: enough for a weighted mean and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragpulse_evaluators.statistics.weighted import ENOUGH_OF_CLASS, Estimate, WeightedMean, spread_by_class


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
    """The number of scores strictly between 0 and 1."""
    class_wwy: float = 0.0
    """Σ_h(A_h·q_h) over classes h of π, with A_h = Σw² and the mean q_h = (n_h·Σwy/Σw + 1)/(n_h + 2) ..."""
    class_wwyy: float = 0.0
    """... and Σ_h(A_h·e_h) with e_h = (n_h·Σwy²/Σw + 1)/(n_h + 2)."""
    class_n: int = 0
    """The least n_h; 0 without classes."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Moments | None:
        """Read the sums in the order of the fields; None where nothing was measured."""
        n, clusters, *sums = row
        return cls(int(n), int(clusters), *sums) if n else None

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
        """The number of independent yes-or-no answers that are as informative as these scores from 0 to 1."""
        return self._mean.trials(confidence)

    def times_needed(self, half: float) -> float:
        """How many times as many answers, of as many times more users, have an interval of ± `half`."""
        low, high = 0.0, 1.0
        while self._half(high) > half:
            low, high = high, 2.0 * high
        while high - low > 1e-3 * high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._half(middle) > half else (low, middle)
        return high

    def _half(self, times: float) -> float:
        sums = {name: times * getattr(self, name) for name in _ADDED}
        counts = {name: max(1, round(times * getattr(self, name))) for name in ("n", "clusters")}
        lo, hi = replace(self, **sums, **counts, class_n=round(times * self.class_n)).estimate()
        return 1.0 if lo is None or hi is None else (hi - lo) / 2.0

    @property
    def likeness(self) -> float:
        """The intraclass correlation of a user's answers, 0 where every answer stands alone."""
        return self._mean.likeness

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
            by_class=self._by_class,
        )

    @property
    def _by_class(self) -> float | None:
        """Σ_h(A_h·(s_h² + (q_h-m)²))/W²: the variance where answers of a class are alike and classes are not."""
        if self.class_n < ENOUGH_OF_CLASS:
            return None
        return spread_by_class(self.mean, self.class_wwy, self.class_wwyy, self.ww) / self.w**2


_ADDED = (
    "w", "wy", "wyy", "ww", "cluster_ww", "cluster_ws", "cluster_ss", "cluster_means", "cluster_own", "class_wwy",
    "class_wwyy",
)  # fmt: skip
"""The sums of `Moments` that grow with the number of answers."""
