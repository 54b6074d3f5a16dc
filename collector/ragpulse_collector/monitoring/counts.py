"""Compares counts with the same hours of earlier days; the spread of hours and days decides what is unusual."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.monitoring.measure import group_key
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, first_span, with_columns
from ragpulse_evaluators.statistics import clopper_pearson, normal_quantile, student_quantile

__all__ = [
    "COUNTED",
    "DAY_S",
    "LEAST_DAYS",
    "Change",
    "Compare",
    "Counts",
    "Periods",
    "count_change",
    "count_comparisons",
    "lengths",
    "may_replace",
    "onset",
]

DAY_S = 86_400
_GROWTH = 4
"""The last window is compared, the last four, the last sixteen, up to half of the baseline."""
_REPLACED = frozenset({"model", "prompt_name", "prompt_version", "release", "variant"})
"""A new value of these dimensions replaces an old one and is compared with it from its first answers."""


@dataclass(frozen=True, slots=True)
class Periods:
    """The end, the length of a window and of the baseline, which ends half its length before the end."""

    end: datetime
    step_s: int
    baseline_s: float

    @property
    def baseline(self) -> Window:
        """The range to compare with."""
        last = self.end - timedelta(seconds=self.baseline_s / 2.0)
        return Window(last - timedelta(seconds=self.baseline_s), last, 0)

    def recent(self, length_s: float, step_s: int = 0) -> Window:
        """Return the last seconds before the end."""
        return Window(self.end - timedelta(seconds=length_s), self.end, step_s)


@dataclass(frozen=True, slots=True)
class Change:
    """A group's level before and after. `lo` and `hi` bound the difference, or the ratio of counts minus one."""

    group: str
    before: float
    after: float
    lo: float
    hi: float
    start: datetime
    predecessor: str | None = None
    """The group that it replaced."""
    wording: str | None = None
    """That the evaluator decides another share of the answers, where it does."""

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the difference lies on one side."""
        return self.lo > 0.0 or self.hi < 0.0

    @property
    def evidence(self) -> float:
        """How far the interval lies from no difference, as a share of its half width."""
        middle, half = (self.lo + self.hi) / 2.0, (self.hi - self.lo) / 2.0
        return abs(middle) / half if math.isfinite(half) and half > 0.0 else math.inf if self.is_sure else 0.0


Compare = Callable[[float], list[Change]]
"""Compares a group at a confidence."""


def lengths(periods: Periods) -> list[int]:
    """Return how many seconds back each comparison reaches."""
    seconds = [periods.step_s]
    while seconds[-1] * _GROWTH <= periods.baseline_s / 2.0:
        seconds.append(seconds[-1] * _GROWTH)
    return seconds


def may_replace(group: tuple[GroupValue, ...], other: tuple[GroupValue, ...], groups: tuple[str, ...]) -> bool:
    """Whether a group may have replaced another: they differ only in dimensions whose values are replaced."""
    differing = {name for name, a, b in zip(groups, group, other, strict=True) if a != b}
    return bool(differing) and differing <= _REPLACED


def onset(points: Sequence[tuple[datetime, float, float]]) -> tuple[datetime, float] | None:
    """Return since when the level differs most surely, and by how much, from (time, expected, excess) of each point."""
    best, start, shift, weight, excess = -1.0, None, 0.0, 0.0, 0.0
    for time, expected, excess_here in reversed(points):
        weight, excess = weight + expected, excess + excess_here
        if weight > 0.0 and excess**2 / weight > best:
            best, start, shift = excess**2 / weight, time, excess / weight
    return None if start is None else (start, shift)


LEAST_DAYS = 4
"""The fewest days for comparing counts: fewer days do not show how much days differ."""
COUNTED = {
    "requests": ("1", False),
    "errors": ("coalesce(error, false)::INTEGER", False),
    "error_rate": ("coalesce(error, false)::INTEGER", True),
}
"""SQL for what a request adds to the metric, and whether the metric is a share of the requests."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of each window, the newest first, and the totals that they are shares of."""

    counted: list[float]
    squares: list[float]
    """Sums of squared weights: after an upstream sampler a request stands for several."""
    totals: list[float]

    def block(self, start: int, size: int) -> tuple[float, float]:
        """Return the sums of `size` windows."""
        return math.fsum(self.counted[start : start + size]), math.fsum(self.totals[start : start + size])

    @property
    def mean_weight(self) -> float:
        """How many requests a counted request stands for."""
        total = math.fsum(self.counted)
        return max(1.0, math.fsum(self.squares) / total) if total else 1.0


