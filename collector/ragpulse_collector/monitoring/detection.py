"""Describes what a monitor can detect: a typical change, and how long the monitor needs to see it.

The time follows from the monitor's own intervals and the answers of the last day. The window slides, so that at first
it holds mostly answers from before the change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from statistics import NormalDist

from ragpulse_collector.analysis.changes.levels import Periods, is_sure, lengths, whole_days
from ragpulse_collector.analysis.query import meeting
from ragpulse_collector.analysis.selection import Window, duration_s
from ragpulse_collector.monitoring.changes import changes_by_group
from ragpulse_collector.monitoring.counts import COUNTS, counted
from ragpulse_collector.monitoring.findings import watched_by
from ragpulse_collector.monitoring.measure import LOOKS, Condition, Reading, Watched, confidence_for, parse, readings
from ragpulse_collector.monitoring.messages import plain_group, window_text
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES, RISING_IS_WORSE
from ragpulse_collector.zones import DAY_S
from ragpulse_evaluators.statistics import Interval, Moments, clopper_pearson, minus

__all__ = ["NOTHING_MEASURED", "advised_window", "detects"]

NOTHING_MEASURED = "nothing was measured in the last day, so what it can detect is unknown"
_ADVICE = "; widen it to "
_DROP = 0.10
"""The described change, unless the limit lies further away."""
_POWER = NormalDist().inv_cdf(0.9)
"""The stated time holds in nine of ten cases."""
_ENOUGH = 0.5
"""With this share of the typical answers, the last window shows how many answers users give; else the day does."""
_MIN_LOOK_S = 30.0
"""The shortest time between two looks."""
_WINDOW_GROWTH, _MAX_GROWTHS = 1.25, 40
"""The factor by which longer windows are tried, and how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typical:
    """The largest group of a monitor in the last day."""

    group: str
    groups: int
    level: float
    rate: float
    """Answers or requests per second."""
    likeness: float
    """The intraclass correlation of a user's answers in the last day."""
    window: Moments | None
    """The answers of each user in a window; None where scores leave the range from 0 to 1."""
    missing: float

    def trials(self, seconds: float, level: float, confidence: float) -> float:
        """Return how many independent yes-or-no answers of a level arrive in `seconds`; 0 for too few users."""
        if self.window is None:
            return 0.0
        trials = self.window.trials_at(min(0.99, max(0.01, level)), self.likeness, confidence) or 0.0
        return self.rate * seconds * trials / self.window.n

    def read(self, level: float, trials: float, spread: float, confidence: float) -> Interval:
        """Return the monitor's interval of a level whose estimate is off by `spread`."""
        p = min(1.0, max(0.0, level + spread))
        interval = clopper_pearson(p * trials, trials, confidence=confidence)
        lo, hi = (0.0, 1.0) if interval is None else (interval.lo or 0.0, 1.0 if interval.hi is None else interval.hi)
        return Interval(p, lo * (1.0 - self.missing), hi + (1.0 - hi) * self.missing)


def detects(store: Store, monitor: MonitorSettings, now: datetime, zone: tzinfo | None = None) -> str | None:
    """Return what a monitor of quality, shares or counts detects, and when; None for other metrics."""
    family, condition = monitor.metric.partition(":")[0], parse(monitor.condition)
    seconds, is_change, is_counted = duration_s(monitor.window), condition.sign == "change", counted(monitor.metric)
    if condition.sign == "no data":
        return f"silence is seen after {_duration_text(seconds)}"
    if is_change and is_counted:
        return _detects_counts(store, monitor, now, zone)
    is_share = is_counted and monitor.metric not in COUNTS
    if family not in MEASURES and not is_share:
        return None
    typical = _typical(store, monitor, now, condition)
    if typical is None:
        return NOTHING_MEASURED
    if typical.window is None:
        return None
    rising = condition.sign == ">" or (is_change and family in RISING_IS_WORSE)
    after = _after(typical.level, typical.level if is_change else condition.limit, rising=rising)
    unit = "requests" if is_share else "answers"
    of_largest = f" ({plain_group(typical.group)})" if typical.group != "{}" else ""
    shift = f"{'a rise' if rising else 'a drop'} from {typical.level:.2f} to {after:.2f}"
    amount = typical.rate * seconds
    shown = f"{amount:.0f}" if amount >= 1.0 else f"{amount:.1g}"  # a few a day are not 0 an hour
    text = f"with your {shown} {unit} per {window_text(monitor.window)}{of_largest} {shift}"
    seen_after = (
        _change_seen_after(store, monitor, typical, after, Periods(now, *_lengths(monitor), zone))
        if is_change
        else _limit_seen_after(monitor, condition, typical, after, seconds)
    )
    if seen_after:
        return f"{text} is seen after about {_duration_text(seen_after)}"
    return text + (" is not seen" if is_change else _unseen(monitor, condition, typical, after))


