"""Reads counts by window and group, and compares them with the same hours of earlier days."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.changes.levels import Change, Counts, Periods, count_change, lengths
from ragpulse_collector.analysis.figures import group_key
from ragpulse_collector.analysis.traffic import TOPIC_SHARE, known_traffic
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import WEIGHT
from ragpulse_collector.store.queries.traces import Filter, first_span, requests_since, with_columns
from ragpulse_evaluators.statistics import Interval

__all__ = ["COUNTS", "SHARES", "Compare", "count_comparisons", "counted", "either", "may_replace"]

_REPLACED = frozenset({"model", "prompt_name", "prompt_version", "release", "variant", "index_version"})
"""A new value of these dimensions replaces an old one and is compared with it from its first answers."""


_LONGEST_SHIFT = timedelta(hours=2)
Compare = Callable[[float], list[Change]]
"""Compares a group at a confidence."""


def may_replace(group: tuple[GroupValue, ...], other: tuple[GroupValue, ...], groups: tuple[str, ...]) -> bool:
    """Whether a group may have replaced another: they differ only in dimensions whose values are replaced."""
    differing = {name for name, a, b in zip(groups, group, other, strict=True) if a != b}
    return bool(differing) and differing <= _REPLACED


COUNTS = {"requests": "1", "errors": "coalesce(error, false)::INTEGER"}
"""SQL for what a request adds to a count."""
SHARES = ("empty_rate", "error_rate", "other_share", "question_drift", "refused_rate", "unanswered_rate")
"""Means of what is known of a request from its decision on; feedback comes later."""


def counted(metric: str) -> str | None:
    """Return SQL for what a request adds to a count or a share, 0 to 1 or NULL; None for other metrics."""
    is_share = metric in SHARES or metric.startswith(f"{TOPIC_SHARE}:")
    return known_traffic(metric).each if is_share else COUNTS.get(metric)


def count_comparisons(
    store: Store, metric: str, periods: Periods, filters: Filter, groups: tuple[str, ...]
) -> dict[str, Compare]:
    """Return per group the comparison of its last counts with the same hours of earlier days."""
    # What was counted otherwise is no level to compare with.
    first_start = requests_since(store) or first_span(store) or periods.end
    readings = [_read_counts(store, metric, periods, filters, groups, lag, first_start) for lag in periods.lags]
    counts_by_group = readings[0]
    n_known = int((periods.end - first_start).total_seconds() // periods.step_s)
    baseline_index, share = round(periods.baseline_s / 2.0 / periods.step_s), metric not in COUNTS
    quiet = {
        group
        for group, counts in counts_by_group.items()
        if not any(counts.totals[baseline_index:] if share else counts.counted[baseline_index:])
    }
    comparisons: dict[str, Compare] = {}
    for group, counts in counts_by_group.items():
        key, predecessor = group_key(groups, group), None
        if group in quiet and groups:
            known = {name: counts_by_group[name] for name in counts_by_group.keys() - quiet}
            predecessor = _predecessor(group, known, groups, baseline_index)
            if predecessor is None or not share:
                comparisons[key] = lambda confidence: []
                continue
        references = [reading[name] for reading in readings if (name := predecessor or group) in reading]
        replaced = group_key(groups, predecessor) if predecessor else None
        comparisons[key] = partial(_compare, counts, references, periods, n_known, key, replaced)
    return comparisons


def _read_counts(
    store: Store,
    metric: str,
    periods: Periods,
    filters: Filter,
    groups: tuple[str, ...],
    lag: timedelta,
    since: datetime,
) -> dict[tuple[GroupValue, ...], Counts]:
    value, is_share = counted(metric), metric not in COUNTS
    rows = store.read(
        f"SELECT floor({periods.seconds_back('start_time', lag)} / {periods.step_s})::BIGINT AS index,"
        f" sum({value} * {WEIGHT}), sum(({value} * {WEIGHT}) ** 2), sum({WEIGHT}){''.join(f', {g}' for g in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {value} IS NOT NULL AND {filters.sql}"
        " GROUP BY ALL",
        {
            "first": max(since, periods.baseline.first - _LONGEST_SHIFT),
            "last": periods.end + min(lag, timedelta()),
            **filters.parameters,
        },
    ).rows
    size = math.ceil(periods.baseline_s * 1.5 / periods.step_s) + 1
    lasted = [0.0] * size if is_share else periods.exposures(size)
    counts: dict[tuple[GroupValue, ...], Counts] = {} if groups else {(): _blank(lasted)}
    for index, hits, squares, total, *group in rows:
        if not 0 <= index < size:
            continue
        target = counts.setdefault(tuple(group), _blank(lasted))
        target.counted[index], target.squares[index] = float(hits), float(squares)
        if is_share:
            target.totals[index] = float(total)
    return counts


def _blank(lasted: list[float]) -> Counts:
    return Counts([0.0] * len(lasted), [0.0] * len(lasted), lasted.copy())


def either(changes: Iterable[Change | None]) -> Change | None:
    """Return the first comparison with the difference of whichever is right; None for none."""
    known = [change for change in changes if change]
    lows, highs = [change.move.lo for change in known], [change.move.hi for change in known]
    return replace(known[0], move=Interval(known[0].move.value, min(lows), max(highs))) if known else None


def _predecessor(
    group: tuple[GroupValue, ...],
    counts_by_group: Mapping[tuple[GroupValue, ...], Counts],
    groups: tuple[str, ...],
    first: int,
) -> tuple[GroupValue, ...] | None:
    """Return the group in force at the end of the baseline, of those that this group may have replaced."""
    candidates = [name for name in counts_by_group if may_replace(group, name, groups)]
    return min(
        candidates,
        key=lambda name: next(index for index, total in enumerate(counts_by_group[name].totals[first:]) if total),
        default=None,
    )


def _compare(
    counts: Counts, references: Sequence[Counts], periods: Periods, n_known: int, name: str, replaced: str | None,
    confidence: float,
) -> list[Change]:  # fmt: skip
    changes = (
        either(
            count_change(counts, before, periods, length // periods.step_s, n_known, confidence)
            for before in references
        )
        for length in lengths(periods)
    )
    return [replace(change, group=name, predecessor=replaced) for change in changes if change]
