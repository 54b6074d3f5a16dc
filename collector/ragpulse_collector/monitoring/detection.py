"""What a monitor can detect with the traffic it has, in words that a person can decide by."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from statistics import NormalDist

from ragpulse_collector.analysis.selection import Window, duration_s
from ragpulse_collector.monitoring.conditions import confidence_for, parse
from ragpulse_collector.monitoring.measure import readings
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES

__all__ = ["answers_needed", "detects"]

_DAY = timedelta(days=1)
_DROP = 0.10
"""The change that the words speak of, where the limit does not lie further off."""
_POWER = 0.9


def detects(store: Store, one: MonitorSettings, at: datetime) -> str | None:
    """Return what a quality monitor or one of error rates sees, and when; None where that cannot be said."""
    family = one.metric.partition(":")[0]
    condition = parse(one.condition)
    if condition.sign == "no data":
        return f"silence is seen after {one.window}"
    if family not in MEASURES and one.metric != "error_rate":
        return None
    options = {"where": one.where}
    level = readings(store, one.metric, Window(at - _DAY, at, 0), options, condition, 0.95).get("{}")
    if level is None or level.value is None or not level.n:
        return "nothing was measured in the last day, so what it can detect is unknown"
    seconds = duration_s(one.window)
    rate = level.n / _DAY.total_seconds()
    worse = 1.0 if condition.sign == ">" or one.metric == "error_rate" else -1.0
    limit = level.value if condition.sign == "change" else condition.limit
    after = min(1.0, max(0.0, (max if worse > 0 else min)(level.value + worse * _DROP, limit + worse * _DROP / 2)))
    needed = answers_needed(limit, after, confidence_for(one.false_alarms_per_year, seconds))
    unit = "requests" if one.metric == "error_rate" else "answers"
    here = f"with your {rate * seconds:.0f} {unit} per {one.window}"
    verb = "a rise" if worse > 0 else "a drop"
    shift = f"{verb} from {level.value:.2f} to {after:.2f}"
    if needed > rate * seconds and condition.sign != "change":
        return f"{here} {shift} is not seen: it takes {needed} in one window; widen it to {_words(needed / rate)}"
    return f"{here} {shift} is seen after about {_words(needed / rate)}"


def answers_needed(limit: float, after: float, confidence: float) -> int:
    """Return how many answers it takes until the interval of a share lies beyond the limit, nine times of ten."""
    sure, power = NormalDist().inv_cdf(0.5 + confidence / 2.0), NormalDist().inv_cdf(_POWER)
    p = min(max(limit, 0.01), 0.99)
    root = sure * math.sqrt(p * (1.0 - p)) + power * math.sqrt(max(after * (1.0 - after), 0.0))
    return max(1, math.ceil((root / max(abs(after - limit), 1e-6)) ** 2))


def _words(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{math.ceil(seconds / length)} {unit}"
    return f"{math.ceil(seconds)} seconds"
