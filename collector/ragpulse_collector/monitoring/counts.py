"""Counts against the same hours of earlier days: how far hours and days differ says what is unusual."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.monitoring.measure import group_key
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, first_span, with_columns
from ragpulse_evaluators.statistics import clopper_pearson, normal_quantile, student_quantile

__all__ = [
    "COUNTED",
    "DAY_S",
    "GROWTH_OF_COUNTS",
    "LEAST_DAYS",
    "Counts",
    "Judge",
    "Move",
    "Span",
    "compared_counts",
    "count_move",
    "lengths",
    "onset",
    "succeeds",
]

DAY_S = 86_400
_GROWTH = 4
"""The last window is compared, the last four, the last sixteen, up to half of the baseline ..."""
GROWTH_OF_COUNTS = 2
"""... and of counts the last two, four, eight: all are read at once."""
_SUCCEEDING = frozenset({"model", "prompt_name", "prompt_version", "release", "variant"})
"""A new value of one of these takes the place of an old one, so it is compared with that from its first answers."""


@dataclass(frozen=True, slots=True)
class Span:
    """When to look, and how long a window and the baseline are; the baseline ends half its length before."""

    at: datetime
    step_s: int
    baseline_s: float

    @property
    def baseline(self) -> Window:
        """The range that says what is usual."""
        last = self.at - timedelta(seconds=self.baseline_s / 2.0)
        return Window(last - timedelta(seconds=self.baseline_s), last, 0)

    def recent(self, length_s: float, step_s: int = 0) -> Window:
        """The last so many seconds."""
        return Window(self.at - timedelta(seconds=length_s), self.at, step_s)


@dataclass(frozen=True, slots=True)
class Move:
    """A group's level now and before. `lo` and `hi` bound the difference, or the ratio of counts less one."""

    group: str
    before: float
    after: float
    lo: float
    hi: float
    began: datetime
    against: str | None = None
    """The group that it took the place of."""

    @property
    def sure(self) -> bool:
        """Whether the interval of the difference lies on one side."""
        return self.lo > 0.0 or self.hi < 0.0

    @property
    def evidence(self) -> float:
        """How far the interval lies from no difference, as a share of its half width."""
        middle, half = (self.lo + self.hi) / 2.0, (self.hi - self.lo) / 2.0
        return abs(middle) / half if math.isfinite(half) and half > 0.0 else math.inf if self.sure else 0.0


Judge = Callable[[float], list[Move]]
"""The comparisons of a group at a confidence."""


def lengths(span: Span, growth: int = _GROWTH) -> list[int]:
    """How many seconds back each comparison reaches."""
    found = [span.step_s]
    while found[-1] * growth <= span.baseline_s / 2.0:
        found.append(found[-1] * _GROWTH)
    return found


def succeeds(group: tuple[Any, ...], other: tuple[Any, ...], groups: tuple[str, ...]) -> bool:
    """Whether a group may have taken another's place: they differ in what succeeds, and in nothing else."""
    differing = {name for name, a, b in zip(groups, group, other, strict=True) if a != b}
    return bool(differing) and differing <= _SUCCEEDING


def onset(seen: Sequence[tuple[datetime, float, float]]) -> tuple[datetime, float] | None:
    """Since when the level differs most surely, and by how much; from weights and what each point adds to them."""
    best, since, away, weight, excess = -1.0, None, 0.0, 0.0, 0.0
    for at, usual, more in reversed(seen):
        weight, excess = weight + usual, excess + more
        if weight > 0.0 and excess**2 / weight > best:
            best, since, away = excess**2 / weight, at, excess / weight
    return None if since is None else (since, away)


