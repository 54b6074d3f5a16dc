"""Finds changes of a metric: the last hours against the same hours of earlier days, with stated false alarms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache, partial

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes.levels import (
    LEAST_DAYS,
    Change,
    Periods,
    evidence,
    is_sure,
    lengths,
    nearest,
    onset,
    whole_days,
)
from ragpulse_collector.analysis.figures import Condition, finest_estimates, group_key, quality_reading
from ragpulse_collector.analysis.quality import Bucket, current
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.monitoring.counts import (
    COUNTS,
    SHARES,
    Compare,
    count_comparisons,
    counted,
    either,
    may_replace,
)
from ragpulse_collector.monitoring.measure import Watched
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.zones import DAY_S
from ragpulse_evaluators.statistics import Interval, minus

__all__ = ["changes_by_group", "check_change", "started_near"]

Confidence = Callable[[int], float]
"""Returns the confidence of each of so many comparisons."""


def check_change(metric: str, baseline_s: float, window_s: float) -> None:
    """Raise Invalid for what has no test with a known rate of false alarms."""
    if metric.partition(":")[0] not in MEASURES and not counted(metric):
        raise Invalid(
            f"'change' is not offered for {metric}: its spread depends on the day's rhythm, so that false alarms could"
            f" not be promised; write a limit ('> 3000'), or watch {', '.join((*COUNTS, *SHARES))}, topic_share:NAME"
            " or a quality metric"
        )
    if counted(metric) and baseline_s < LEAST_DAYS * DAY_S:
        raise Invalid(f"'change' of {metric} compares days: write a baseline of {LEAST_DAYS}d or more")
    if baseline_s < 2 * window_s:
        raise Invalid("'change' compares the window with a baseline: write one of at least two windows")


def changes_by_group(
    store: Store, metric: str, periods: Periods, watched: Watched, strict: Confidence, lenient: Confidence
) -> dict[str, tuple[Change | None, Change | None]]:
    """Return per group the surest change at the strict and at the lenient confidence; None: nothing to compare with."""
    compare = count_comparisons if counted(metric) else _quality_comparisons
    comparisons = compare(store, metric, periods, watched.filters, watched.groups)
    lengths_per_group = len(lengths(periods))
    looks = max(1, len(comparisons)) * lengths_per_group
    changes = {}
    strict_confidence, lenient_confidence = strict(looks), lenient(lengths_per_group)
    for group, compare_group in comparisons.items():
        changes[group] = _surest(compare_group(strict_confidence)), _surest(compare_group(lenient_confidence))
    return changes


def _surest(changes: Sequence[Change]) -> Change | None:
    return max(changes, key=lambda change: (is_sure(change.move), evidence(change.move)), default=None)


def _quality_comparisons(
    store: Store, metric: str, periods: Periods, filters: Filter, groups: tuple[str, ...]
) -> dict[str, Compare]:
    """Return per group the comparison of the newest version's last verdicts with the same hours of the baseline."""
    family, _, evaluator = metric.partition(":")

    def read(window: Window, hours: Filter = filters) -> list[Bucket]:
        return finest_estimates(store, evaluator, window, hours, groups, family, Condition("change"))

    last, length_s = periods.baseline.last, whole_days(periods.baseline_s)
    whole = cache(lambda: read(Window(last - timedelta(seconds=length_s), last, 0)))
    pairs: dict[tuple[GroupValue, ...], list[tuple[Bucket, list[Bucket]]]] = {}
    for length in map(whole_days, lengths(periods)):
        now, before = read(periods.recent(length)), [whole()]
        if length < DAY_S:
            before = [read(periods.baseline, _same_hours(filters, periods, length, lag)) for lag in periods.lags]
        for group in {bucket.group for bucket in now}:
            newest = current(bucket for bucket in now if bucket.group == group)
            assert newest is not None
            earlier = (_earlier(newest, buckets, whole, groups) for buckets in before)
            pairs.setdefault(group, []).append((newest, [bucket for bucket in earlier if bucket]))
    steps = read(periods.recent(periods.baseline_s / 2.0, periods.step_s))
    return {
        group_key(groups, group): partial(_compare, of_group, [step for step in steps if step.group == group], groups)
        for group, of_group in pairs.items()
    }


def _earlier(
    newest: Bucket, before: Sequence[Bucket], whole: Callable[[], list[Bucket]], groups: tuple[str, ...]
) -> Bucket | None:
    """Return the former level of a group, or that of its predecessor where the group is new."""
    group, same_version = newest.group, [bucket for bucket in before if bucket.series == newest.series]
    earlier = next((bucket for bucket in same_version if bucket.group == group), None)
    if earlier or not groups or any(bucket.group == group for bucket in whole()):
        return earlier
    return current(bucket for bucket in same_version if may_replace(group, bucket.group, groups))


def _same_hours(filters: Filter, periods: Periods, length_s: float, lag: timedelta) -> Filter:
    """Keep only requests at the same hours of the day as the last `length_s`: quality may have a daily rhythm."""
    return filters & Filter(f"{periods.seconds_back('start_time', lag)} % {DAY_S} < {length_s}")


def _compare(
    pairs: Sequence[tuple[Bucket, Sequence[Bucket]]],
    steps: Sequence[Bucket],
    groups: tuple[str, ...],
    confidence: float,
) -> list[Change]:
    changes = (
        either(_quality_change(newest, one, steps, groups, confidence) for one in earlier) for newest, earlier in pairs
    )
    return [change for change in changes if change]


def _quality_change(
    newest: Bucket, earlier: Bucket, steps: Sequence[Bucket], groups: tuple[str, ...], confidence: float
) -> Change | None:
    after, before = (_interval(bucket, confidence) for bucket in (newest, earlier))
    if after is None or before is None:
        return None
    between = minus(after, before)
    same_version = [bucket for bucket in steps if bucket.series == newest.series and bucket.estimate]
    points = [
        (bucket.start, bucket.estimate.n_eff, bucket.estimate.estimate - before.value)
        for bucket in same_version
        if bucket.estimate
    ]
    start, shift = onset([(time, n, n * difference) for time, n, difference in points]) or (
        newest.start,
        after.value - before.value,
    )
    return Change(
        group_key(groups, newest.group), before.value, before.value + shift, between, start,
        None if earlier.group == newest.group else group_key(groups, earlier.group), newest.wording(earlier),
    )  # fmt: skip


def _interval(bucket: Bucket, confidence: float) -> Interval | None:
    reading = quality_reading(bucket, confidence)
    if reading.value is None or reading.lo is None or reading.hi is None:
        return None
    return Interval(reading.value, reading.lo, reading.hi)


def started_near(store: Store, metric: str, start: datetime, within_s: float, now: datetime) -> str | None:
    """Return what started nearest to a change, if that was within so many seconds of it."""
    evaluator = metric.partition(":")[2] or None
    markers = Snapshot(store, Query(window=Window(start - timedelta(days=7), now, 0), now=now)).markers(evaluator)
    started = nearest(markers, start, timedelta(seconds=within_s))
    return f"{started.text} started {started.t:%H:%M}" if started else None
