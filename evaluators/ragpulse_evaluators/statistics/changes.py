"""Changes of a series: cumulative sums while it runs, change points in hindsight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median


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