LEAST_DAYS = 4
"""Counts are compared with so many days at least: fewer do not show how much one day differs from another."""
COUNTED = {
    "requests": ("1", False),
    "errors": ("coalesce(error, false)::INTEGER", False),
    "error_rate": ("coalesce(error, false)::INTEGER", True),
}
"""What a request adds to a metric that counts, and whether it is a share of the requests."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in each window, the newest first, and out of how much."""

    found: list[float]
    squares: list[float]
    """Of the weights: requests that an upstream sampler thinned out stand for several."""
    of: list[float]

    def block(self, start: int, size: int) -> tuple[float, float]:
        """The sums of some windows."""
        return math.fsum(self.found[start : start + size]), math.fsum(self.of[start : start + size])

    @property
    def heaviness(self) -> float:
        """How many requests one counted request stands for."""
        whole = math.fsum(self.found)
        return max(1.0, math.fsum(self.squares) / whole) if whole else 1.0


def compared_counts(store: Store, metric: str, span: Span, keep: Filter, groups: tuple[str, ...]) -> dict[str, Judge]:
    """Per group the last counts beside those of the same hours of earlier days."""
    counted = _counted(store, metric, span, keep, groups)
    begun = first_span(store) or span.at
    known = int((span.at - begun).total_seconds() // span.step_s)
    first, share = round(span.baseline_s / 2.0 / span.step_s), COUNTED[metric][1]
    quiet = {group for group, one in counted.items() if not any(one.of[first:] if share else one.found[first:])}
    found: dict[str, Judge] = {}
    for group, one in counted.items():
        usual, other = one, None
        if group in quiet and groups:
            other = _predecessor(group, {name: counted[name] for name in counted.keys() - quiet}, groups, first)
            if other is None or not share:
                found[group_key(groups, group)] = lambda confidence: []
                continue
            usual = counted[other]
        found[group_key(groups, group)] = _count_judge(one, usual, span, known, group, other, groups)
    return found


def _counted(
    store: Store, metric: str, span: Span, keep: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], Counts]:
    one, share = COUNTED[metric]
    weight = "1 / coalesce(upstream_pi, 1)"
    rows = store.read(
        f"SELECT floor((epoch($last::TIMESTAMP) - epoch(start_time)) / {span.step_s})::BIGINT AS place,"
        f" sum({one} * {weight}), sum({one} * ({weight}) ** 2), sum({weight}){''.join(f', {g}' for g in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {"first": span.baseline.first, "last": span.at, **keep.parameters},
    ).rows
    size = math.ceil(span.baseline_s * 1.5 / span.step_s) + 1
    found: dict[tuple[Any, ...], Counts] = {} if groups else {(): _blank(size, share)}
    for place, hits, squares, of, *group in rows:
        into = found.setdefault(tuple(group), _blank(size, share))
        into.found[place], into.squares[place] = float(hits), float(squares)
        if share:
            into.of[place] = float(of)
    return found


def _blank(size: int, share: bool) -> Counts:
    return Counts([0.0] * size, [0.0] * size, [0.0 if share else 1.0] * size)


def _predecessor(
    group: tuple[Any, ...], others: Mapping[tuple[Any, ...], Counts], groups: tuple[str, ...], first: int
) -> tuple[Any, ...] | None:
    """The group that was in force at the end of the baseline, of those that this one may have taken the place of."""
    known = [name for name in others if succeeds(group, name, groups)]
    return min(known, key=lambda name: next(n for n, of in enumerate(others[name].of[first:]) if of), default=None)


