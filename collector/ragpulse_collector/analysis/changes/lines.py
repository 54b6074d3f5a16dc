"""The cells in which changes are looked for: of each group, and of a measure of quality each version and judge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from ragpulse_collector.analysis.answers import GroupValue, Marker
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes.usual import GROWTH, LENGTHS, Grid, Kind, Line, Move, Sums
from ragpulse_collector.analysis.figures import group_key
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.traffic import TOPIC_SHARE, by_user, known_traffic
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import KEPT
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, first_span, requests_since, with_columns
from ragpulse_collector.zones import DAY_S, aligned, find, local, utc
from ragpulse_evaluators.statistics import Moments

__all__ = ["Clock", "Lines", "Moved", "Rhythm", "check_change", "read_lines"]

COUNTS = {"requests": "1", "errors": "coalesce(error, false)::INTEGER"}
"""SQL for what a request adds to a count."""
SHARES = ("empty_rate", "error_rate", "other_share", "question_drift", "refused_rate", "unanswered_rate")
"""Means of what is known of a request from its decision on; feedback comes later."""
_REPLACED = frozenset({"model", "prompt_name", "prompt_version", "release", "variant", "index_version"})
"""A new value of these dimensions replaces an old one and is compared with it from its first answers."""
_LEAST_DAYS = 4
_HOUR_S = 3_600
_MOST_CELLS = 168
"""Of a window."""
_SHIFTING = (
    "Europe/London", "America/New_York", "Australia/Sydney", "Pacific/Auckland", "America/Santiago", "Africa/Cairo",
)  # fmt: skip
"""Zones whose clocks are shifted on the days that most zones do."""


def check_change(metric: str, baseline_s: float, window_s: float) -> None:
    """Raise Invalid for what has no test of change."""
    is_counted = _added(metric) is not None
    if metric.partition(":")[0] not in MEASURES and not is_counted:
        raise Invalid(
            f"'change' is not offered for {metric}: its spread depends on the day's rhythm, so that false alarms could"
            f" not be promised; write a limit ('> 3000'), or watch {', '.join((*COUNTS, *SHARES))}, topic_share:NAME"
            " or a quality metric"
        )
    if is_counted and baseline_s < _LEAST_DAYS * DAY_S:
        raise Invalid(f"'change' of {metric} compares days: write a baseline of {_LEAST_DAYS}d or more")
    if baseline_s < 2 * window_s:
        raise Invalid("'change' compares the window with a baseline: write one of at least two windows")


def _added(metric: str) -> str | None:
    """Return SQL for what a request adds to a count or a share, 0 to 1 or NULL; None for other metrics."""
    is_share = metric in SHARES or metric.startswith(f"{TOPIC_SHARE}:")
    return known_traffic(metric).each if is_share else COUNTS.get(metric)


@dataclass(frozen=True)
class Rhythm:
    """The end of the newest window, the lengths of a window and of what it is compared with, and the users' clock."""

    end: datetime
    window_s: int
    baseline_s: float
    zone: tzinfo | None = None
    """None where the users' zone is unknown."""
    finest_s: int = 0
    """Cells of this length, of which the window has a whole number; 0: see `cell_s`."""

    @cached_property
    def is_shifted(self) -> bool:
        """Whether clocks were shifted lately, in most zones, and nobody says whether the users' were."""
        days = range(int(1.5 * self.baseline_s // DAY_S) + 2)
        zones = [zone for zone in map(find, () if self.zone else _SHIFTING) if zone]
        times = [self.end - timedelta(days=day) for day in days]
        return any(len({local(time, zone) - time for time in times}) > 1 for zone in zones)

    @cached_property
    def cell_s(self) -> int:
        """The longest cells that windows and days, or a shift of an hour, are multiples of."""
        if self.finest_s:
            return self.finest_s
        cell = math.gcd(self.window_s, _HOUR_S if self.is_shifted else DAY_S)
        return cell if self.window_s <= _MOST_CELLS * cell else self.window_s

    @cached_property
    def grid(self) -> Grid:
        """Its lengths in cells."""
        cell = self.cell_s
        day, hour = (length // cell if length % cell == 0 else 0 for length in (DAY_S, _HOUR_S))
        return Grid(self.window_s // cell, int(self.baseline_s // cell), day, hour if self.is_shifted else 0)

    def start(self, cells: int) -> datetime:
        """Return when the cell began that many cells ago, on the users' clock."""
        zone = self.zone or UTC
        return utc(local(self.end, zone) - timedelta(seconds=cells * self.cell_s), zone)

    def reach(self, looks: int) -> Window:
        """Return the range that is needed to look at so many windows, cut into cells."""
        longest = min(self.window_s * GROWTH ** (LENGTHS - 1), self.baseline_s / 2.0)
        back = self.baseline_s + longest + self.window_s * looks + 2 * DAY_S
        return Window(self.end - timedelta(seconds=back), self.end, self.cell_s, self.zone or UTC)


@dataclass(frozen=True, slots=True)
class Moved:
    """The surest move of a group, and the group that it replaced."""

    move: Move
    line: Line
    past: Line
    replaced: str | None


class Lines:
    """The lines of each group; of a measure of quality one for each version and judge."""

    def __init__(self, lines: Mapping[tuple[GroupValue, ...], Mapping[object, Line]], groups: tuple[str, ...]) -> None:
        self._lines, self._groups = lines, groups
        self.keys = {group_key(groups, group): group for group in lines}

    def is_silent(self, key: str, at: int) -> bool:
        """Return whether a group has no answers in any window that is compared."""
        lines = self._lines[self.keys[key]].values()
        return all(line.kind != "total" and line.latest(at) >= at + line.sizes[-1] for line in lines)

    def surest(self, key: str, at: int, tail: float, *, first: bool = False) -> Moved | None:
        """Return the surest move of the windows that ended `at` cells ago, or of the `first`; None without a past."""
        group = self.keys.get(key, ())
        if group not in self._lines:
            return None
        series, line = min(self._lines[group].items(), key=lambda one: (one[1].latest(at), one[1].known))
        former = self._former(group, series, line, at)
        if former is None:
            return None
        name, past = former
        moves = (move for move in line.moves(at, tail, past) if not first or move.size == line.grid.window)
        best = next(moves, None) if first else min(moves, key=lambda move: move.chance, default=None)
        if best is None:
            return None
        return Moved(best, line, past, None if name == group else group_key(self._groups, name))

    def _former(
        self, group: tuple[GroupValue, ...], series: object, line: Line, at: int
    ) -> tuple[tuple[GroupValue, ...], Line] | None:
        """Return the group itself, or the one that it replaced: the last in force before it began."""
        if not self._groups or 2 * (line.known - at) > line.grid.baseline:
            return group, line
        if line.kind == "total":
            return None
        candidates = [
            (lines[series].latest(line.known), str(name), name)
            for name, lines in self._lines.items()
            if series in lines and self._may_replace(group, name)
        ]
        latest, _, name = min(candidates, default=(math.inf, "", group))
        return (name, self._lines[name][series]) if latest < math.inf else (group, line)

    def _may_replace(self, group: tuple[GroupValue, ...], other: tuple[GroupValue, ...]) -> bool:
        """Whether a group may have replaced another: they differ only in dimensions whose values are replaced."""
        differing = {name for name, a, b in zip(self._groups, group, other, strict=True) if a != b}
        return bool(differing) and differing <= _REPLACED


def read_lines(
    store: Store, metric: str, rhythm: Rhythm, filters: Filter, groups: tuple[str, ...], looks: int = 1,
    *, added: str | None = None,
) -> Lines:  # fmt: skip
    """Read the cells of a metric, from one query, for so many looks back; `added` is SQL for what a request adds."""
    reach, is_score, added = rhythm.reach(looks), added is not None, added or _added(metric)
    if added is None:
        family, _, evaluator = metric.partition(":")
        buckets = estimates(store, evaluator, reach, filters, groups=groups, family=family)
        kind: Kind = "share" if all(bucket.bounded for bucket in buckets) else "score"
        return Lines(_of_quality(buckets, kind, reach, rhythm.grid), groups)
    # What was counted otherwise is no level to compare with.
    since = max(reach.first, min(requests_since(store) or first_span(store) or reach.last, reach.last))
    reach = replace(reach, first=aligned(since + timedelta(seconds=rhythm.cell_s - 1e-6), rhythm.cell_s, reach.zone))
    source = (
        f"SELECT *, {reach.bucket('start_time')} AS t, {KEPT} AS pi, {added} AS y"
        f" FROM {with_columns('traces', groups, filters)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filters.on_columns} AND y IS NOT NULL"
    ) if reach.first < reach.last else ""  # fmt: skip
    found = by_user(store, source, ("t", *groups), {**reach.parameters, **filters.parameters}) if source else {}
    cells: dict[tuple[GroupValue, ...], dict[int, Sums]] = defaultdict(dict)
    clock = Clock(reach)
    for (start, *group), mean in found.items():
        if mean.moments is not None and isinstance(start, datetime):
            clock.add(cells[tuple(group)], start, mean.moments)
    kind = "score" if is_score else "total" if metric in COUNTS else "share"
    lasts = clock.lasts() if kind == "total" else []
    if not groups:
        cells.setdefault((), {})
    lines: dict[tuple[GroupValue, ...], dict[object, Line]] = {}
    for name, of_group in cells.items():
        known = len(lasts) if not groups and kind == "total" else max(of_group, default=-1) + 1
        sums = [of_group.get(index, Sums()) for index in range(known)]
        if kind == "total":
            sums = [cell._replace(lasts=lasts[index]) for index, cell in enumerate(sums[: len(lasts)])]
        lines[name] = {None: Line(kind, sums, rhythm.grid)}
    return Lines(lines, groups)


def _of_quality(
    buckets: Iterable[Bucket], kind: Kind, reach: Window, grid: Grid
) -> dict[tuple[GroupValue, ...], dict[object, Line]]:
    """Return lines of each version; answers of which none was judged miss in that of the version in force."""
    cells: dict[tuple[GroupValue, ...], dict[object, dict[int, Sums]]] = defaultdict(lambda: defaultdict(dict))
    unseen: dict[tuple[GroupValue, ...], list[tuple[datetime, float]]] = defaultdict(list)
    clock = Clock(reach)
    for bucket in buckets:
        if bucket.moments is None:
            unseen[bucket.group].append((bucket.start, bucket.missing.weight))
        else:
            clock.add(cells[bucket.group][bucket.series], bucket.start, bucket.moments, bucket.missing.weight)
    lines: dict[tuple[GroupValue, ...], dict[object, Line]] = {}
    for group, by_series in cells.items():
        newest = min(by_series.values(), key=min)
        for start, weight in unseen[group]:
            clock.add(newest, start, None, weight)
        lines[group] = {
            series: Line(kind, [of_series.get(index, Sums()) for index in range(max(of_series) + 1)], grid)
            for series, of_series in by_series.items()
        }
    return lines


class Clock:
    """Counts cells back from the end of a window, on the clock of its zone."""

    def __init__(self, reach: Window) -> None:
        self._reach, self._shown = reach, local(reach.last, reach.zone)

    def add(self, cells: dict[int, Sums], start: datetime, sums: Moments | None, missing: float = 0.0) -> None:
        """Add sums to the cell that began then; an hour that is shown twice is one cell."""
        part = Sums(missing=missing)
        if sums is not None:
            part = Sums(sums.w, sums.wy, sums.cluster_ww, sums.cluster_ws, sums.cluster_ss, missing)
        index = self._index(start)
        cells[index] = cells[index].plus(part) if index in cells else part

    def lasts(self) -> Sequence[float]:
        """Return how much of its length each cell lasted."""
        lasted: dict[int, float] = defaultdict(float)
        for start in self._reach.starts() if self._reach.first < self._reach.last else ():
            lasted[self._index(start)] += (self._reach.end(start) - start).total_seconds() / self._reach.step_s
        return [lasted[index] for index in range(max(lasted, default=-1) + 1)]

    def _index(self, start: datetime) -> int:
        back = (self._shown - local(start, self._reach.zone)).total_seconds() / self._reach.step_s
        return max(0, round(back) - 1)


def started_near(store: Store, metric: str, start: datetime, within_s: float, now: datetime) -> str | None:
    """Return what started nearest to a change, if that was within so many seconds of it."""
    evaluator = metric.partition(":")[2] or None
    markers = Snapshot(store, Query(window=Window(start - timedelta(days=7), now, 0), now=now)).markers(evaluator)
    started = nearest(markers, start, timedelta(seconds=within_s))
    return f"{started.text} started {started.t:%H:%M}" if started else None


def nearest(markers: Iterable[Marker], time: datetime, within: timedelta) -> Marker | None:
    """Return what began nearest to a change, if that was not further away; the earlier of two."""
    near = [marker for marker in markers if abs(marker.t - time) <= within]
    return min(near, key=lambda marker: (abs(marker.t - time), marker.t, marker.text), default=None)


def wording_since(store: Store, metric: str, before: Window, after: Window, filters: Filter) -> str | None:
    """Return that an evaluator decides another share of the answers than before, where it surely does."""
    family, _, evaluator = metric.partition(":")
    if family not in MEASURES:
        return None
    newest = current(estimates(store, evaluator, after, filters, family=family))
    if newest is None:
        return None
    former = (one for one in estimates(store, evaluator, before, filters, family=family) if one.series == newest.series)
    return newest.wording(next(former, None))
