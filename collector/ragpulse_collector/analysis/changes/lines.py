"""The cells in which changes are looked for: of each group, and of a measure of quality each version and judge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any

from ragpulse_collector.analysis.answers import GroupValue, Marker
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes.usual import GROWTH, LENGTHS, Grid, Kind, Line, Move, Sums
from ragpulse_collector.analysis.figures import group_key
from ragpulse_collector.analysis.quality import Missing, current, estimates, missing_verdicts
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.traffic import adding, known_traffic
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import user_sums
from ragpulse_collector.store.queries.failures import FAILURE
from ragpulse_collector.store.queries.labels import SHARES_OF
from ragpulse_collector.store.queries.scores import MEASURES, measured, sample_of, verdicts_of
from ragpulse_collector.store.queries.traces import Filter, first_span, requests_since
from ragpulse_collector.zones import DAY_S, aligned, find, local, utc

__all__ = ["Clock", "Lines", "Moved", "Rhythm", "check_change", "read_lines"]

COUNTS = {"requests": "1", "errors": "coalesce(error, false)::INTEGER"}
"""SQL for what a request adds to a count."""
SHARES = ("empty_rate", "error_rate", "other_share", "question_drift", "refused_rate", "unanswered_rate")
"""Means of what is known of a request from its decision on; feedback comes later."""
_OF_LABELS = tuple(f"{family}:NAME" for family, label in SHARES_OF.items() if label != FAILURE)
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
            f" not be promised; write a limit ('> 3000'), or watch {', '.join((*COUNTS, *SHARES, *_OF_LABELS))}"
            " or a quality metric"
        )
    if is_counted and baseline_s < _LEAST_DAYS * DAY_S:
        raise Invalid(f"'change' of {metric} compares days: write a baseline of {_LEAST_DAYS}d or more")
    if baseline_s < 2 * window_s:
        raise Invalid("'change' compares the window with a baseline: write one of at least two windows")


def _added(metric: str) -> str | None:
    """Return SQL for what a request adds to a count or a share, 0 to 1 or NULL; None for other metrics."""
    is_share = metric in SHARES or any(metric.startswith(family.removesuffix("NAME")) for family in _OF_LABELS)
    return known_traffic(metric).each if is_share else COUNTS.get(metric)


@dataclass(frozen=True)
class Rhythm:
    """The end of the newest window, the lengths of a window and of what it is compared with, and the users' clock."""

    end: datetime
    window_s: int
    baseline_s: float
    zone: tzinfo | None = None
    """None where the users' zone is unknown."""
    lengths: int = LENGTHS
    """1: the last window alone is compared."""

    @cached_property
    def is_shifted(self) -> bool:
        """Whether clocks were shifted lately, in most zones, and nobody says whether the users' were."""
        days = range(int(1.5 * self.baseline_s // DAY_S) + 2)
        zones = [zone for zone in map(find, () if self.zone else _SHIFTING) if zone]
        times = [self.end - timedelta(days=day) for day in days]
        return any(len({local(time, zone) - time for time in times}) > 1 for zone in zones)

    @cached_property
    def cell_s(self) -> int:
        """The longest cells that windows, days (or a shift of an hour) and the time of the end are multiples of."""
        shown = local(self.end, self.zone or UTC)
        since_midnight = shown - shown.replace(hour=0, minute=0, second=0, microsecond=0)
        cell = math.gcd(self.window_s, _HOUR_S if self.is_shifted else DAY_S, since_midnight // timedelta(seconds=1))
        return cell if self.window_s <= _MOST_CELLS * cell else self.window_s

    @cached_property
    def grid(self) -> Grid:
        """Its lengths in cells."""
        cell = self.cell_s
        day, hour = (length // cell if length % cell == 0 else 0 for length in (DAY_S, _HOUR_S))
        return Grid(
            self.window_s // cell, int(self.baseline_s // cell), day, hour if self.is_shifted else 0, self.lengths
        )

    def start(self, cells: int) -> datetime:
        """Return when the cell began that many cells ago, on the users' clock."""
        zone = self.zone or UTC
        return utc(local(self.end, zone) - timedelta(seconds=cells * self.cell_s), zone)

    def reach(self, looks: int) -> Window:
        """Return the range that is needed to look at so many windows, cut into cells."""
        longest = min(self.window_s * GROWTH ** (self.lengths - 1), self.baseline_s / 2.0)
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

    def surest(self, key: str, at: int, tail: float) -> Moved | None:
        """Return the surest move of the windows that ended `at` cells ago; None without a past."""
        group = self.keys.get(key, ())
        if group not in self._lines:
            return None
        series, line = min(self._lines[group].items(), key=lambda one: (one[1].latest(at), one[1].known))
        former = self._former(group, series, line, at)
        if former is None:
            return None
        name, past = former
        best = min(line.moves(at, tail, past), key=lambda move: move.chance, default=None)
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
    reach, of_each, keys = rhythm.reach(looks), added or _added(metric), ("t", *groups)
    rows, missing = list[tuple[Any, ...]](), dict[tuple[Any, ...], Missing]()
    if of_each is None:
        family, _, evaluator = metric.partition(":")
        sample = sample_of(store, measured(family, evaluator), reach.parameters, filters, columns=groups)
        source = f"SELECT *, {reach.bucket('request_time')} AS t FROM ({verdicts_of(sample.sql, family)})"
        sums = user_sums(source, (*keys, "version", "judge"), cluster="cluster", lost="lost")
        rows = store.read(sums, sample.parameters).rows
        missing = missing_verdicts(store, measured(family, evaluator), reach, filters, groups)
        ends = (end for *_, least, most in rows for end in (least, most) if end is not None)
        kind: Kind = "share" if family != "score" and all(0.0 <= end <= 1.0 for end in ends) else "score"
    else:
        # What was counted otherwise is no level to compare with.
        since = max(reach.first, min(requests_since(store) or first_span(store) or reach.last, reach.last))
        first = aligned(since + timedelta(seconds=rhythm.cell_s - 1e-6), rhythm.cell_s, reach.zone)
        reach = replace(reach, first=min(first, reach.last))
        if reach.first < reach.last:
            sums = user_sums(adding(of_each, reach, filters, groups), keys)
            rows = store.read(sums, {**reach.parameters, **filters.parameters}).rows
        kind = "score" if added else "total" if metric in COUNTS else "share"
    clock = Clock(reach)
    cells, lasts = _cells(rows, missing, len(keys), clock), clock.lasts() if kind == "total" else []
    if not groups and kind == "total":
        cells[()].setdefault((), {})
    lines: dict[tuple[GroupValue, ...], dict[object, Line]] = defaultdict(dict)
    for group, by_series in cells.items():
        for series, of_series in by_series.items():
            known = len(lasts) if not groups and kind == "total" else max(of_series) + 1
            of_cells = [of_series.get(index, Sums()) for index in range(known)]
            if kind == "total":
                of_cells = [cell._replace(lasts=lasts[index]) for index, cell in enumerate(of_cells[: len(lasts)])]
            lines[group][series] = Line(kind, of_cells, rhythm.grid)
    return Lines(lines, groups)


def _cells(
    rows: Sequence[tuple[Any, ...]], missing: Mapping[tuple[Any, ...], Missing], keys: int, clock: Clock
) -> dict[tuple[GroupValue, ...], dict[object, dict[int, Sums]]]:
    """Return sums by group, by version and judge, and by how many cells ago.

    Answers of which none was judged miss in the cell of each version that judged others, else of the one in force.
    """
    cells: dict[tuple[GroupValue, ...], dict[object, dict[int, Sums]]] = defaultdict(lambda: defaultdict(dict))
    judged: dict[tuple[Any, ...], list[dict[int, Sums]]] = defaultdict(list)
    unjudged = [(key, one.weight) for (_, *key), one in missing.items()]
    for row in rows:
        (start, *group), series, (w, *_, lost, _, _) = row[:keys], row[keys:-8], row[-8:]
        if w is None:
            unjudged.append(([start, *group], lost))
            continue
        of_series = cells[tuple(group)][series]
        clock.add(of_series, start, Sums(*row[-8:-2]))
        judged[start, *group].append(of_series)
    for (start, *group), weight in unjudged:
        versions = cells.get(tuple(group), {}).values()
        for of_series in judged[start, *group] or sorted(versions, key=min)[:1]:
            clock.add(of_series, start, Sums(missing=weight))
    return cells


class Clock:
    """Counts cells back from the end of a window, on the clock of its zone."""

    def __init__(self, reach: Window) -> None:
        self._reach, self._shown = reach, local(reach.last, reach.zone)

    def add(self, cells: dict[int, Sums], start: datetime, sums: Sums) -> None:
        """Add sums to the cell that began then; an hour that is shown twice is one cell."""
        index = self._index(start)
        cells[index] = cells[index].plus(sums) if index in cells else sums

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
