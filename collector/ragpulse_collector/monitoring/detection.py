"""What a monitor can detect with the traffic it has, in words that a person can decide by."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from statistics import NormalDist

from ragpulse_collector.analysis.selection import Window, duration_s
from ragpulse_collector.monitoring.changes import moves
from ragpulse_collector.monitoring.conditions import LOOKS, Reading, confidence_for, parse
from ragpulse_collector.monitoring.counts import COUNTED
from ragpulse_collector.monitoring.measure import readings
from ragpulse_collector.monitoring.moves import Span
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES

__all__ = ["answers_needed", "detects"]

_DAY = timedelta(days=1)
_DROP = 0.10
"""The change that the words speak of, where the limit does not lie further off."""
_POWER = 0.9
_Z = NormalDist().inv_cdf(0.975)


def detects(store: Store, one: MonitorSettings, at: datetime) -> str | None:
    """Return what a quality monitor or one of error rates sees, and when; None where that cannot be said."""
    family = one.metric.partition(":")[0]
    condition = parse(one.condition)
    if condition.sign == "no data":
        return f"silence is seen after {one.window}"
    if condition.sign == "change" and one.metric in COUNTED:
        return _detects_counts(store, one, at)
    if family not in MEASURES and one.metric != "error_rate":
        return None
    options = {"where": one.where}
    seen = readings(store, one.metric, Window(at - _DAY, at, 0), options, condition).get("{}")
    level = seen(0.95) if seen else None
    if level is None or level.value is None or not level.n:
        return "nothing was measured in the last day, so what it can detect is unknown"
    seconds = duration_s(one.window)
    rate = level.n / _DAY.total_seconds()
    worse = 1.0 if condition.sign == ">" or one.metric == "error_rate" else -1.0
    limit = level.value if condition.sign == "change" else condition.limit
    after = min(1.0, max(0.0, (max if worse > 0 else min)(level.value + worse * _DROP, limit + worse * _DROP / 2)))
    looks = 1.0 if condition.sign == "change" else LOOKS
    sure = confidence_for(one.false_alarms_per_year, seconds, looks=looks)
    needed = math.ceil(answers_needed(limit, after, sure) * _design_effect(level))
    unit = "requests" if one.metric == "error_rate" else "answers"
    here = f"with your {rate * seconds:.0f} {unit} per {one.window}"
    verb = "a rise" if worse > 0 else "a drop"
    shift = f"{verb} from {level.value:.2f} to {after:.2f}"
    if needed > rate * seconds and condition.sign != "change":
        return f"{here} {shift} is not seen: it takes {needed} in one window; widen it to {_words(needed / rate)}"
    return f"{here} {shift} is seen after about {_words(needed / rate)}"


def _design_effect(level: Reading) -> float:
    """How many answers are as informative as one that stands alone: those of one user are alike."""
    if level.value is None or level.lo is None or level.hi is None or not level.n or level.lo >= level.hi:
        return 1.0
    p = min(max(level.value, 0.02), 0.98)
    return max(1.0, float(level.n) * ((level.hi - level.lo) / (2.0 * _Z)) ** 2 / (p * (1.0 - p)))


def _detects_counts(store: Store, one: MonitorSettings, at: datetime) -> str:
    """The range in which a count stays undecided, around what is usual at this time of the day."""
    step = max(1, round(duration_s(one.window)))
    sure = confidence_for(one.false_alarms_per_year / 2.0, step, looks=1.0)
    found = moves(store, one.metric, Span(at, step, duration_s(one.baseline)), {"where": one.where},
                  sharp=lambda _: sure, easy=lambda _: sure)  # fmt: skip
    move = found.get("{}", (None, None))[0]
    if move is None or not move.before or move.after <= 0.0 or move.lo <= -1.0:
        return "too little is known of the same hours of earlier days to say what it can detect"
    now = move.after / move.before
    return (
        f"{one.metric} are seen to change where they fall to {now / (1.0 + move.hi):.0%} or rise to"
        f" {now / (1.0 + move.lo):.0%} of what is usual at this time of the day; a longer baseline sees less"
    )


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