def count_comparisons(
    store: Store, metric: str, periods: Periods, filters: Filter, groups: tuple[str, ...]
) -> dict[str, Compare]:
    """Return per group the comparison of its last counts with the same hours of earlier days."""
    counts_by_group = _read_counts(store, metric, periods, filters, groups)
    first_start = first_span(store) or periods.end
    n_known = int((periods.end - first_start).total_seconds() // periods.step_s)
    baseline_index, share = round(periods.baseline_s / 2.0 / periods.step_s), COUNTED[metric][1]
    quiet = {
        group
        for group, counts in counts_by_group.items()
        if not any(counts.totals[baseline_index:] if share else counts.counted[baseline_index:])
    }
    comparisons: dict[str, Compare] = {}
    for group, counts in counts_by_group.items():
        reference, predecessor = counts, None
        if group in quiet and groups:
            predecessor = _predecessor(
                group, {name: counts_by_group[name] for name in counts_by_group.keys() - quiet}, groups, baseline_index
            )
            if predecessor is None or not share:
                comparisons[group_key(groups, group)] = lambda confidence: []
                continue
            reference = counts_by_group[predecessor]
        comparisons[group_key(groups, group)] = _count_comparison(
            counts, reference, periods, n_known, group, predecessor, groups
        )
    return comparisons


def _read_counts(
    store: Store, metric: str, periods: Periods, filters: Filter, groups: tuple[str, ...]
) -> dict[tuple[GroupValue, ...], Counts]:
    value, is_share = COUNTED[metric]
    weight = "1 / coalesce(upstream_pi, 1)"
    rows = store.read(
        f"SELECT floor((epoch($last::TIMESTAMP) - epoch(start_time)) / {periods.step_s})::BIGINT AS index,"
        f" sum({value} * {weight}), sum({value} * ({weight}) ** 2), sum({weight}){''.join(f', {g}' for g in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filters.sql} GROUP BY ALL",
        {"first": periods.baseline.first, "last": periods.end, **filters.parameters},
    ).rows
    size = math.ceil(periods.baseline_s * 1.5 / periods.step_s) + 1
    counts: dict[tuple[GroupValue, ...], Counts] = {} if groups else {(): _blank(size, is_share)}
    for index, hits, squares, total, *group in rows:
        target = counts.setdefault(tuple(group), _blank(size, is_share))
        target.counted[index], target.squares[index] = float(hits), float(squares)
        if is_share:
            target.totals[index] = float(total)
    return counts


def _blank(size: int, is_share: bool) -> Counts:
    return Counts([0.0] * size, [0.0] * size, [0.0 if is_share else 1.0] * size)


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


def _count_comparison(
    counts: Counts,
    reference: Counts,
    periods: Periods,
    n_known: int,
    group: tuple[GroupValue, ...],
    predecessor: tuple[GroupValue, ...] | None,
    groups: tuple[str, ...],
) -> Compare:
    name = group_key(groups, group)
    replaced = None if predecessor is None else group_key(groups, predecessor)

    def compare(confidence: float) -> list[Change]:
        changes = []
        for length in lengths(periods):
            change = count_change(counts, reference, periods, length // periods.step_s, n_known, confidence)
            if change is not None:
                changes.append(replace(change, group=name, predecessor=replaced))
        return changes

    return compare


def count_change(
    counts: Counts, reference: Counts, periods: Periods, size: int, n_known: int, confidence: float
) -> Change | None:
    """Compare the last `size` windows with the same hours of earlier days; None for too few days.

    The store holds `n_known` windows.

    The counts of earlier days say how far hours and days differ: the variance of a count is taken as φ times its mean.
    Divided by φ the counts are compared by the exact conditional test of two Poisson counts (Przyborowski and Wilenski
    1940).
    """
    day = max(1, round(DAY_S / periods.step_s))
    period = day * math.ceil(size / day)
    first = math.ceil(periods.baseline_s / 2.0 / periods.step_s / period) * period
    days = range(first, min(n_known, len(reference.counted) - 1) - size + 1, period)
    count, total = counts.block(0, size)
    before, days_of = (
        map(math.fsum, zip(*(reference.block(start, size) for start in days), strict=True)) if days else (0, 0)
    )
    if len(days) < LEAST_DAYS or total <= 0.0 or days_of <= 0.0:
        return None
    rows = [[reference.block(start + offset, size) for start in days] for offset in range(0, period - size + 1, size)]
    spread = _spread(rows, reference.mean_weight, before / days_of * total, confidence)
    interval = clopper_pearson(count / spread, (count + before) / spread, confidence=confidence)
    lo, hi = (
        (0.0, 1.0) if interval is None else (float(interval.lo or 0.0), 1.0 if interval.hi is None else interval.hi)
    )
    ratios = [end / (1.0 - end) * days_of / total if end < 1.0 else math.inf for end in (lo, hi)]
    beginning, excess = onset(_excesses(counts, reference, periods, size, days)) or (
        periods.recent(size * periods.step_s).first,
        0.0,
    )
    level = before / days_of
    return Change(
        "", level, level * (1.0 + excess) if before else count / total, ratios[0] - 1.0, ratios[1] - 1.0, beginning
    )


def _excesses(
    counts: Counts, reference: Counts, periods: Periods, size: int, days: Sequence[int]
) -> list[tuple[datetime, float, float]]:
    """Return time, expected count and excess of each of the last windows."""
    points = []
    for index in reversed(range(size)):
        before, total = (
            math.fsum(part) for part in zip(*(reference.block(start + index, 1) for start in days), strict=True)
        )
        expected = before / total * counts.totals[index] if total else 0.0
        time = periods.end - timedelta(seconds=(index + 1) * periods.step_s)
        points.append((time, expected, counts.counted[index] - expected))
    return points


def _spread(rows: Sequence[Sequence[tuple[float, float]]], minimum: float, mean: float, confidence: float) -> float:
    """Return φ, the variance of a count over its mean, from the counts of the same hours of several days.

    `rows` are (count, total) by day for each time of the day; `mean` is the expected count. The spread within days
    shows at every time of the day, the spread between days only once a day: it is less certain and enlarged more.
    """
    days, times = len(rows[0]), len(rows)
    fitted = [[_rate(row) * total for _, total in row] for row in rows]
    expected = [math.fsum(day) for day in zip(*fitted, strict=True)]
    if math.fsum(expected) <= 0.0:
        return minimum
    totals = [math.fsum(row[day][0] for row in rows) for day in range(days)]
    factors = [
        total / expected_total if expected_total else 1.0
        for total, expected_total in zip(totals, expected, strict=True)
    ]
    day_error = math.fsum((total - expected_total) ** 2 for total, expected_total in zip(totals, expected, strict=True))
    residual = math.fsum(
        (x - expected_total * factor) ** 2
        for row, row_expected in zip(rows, fitted, strict=True)
        for (x, _), expected_total, factor in zip(row, row_expected, factors, strict=True)
    )
    tail, expected_sum = 0.5 + confidence / 2.0, math.fsum(expected)
    # Corrected for residuals from means of the same counts: of a time of the day, and of a day.
    day_factor, degrees = day_error / expected_sum / (1.0 - 1.0 / days), (times - 1) * (days - 1)
    if not degrees:
        return max(minimum, day_factor * _variance_factor(days - 1, tail))
    hour_factor = max(minimum, residual / expected_sum * times * days / degrees)
    between = (
        max(0.0, max(day_factor, hour_factor) * _variance_factor(days - 1, tail) - hour_factor) * days / expected_sum
    )
    return hour_factor * _variance_factor(degrees, tail) + between * mean


def _variance_factor(degrees: int, tail: float) -> float:
    """Return the factor for a variance that was learned from few differences."""
    return float((student_quantile(tail, degrees) / normal_quantile(tail)) ** 2)


def _rate(row: Sequence[tuple[float, float]]) -> float:
    return math.fsum(x for x, _ in row) / (math.fsum(total for _, total in row) or 1.0)
