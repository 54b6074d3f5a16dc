"""Did a metric leave its level: the last hours against the same hours of the days before, with stated false alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of
from ragpulse_collector.monitoring.counts import (
    COUNTED,
    DAY_S,
    GROWTH_OF_COUNTS,
    LEAST_DAYS,
    Judge,
    Move,
    Span,
    compared_counts,
    lengths,
    onset,
    succeeds,
)
from ragpulse_collector.monitoring.measure import (
    group_key,
    quality_reading,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.statistics import Interval, minus

__all__ = ["check_change", "moves"]

Confidence = Callable[[int], float]
"""The confidence of one comparison among so many."""


def check_change(metric: str, baseline_s: float, window_s: float) -> None:
    """Raise ValueError for what has no test with a known rate of false alarms."""
    if metric.partition(":")[0] not in MEASURES and metric not in COUNTED:
        raise ValueError(
            f"'change' is not offered for {metric}: its spread depends on the day's rhythm, so that false alarms could"
            f" not be promised; write a limit ('> 3000'), or watch {', '.join(sorted(COUNTED))} or a quality metric"
        )
    if metric in COUNTED and baseline_s < LEAST_DAYS * DAY_S:
        raise ValueError(f"'change' of {metric} compares days: write a baseline of {LEAST_DAYS}d or more")
    if baseline_s < 2 * window_s:
        raise ValueError("'change' compares the window with a baseline: write one of at least two windows")


def moves(
    store: Store, metric: str, span: Span, options: Mapping[str, Any], sharp: Confidence, easy: Confidence
) -> dict[str, tuple[Move | None, Move | None]]:
    """Per group the surest move at the sharp confidence, and at the easy one; None: nothing to compare with."""
    counted = metric in COUNTED
    compare = compared_counts if counted else _compared_qualities
    pairs = compare(store, metric, span, filter_of(options), dimensions(options))
    each = len(lengths(span, GROWTH_OF_COUNTS) if counted else lengths(span))
    looks = max(1, len(pairs)) * each
    found = {}
    for group, judge in pairs.items():
        both = (_surest(judge(confidence)) for confidence in (sharp(looks), easy(each)))
        found[group] = (next(both), next(both))
    return found


def _surest(found: Sequence[Move]) -> Move | None:
    return max(found, key=lambda one: (one.sure, one.evidence), default=None)


def _compared_qualities(
    store: Store, metric: str, span: Span, keep: Filter, groups: tuple[str, ...]
) -> dict[str, Judge]:
    """Per group the last verdicts of the newest version beside its verdicts at the same hours of the baseline."""
    family, _, evaluator = metric.partition(":")

    def read(window: Window, at: Filter = keep) -> list[Bucket]:
        return estimates(store, evaluator, window, at, groups=groups, family=family)

    pairs: dict[tuple[Any, ...], list[tuple[Bucket, Bucket]]] = {}
    ever: list[Bucket] | None = None
    for length in lengths(span):
        now, before = read(span.recent(length)), read(span.baseline, _same_hours(keep, span.at, length))
        for group in {one.group for one in now}:
            newest = current(one for one in now if one.group == group)
            assert newest is not None
            line = [one for one in before if (one.version, one.judge) == (newest.version, newest.judge)]
            earlier = next((one for one in line if one.group == group), None)
            if earlier is None and groups:
                ever = read(span.baseline) if ever is None else ever
                known = any(one.group == group for one in ever)
                earlier = None if known else current(one for one in line if succeeds(group, one.group, groups))
            pairs.setdefault(group, [])
            if earlier is not None:
                pairs[group].append((newest, earlier))
    steps = read(span.recent(span.baseline_s / 2.0, span.step_s))
    return {
        group_key(groups, group): _quality_judge(found, [one for one in steps if one.group == group], groups)
        for group, found in pairs.items()
    }


def _same_hours(keep: Filter, at: datetime, length_s: float) -> Filter:
    """Only requests at the hours of the day that the last so many seconds cover: quality may have a daily rhythm."""
    if length_s >= DAY_S:
        return keep
    back = f"(epoch(TIMESTAMP '{at}') - epoch(start_time)) % {DAY_S}"
    return replace(keep, sql=f"{keep.sql} AND {back} < {length_s}")


def _quality_judge(pairs: Sequence[tuple[Bucket, Bucket]], steps: Sequence[Bucket], groups: tuple[str, ...]) -> Judge:
    def judge(confidence: float) -> list[Move]:
        found = (_quality_move(newest, earlier, steps, groups, confidence) for newest, earlier in pairs)
        return [one for one in found if one is not None]

    return judge


def _quality_move(
    newest: Bucket, earlier: Bucket, steps: Sequence[Bucket], groups: tuple[str, ...], confidence: float
) -> Move | None:
    now, before = (_interval(one, confidence) for one in (newest, earlier))
    if now is None or before is None:
        return None
    between = minus(now, before)
    line = [one for one in steps if (one.version, one.judge) == (newest.version, newest.judge) and one.estimate]
    seen = [(one.at, one.estimate.n_eff, one.estimate.estimate - before.value) for one in line if one.estimate]
    began, away = onset([(at, n, n * off) for at, n, off in seen]) or (newest.at, now.value - before.value)
    return Move(
        group_key(groups, newest.group), before.value, before.value + away, between.lo, between.hi, began,
        None if earlier.group == newest.group else group_key(groups, earlier.group),
    )  # fmt: skip


def _interval(one: Bucket, confidence: float) -> Interval | None:
    found = quality_reading(one, confidence)
    if found.value is None or found.lo is None or found.hi is None:
        return None
    return Interval(found.value, found.lo, found.hi)