def _count_judge(
    one: Counts,
    usual: Counts,
    span: Span,
    known: int,
    group: tuple[Any, ...],
    other: tuple[Any, ...] | None,
    groups: tuple[str, ...],
) -> Judge:
    name, against = group_key(groups, group), None if other is None else group_key(groups, other)

    def judge(confidence: float) -> list[Move]:
        found = []
        for length in lengths(span, GROWTH_OF_COUNTS):
            seen = count_move(one, usual, span, length // span.step_s, known, confidence)
            if seen is not None:
                found.append(replace(seen, group=name, against=against))
        return found

    return judge


def count_move(one: Counts, usual: Counts, span: Span, size: int, known: int, confidence: float) -> Move | None:
    """The last `size` windows against the same hours of the earlier days that are `known`; None for too few days.

    The counts of earlier days say how far hours and days differ: the variance of a count is taken as φ times its mean.
    Divided by φ the counts are compared by the exact conditional test of two Poisson counts (Przyborowski and Wilenski
    1940).
    """
    day = max(1, round(DAY_S / span.step_s))
    period = day * math.ceil(size / day)
    first = math.ceil(span.baseline_s / 2.0 / span.step_s / period) * period
    days = range(first, min(known, len(usual.found) - 1) - size + 1, period)
    now, of = one.block(0, size)
    before, days_of = (
        map(math.fsum, zip(*(usual.block(start, size) for start in days), strict=True)) if days else (0, 0)
    )
    if len(days) < LEAST_DAYS or of <= 0.0 or days_of <= 0.0:
        return None
    rows = [[usual.block(start + place, size) for start in days] for place in range(0, period - size + 1, size)]
    spread = _spread(rows, usual.heaviness, before / days_of * of, confidence)
    found = clopper_pearson(now / spread, (now + before) / spread, confidence=confidence)
    lo, hi = (0.0, 1.0) if found is None else (float(found.lo or 0.0), 1.0 if found.hi is None else found.hi)
    ratios = [end / (1.0 - end) * days_of / of if end < 1.0 else math.inf for end in (lo, hi)]
    began, more = onset(_beyond_usual(one, usual, span, size, days)) or (span.recent(size * span.step_s).first, 0.0)
    level = before / days_of
    return Move("", level, level * (1.0 + more) if before else now / of, ratios[0] - 1.0, ratios[1] - 1.0, began)


def _beyond_usual(
    one: Counts, usual: Counts, span: Span, size: int, days: Sequence[int]
) -> list[tuple[datetime, float, float]]:
    """Each of the last windows with what was to be expected, and what was counted beyond that."""
    found = []
    for place in reversed(range(size)):
        before, of = (math.fsum(part) for part in zip(*(usual.block(start + place, 1) for start in days), strict=True))
        expected = before / of * one.of[place] if of else 0.0
        at = span.at - timedelta(seconds=(place + 1) * span.step_s)
        found.append((at, expected, one.found[place] - expected))
    return found


def _spread(rows: Sequence[Sequence[tuple[float, float]]], least: float, mean: float, confidence: float) -> float:
    """φ: what divides a count so that it varies like Poisson's, from the counts of the same hours of several days.

    `rows` are (counted, of) by day for each time of the day; `mean` is what is expected of the count in question. What
    varies within days shows at every time of the day; that whole days differ shows once a day, so that much more has
    to be allowed for not knowing it.
    """
    days, times = len(rows[0]), len(rows)
    usual = [[_rate(row) * of for _, of in row] for row in rows]
    expected = [math.fsum(day) for day in zip(*usual, strict=True)]
    if math.fsum(expected) <= 0.0:
        return least
    totals = [math.fsum(row[day][0] for row in rows) for day in range(days)]
    factors = [total / due if due else 1.0 for total, due in zip(totals, expected, strict=True)]
    away = math.fsum((total - due) ** 2 for total, due in zip(totals, expected, strict=True))
    left = math.fsum(
        (x - due * factor) ** 2
        for row, dues in zip(rows, usual, strict=True)
        for (x, _), due, factor in zip(row, dues, factors, strict=True)
    )
    tail, whole = 0.5 + confidence / 2.0, math.fsum(expected)
    # Residuals are taken from means that they are part of: of a time of the day, and of a day.
    of_days, free = away / whole / (1.0 - 1.0 / days), (times - 1) * (days - 1)
    if not free:
        return max(least, of_days * _unsure(days - 1, tail))
    of_hours = max(least, left / whole * times * days / free)
    between = max(0.0, max(of_days, of_hours) * _unsure(days - 1, tail) - of_hours) * days / whole
    return of_hours * _unsure(free, tail) + between * mean


def _unsure(known: int, tail: float) -> float:
    """By how much a variance is enlarged that was learned from so few differences."""
    return float((student_quantile(tail, known) / normal_quantile(tail)) ** 2)


def _rate(row: Sequence[tuple[float, float]]) -> float:
    return math.fsum(x for x, _ in row) / (math.fsum(of for _, of in row) or 1.0)
