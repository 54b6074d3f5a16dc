"""What makes a change of level: whether it is sure, since when, and what started then. Pure functions.

Two questions are asked with them. The overview looks back: it cuts a range into levels that nobody named before, and
shows the largest step (`analysis.changes`). A monitor looks at every window as it ends, knows its baseline, and
promises a rate of false alarms (`monitoring.changes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

from ragpulse_collector.analysis.answers import Marker
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.zones import DAY_S, find, local, offsets
from ragpulse_evaluators.statistics import Interval, clopper_pearson, normal_quantile, student_quantile

_GROWTH = 4
"""The last window is compared, the last four, the last sixteen, up to half of the baseline."""
_Z = 1.96
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_SHIFTING = (
    "Europe/London", "America/New_York", "Australia/Sydney", "Pacific/Auckland", "America/Santiago", "Africa/Cairo",
)  # fmt: skip
"""Zones whose clocks are shifted on the days that most zones do."""


def is_sure(move: Interval) -> bool:
    """Return whether the interval of a difference lies on one side of zero."""
    return move.lo > 0.0 or move.hi < 0.0


def evidence(move: Interval) -> float:
    """Return how far an interval lies from no difference, in its half width."""
    middle, half = (move.lo + move.hi) / 2.0, (move.hi - move.lo) / 2.0
    return abs(middle) / half if math.isfinite(half) and half > 0.0 else math.inf if is_sure(move) else 0.0


def standard_errors(move: Interval) -> float:
    """Return the size of a difference in standard errors; infinite without any spread."""
    error = (move.hi - move.lo) / 2.0 / _Z
    return abs(move.value) / error if error else math.inf if move.value else 0.0


def nearest(markers: Iterable[Marker], time: datetime, within: timedelta) -> Marker | None:
    """Return what began nearest to a change, if that was not further away; the earlier of two."""
    near = [marker for marker in markers if abs(marker.t - time) <= within]
    return min(near, key=lambda marker: (abs(marker.t - time), marker.t, marker.text), default=None)


@dataclass(frozen=True, slots=True)
class Change:
    """A group's level before and after."""

    group: str
    before: float
    after: float
    move: Interval
    """The difference, or the ratio of counts minus one."""
    start: datetime
    predecessor: str | None = None
    """The group that it replaced."""
    wording: str | None = None
    """That the evaluator decides another share of the answers, where it does."""


@dataclass(frozen=True, slots=True)
class Periods:
    """The end, the length of a window and of the baseline, which ends half its length before the end.

    Windows are counted back on a clock of the zone: users' days shift against UTC with their clocks.
    """

    end: datetime
    step_s: int
    baseline_s: float
    zone: tzinfo | None = None
    """The zone of the users; None where it is unknown."""

    @property
    def baseline(self) -> Window:
        """The range to compare with."""
        last = self.end - timedelta(seconds=self.baseline_s / 2.0)
        return Window(last - timedelta(seconds=self.baseline_s), last, 0)

    @property
    def offsets(self) -> list[tuple[datetime, timedelta]]:
        """How far the clock is ahead of UTC, since when."""
        return offsets(self.baseline.first, self.end, self.zone or UTC)

    def seconds_back(self, column: str, lag: timedelta = timedelta()) -> str:
        """Return SQL for the seconds from a column to the end, on the clock; with `lag` to an end that is later."""
        (_, ahead), *shifts = self.offsets
        shown = f"{ahead.total_seconds()}"
        for shift, after in shifts:
            shown = f"CASE WHEN {column} < TIMESTAMP '{shift}' THEN {shown} ELSE {after.total_seconds()} END"
            ahead = after
        return f"(epoch(TIMESTAMP '{self.end + ahead + lag}') - epoch({column}) - ({shown}))"

    @property
    def lags(self) -> tuple[timedelta, ...]:
        """The ends to count back from: where clocks shifted in an unknown zone, also an hour earlier and later."""
        first, days = self.baseline.first, range((self.end - self.baseline.first).days + 1)
        known = (zone for zone in map(find, () if self.zone else _SHIFTING) if zone)
        shifted = any(len({local(day, zone) - day for day in (first + timedelta(days=n) for n in days)}) > 1
                      for zone in known)  # fmt: skip
        return (timedelta(), -_HOUR, _HOUR) if shifted else (timedelta(),)

    def exposures(self, size: int) -> list[float]:
        """Return how much of its length each window lasted, the newest first: not 1 where the clock was shifted."""
        lasted = [1.0] * size
        for (_, before), (shift, after) in pairwise(self.offsets):
            shown = min(before, after) - self.offsets[-1][1] + (shift - self.end)
            for minute in range(abs(after - before) // _MINUTE):
                index = int(-(shown + minute * _MINUTE + _MINUTE / 2).total_seconds() // self.step_s)
                if 0 <= index < size:
                    lasted[index] += math.copysign(min(1.0, 60 / self.step_s), (before - after).total_seconds())
        return [round(share, 9) for share in lasted]

    def recent(self, length_s: float, step_s: int = 0) -> Window:
        """Return the last seconds before the end."""
        return Window(self.end - timedelta(seconds=length_s), self.end, step_s)


def lengths(periods: Periods) -> list[int]:
    """Return how many seconds back each comparison reaches."""
    seconds = [periods.step_s]
    while seconds[-1] * _GROWTH <= periods.baseline_s / 2.0:
        seconds.append(seconds[-1] * _GROWTH)
    return seconds


def whole_days(seconds: float) -> float:
    """Return a length without its part of a day: with it a rhythm of the day is a change."""
    return seconds // DAY_S * DAY_S or seconds


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


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of each window, the newest first, and the totals that they are shares of."""

    counted: list[float]
    squares: list[float]
    """Sums of squares: after an upstream sampler a request stands for several, and a distance adds a part of one."""
    totals: list[float]

    def block(self, start: int, size: int) -> tuple[float, float]:
        """Return the sums of `size` windows."""
        return math.fsum(self.counted[start : start + size]), math.fsum(self.totals[start : start + size])

    @property
    def mean_weight(self) -> float:
        """How many requests a counted request stands for: the least φ."""
        total = math.fsum(self.counted)
        return math.fsum(self.squares) / total if total else 1.0


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
    after = level * (1.0 + excess) if before else count / total
    ratio = after / level - 1.0 if level else math.inf
    return Change("", level, after, Interval(ratio, ratios[0] - 1.0, ratios[1] - 1.0), beginning)


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
    fitted = [[rate * total for _, total in row] for row in rows for rate in (_rate(row),)]
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