def _unseen(monitor: MonitorSettings, condition: Condition, typical: _Typical, after: float) -> str:
    """Return the text that names a sufficient window."""
    seconds = duration_s(monitor.window)
    wider = [seconds * _WINDOW_GROWTH**power for power in range(_MAX_GROWTHS)]
    index = bisect_left(wider, True, key=lambda length: _passes(monitor, condition, typical, after, length, 1.0))
    if index == len(wider):
        return " is not seen"
    seconds = wider[index]
    return f" is not seen: it takes {typical.rate * seconds:.0f} in one window{_ADVICE}{_duration_text(seconds)}"


def advised_window(text: str | None) -> str | None:
    """Return the window that a text of `detects` advises, as settings write it: `29h`; None where it does not."""
    words = (text or "").partition(_ADVICE)[2].split()
    return f"{words[0]}{words[1][0]}" if words else None


def _after(level: float, limit: float, *, rising: bool) -> float:
    """Return the level after the change: 0.1 away, or 0.05 beyond the limit."""
    if rising:
        return min(1.0, max(level + _DROP, limit + _DROP / 2))
    return max(0.0, min(level - _DROP, limit - _DROP / 2))


def _typical(store: Store, monitor: MonitorSettings, now: datetime, condition: Condition) -> _Typical | None:
    seconds = duration_s(monitor.window)
    long_s = max(float(DAY_S), seconds)
    day_readings = _read(store, monitor, Window(now - timedelta(seconds=long_s), now, 0), condition)
    group = max(day_readings, key=lambda name: day_readings[name].n or 0, default="{}")
    reading = day_readings.get(group)
    if reading is None or reading.value is None or not reading.n:
        return None
    rate, window_moments = reading.n / long_s, reading.moments
    if seconds < long_s:
        recent = _read(store, monitor, Window(now - timedelta(seconds=seconds), now, 0), condition).get(group)
        if recent and (recent.n or 0) >= _ENOUGH * rate * seconds:
            window_moments = recent.moments
    likeness = reading.moments.likeness if reading.moments else 0.0
    return _Typical(
        group=group, groups=len(day_readings), level=reading.value, rate=rate, likeness=likeness, window=window_moments,
        missing=reading.missing,
    )  # fmt: skip


def _read(store: Store, monitor: MonitorSettings, window: Window, condition: Condition) -> dict[str, Reading]:
    query = watched_by(store, monitor, window).query(window)
    found = readings(store, monitor.metric, query, condition)
    return {group: reading_at(0.95) for group, reading_at in found.items()}


def _limit_seen_after(
    monitor: MonitorSettings, condition: Condition, typical: _Typical, after: float, window_s: float
) -> float | None:
    """Return the seconds until a look finds the limit passed; None: never."""
    looks = min(LOOKS, max(1, math.floor(window_s / _MIN_LOOK_S)))
    shares = [look / looks for look in range(1, looks + 1)]
    return next(
        (window_s * share for share in shares if _passes(monitor, condition, typical, after, window_s, share)), None
    )


