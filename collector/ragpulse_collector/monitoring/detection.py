"""What a monitor can detect, in words: the smallest change worth naming, and how long the monitor needs to see it.

It is worked out with the intervals of the monitor itself, for the answers of the last day: the window slides, so that
at first it holds mostly answers from before the change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist

from ragpulse_collector.analysis.selection import Window, duration_s
from ragpulse_collector.monitoring.changes import moves
from ragpulse_collector.monitoring.counts import COUNTED, DAY_S, Span, lengths
from ragpulse_collector.monitoring.measure import LOOKS, Condition, Reading, confidence_for, parse, readings
from ragpulse_collector.monitoring.words import plain_group
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_evaluators.statistics import Interval, Moments, clopper_pearson, minus

__all__ = ["detects"]

_DROP = 0.10
"""The change that the words speak of, where the limit does not lie further off."""
_POWER = NormalDist().inv_cdf(0.9)
"""The time holds nine times of ten."""
_ENOUGH = 0.5
"""The last window says how many answers users give where it has this share of the usual ones; else the day does."""
_LEAST_LOOK_S = 30.0
"""Looks are not closer than this."""
_WIDER, _WIDEST = 1.25, 40
"""By which factor a longer window is tried, and how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usual:
    """The largest group of a monitor, as it was until now."""

    group: str
    groups: int
    level: float
    rate: float
    """Answers or requests a second."""
    likeness: float
    """How alike the answers of a user are: the last day tells."""
    window: Moments | None
    """How many answers each user gives in a window; None where scores leave the range from 0 to 1."""
    missing: float

    def trials(self, seconds: float, level: float, confidence: float) -> float:
        """How many independent yes-or-no answers of that level come in so many seconds; 0 of too few users."""
        if self.window is None:
            return 0.0
        found = self.window.trials_at(min(0.99, max(0.01, level)), self.likeness, confidence) or 0.0
        return self.rate * seconds * found / self.window.n

    def read(self, level: float, trials: float, spread: float, confidence: float) -> Interval:
        """What the monitor reads of a level whose estimate is off by `spread`."""
        p = min(1.0, max(0.0, level + spread))
        found = clopper_pearson(p * trials, trials, confidence=confidence)
        lo, hi = (0.0, 1.0) if found is None else (found.lo or 0.0, 1.0 if found.hi is None else found.hi)
        return Interval(p, lo * (1.0 - self.missing), hi + (1.0 - hi) * self.missing)


def detects(store: Store, one: MonitorSettings, at: datetime) -> str | None:
    """Return what a quality monitor or one of error rates sees, and when; None where that cannot be said."""
    family, condition = one.metric.partition(":")[0], parse(one.condition)
    if condition.sign == "no data":
        return f"silence is seen after {one.window}"
    if condition.sign == "change" and one.metric in COUNTED:
        return _detects_counts(store, one, at)
    if family not in MEASURES and one.metric != "error_rate":
        return None
    usual = _usual(store, one, at, condition)
    if usual is None:
        return "nothing was measured in the last day, so what it can detect is unknown"
    if usual.window is None:
        return None
    rising = condition.sign == ">" or one.metric == "error_rate"
    after = _after(usual.level, usual.level if condition.sign == "change" else condition.limit, rising=rising)
    seconds, unit = duration_s(one.window), "requests" if one.metric == "error_rate" else "answers"
    of = f" ({plain_group(usual.group)})" if usual.group != "{}" else ""
    shift = f"{'a rise' if rising else 'a drop'} from {usual.level:.2f} to {after:.2f}"
    here = f"with your {usual.rate * seconds:.0f} {unit} per {one.window}{of} {shift}"
    if condition.sign == "change":
        found = _change_seen_after(store, one, usual, after, at)
        return f"{here} is seen after about {_words(found)}" if found else f"{here} is not seen"
    found = _limit_seen_after(one, condition, usual, after, seconds)
    return f"{here} is seen after about {_words(found)}" if found else here + _unseen(one, condition, usual, after)


def _unseen(one: MonitorSettings, condition: Condition, usual: _Usual, after: float) -> str:
    """Name the window that would do."""
    seconds = duration_s(one.window)
    wider = [seconds * _WIDER**power for power in range(_WIDEST)]
    place = bisect_left(wider, True, key=lambda length: _passes(one, condition, usual, after, length, 1.0))
    if place == len(wider):
        return " is not seen"
    return f" is not seen: it takes {usual.rate * wider[place]:.0f} in one window; widen it to {_words(wider[place])}"