def _passes(
    monitor: MonitorSettings, condition: Condition, typical: _Typical, after: float, window_s: float, share: float
) -> bool:
    """Return whether the monitor fires once this share of its window lies after the change."""
    confidence = confidence_for(monitor.false_alarms_per_year / typical.groups, window_s)
    mixed = typical.level + (after - typical.level) * share
    trials = typical.trials(window_s, mixed, confidence)
    if not trials or typical.rate * window_s < monitor.min_n:
        return False
    below = condition.sign == "<"
    interval = typical.read(mixed, trials, _POWER * _spread(mixed, trials) * (1 if below else -1), confidence)
    return interval.hi < condition.limit if below else interval.lo > condition.limit


def _change_seen_after(
    store: Store, monitor: MonitorSettings, typical: _Typical, after: float, periods: Periods
) -> float | None:
    """Return the seconds until one of the comparisons is sure; None: never."""
    step, windows_s = periods.step_s, [whole_days(length) for length in lengths(periods)]
    confidence = confidence_for(
        monitor.false_alarms_per_year / (typical.groups * len(windows_s)) / 2.0, step, looks=1.0
    )
    baseline = _read(store, monitor, periods.baseline, Condition("change")).get(typical.group)
    baseline_trials = baseline.moments.trials(confidence) if baseline and baseline.moments else None
    if not baseline_trials:
        return None
    times = (_length_seen_after(long, step, typical, after, baseline_trials, confidence) for long in windows_s)
    return min((seconds for seconds in times if seconds), default=None)


def _length_seen_after(
    length_s: float, step_s: int, typical: _Typical, after: float, base: float, confidence: float
) -> float | None:
    """Return the seconds until the comparison of the last `length_s` with the same hours of the baseline is sure."""
    before_n = base * min(1.0, length_s / DAY_S)
    before = typical.read(typical.level, before_n, 0.0, confidence)

    def differs(windows: int) -> bool:
        mixed = typical.level + (after - typical.level) * windows * step_s / length_s
        trials = typical.trials(length_s, mixed, confidence)
        if not trials:
            return False
        error = _POWER * math.hypot(_spread(mixed, trials), _spread(typical.level, before_n))
        move = minus(typical.read(mixed, trials, error if after < typical.level else -error, confidence), before)
        return is_sure(move)

    windows = range(1, int(length_s // step_s) + 1)
    index = bisect_left(windows, True, key=differs)
    return float(windows[index] * step_s) if index < len(windows) else None


def _spread(level: float, trials: float) -> float:
    return math.sqrt(max(0.0, level * (1.0 - level)) / trials)


def _lengths(monitor: MonitorSettings) -> tuple[int, float]:
    return max(1, round(duration_s(monitor.window))), duration_s(monitor.baseline)


def _detects_counts(store: Store, monitor: MonitorSettings, now: datetime, zone: tzinfo | None) -> str:
    """Return the text about the range in which a count stays undecided at this time of the day."""
    periods = Periods(now, *_lengths(monitor), zone)
    confidence = confidence_for(monitor.false_alarms_per_year / 2.0, periods.step_s, looks=1.0)
    changes = changes_by_group(
        store,
        monitor.metric,
        periods,
        Watched(meeting(monitor.where), (), 0),
        strict=lambda _: confidence,
        lenient=lambda _: confidence,
    )
    change = changes.get("{}", (None, None))[0]
    if change is None or not change.before or change.after <= 0.0 or change.move.lo <= -1.0:
        return "too little is known of the same hours of earlier days to say what it can detect"
    level = change.after / change.before
    low, high = (100.0 * level / (1.0 + end) for end in (change.move.hi, change.move.lo))
    seen, fall, rise = ("are", "they fall", "rise") if monitor.metric in COUNTS else ("is", "it falls", "rises")
    return (
        f"{monitor.metric} {seen} seen to change where {fall} to {low:.0f} % or {rise} to {high:.0f} % of what is usual"
        " at this time of the day; a longer baseline sees less"
    )


def _duration_text(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{math.ceil(seconds / length)} {unit}"
    return f"{math.ceil(seconds)} seconds"