def _after(level: float, limit: float, *, rising: bool) -> float:
    """The level after the change: a tenth away, or half of that beyond the limit."""
    if rising:
        return min(1.0, max(level + _DROP, limit + _DROP / 2))
    return max(0.0, min(level - _DROP, limit - _DROP / 2))


def _usual(store: Store, one: MonitorSettings, at: datetime, condition: Condition) -> _Usual | None:
    seconds = duration_s(one.window)
    long_s = max(float(DAY_S), seconds)
    day = _read(store, one, Window(at - timedelta(seconds=long_s), at, 0), condition)
    group = max(day, key=lambda name: day[name].n or 0, default="{}")
    found = day.get(group)
    if found is None or found.value is None or not found.n:
        return None
    rate, inside = found.n / long_s, found.moments
    if seconds < long_s:
        last = _read(store, one, Window(at - timedelta(seconds=seconds), at, 0), condition).get(group)
        inside = last.moments if last is not None and (last.n or 0) >= _ENOUGH * rate * seconds else inside
    likeness = found.moments.likeness if found.moments else 0.0
    return _Usual(
        group=group, groups=len(day), level=found.value, rate=rate, likeness=likeness, window=inside,
        missing=found.missing,
    )  # fmt: skip


def _read(store: Store, one: MonitorSettings, window: Window, condition: Condition) -> dict[str, Reading]:
    options = {"group_by": one.group_by, "where": one.where}
    return {group: read(0.95) for group, read in readings(store, one.metric, window, options, condition).items()}


def _limit_seen_after(
    one: MonitorSettings, condition: Condition, usual: _Usual, after: float, window_s: float
) -> float | None:
    """Seconds until a look finds the limit passed; None: none does."""
    looks = min(LOOKS, max(1, math.floor(window_s / _LEAST_LOOK_S)))
    shares = [look / looks for look in range(1, looks + 1)]
    return next((window_s * share for share in shares if _passes(one, condition, usual, after, window_s, share)), None)


def _passes(
    one: MonitorSettings, condition: Condition, usual: _Usual, after: float, window_s: float, share: float
) -> bool:
    """Whether the monitor fires once this share of its window lies after the change."""
    confidence = confidence_for(one.false_alarms_per_year / usual.groups, window_s)
    mixed = usual.level + (after - usual.level) * share
    trials = usual.trials(window_s, mixed, confidence)
    if not trials or usual.rate * window_s < one.min_n:
        return False
    below = condition.sign == "<"
    found = usual.read(mixed, trials, _POWER * _spread(mixed, trials) * (1 if below else -1), confidence)
    return found.hi < condition.limit if below else found.lo > condition.limit


def _change_seen_after(store: Store, one: MonitorSettings, usual: _Usual, after: float, at: datetime) -> float | None:
    """Seconds until one of the comparisons is sure; None: none is."""
    step = max(1, round(duration_s(one.window)))
    span = Span(at, step, duration_s(one.baseline))
    reach = lengths(span)
    confidence = confidence_for(one.false_alarms_per_year / (usual.groups * len(reach)) / 2.0, step, looks=1.0)
    known = _read(store, one, span.baseline, Condition("change")).get(usual.group)
    base = known.moments.trials(confidence) if known and known.moments else None
    if not base:
        return None
    found = (_length_seen_after(long, step, usual, after, base, confidence) for long in reach)
    return min((seconds for seconds in found if seconds), default=None)


def _length_seen_after(
    length_s: int, step_s: int, usual: _Usual, after: float, base: float, confidence: float
) -> float | None:
    """The same for the comparison of the last so many seconds with these hours of the baseline."""
    before_n = base * min(1.0, length_s / DAY_S)
    before = usual.read(usual.level, before_n, 0.0, confidence)

    def differs(windows: int) -> bool:
        mixed = usual.level + (after - usual.level) * windows * step_s / length_s
        trials = usual.trials(length_s, mixed, confidence)
        if not trials:
            return False
        off = _POWER * math.hypot(_spread(mixed, trials), _spread(usual.level, before_n))
        move = minus(usual.read(mixed, trials, off if after < usual.level else -off, confidence), before)
        return move.lo > 0.0 or move.hi < 0.0

    windows = range(1, length_s // step_s + 1)
    place = bisect_left(windows, True, key=differs)
    return float(windows[place] * step_s) if place < len(windows) else None


def _spread(level: float, trials: float) -> float:
    return math.sqrt(max(0.0, level * (1.0 - level)) / trials)


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


def _words(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{math.ceil(seconds / length)} {unit}"
    return f"{math.ceil(seconds)} seconds"
