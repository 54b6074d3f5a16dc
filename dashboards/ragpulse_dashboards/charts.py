"""A metric's answer as a chart: columns for the browser to draw, and the same figures as table rows.

Gaps stay gaps: where a bucket was not measured the column holds null, and lines of two versions are never joined.
A target is a line to stay above or below, and a word in each row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Final

from ragpulse_collector.analysis.series import Line, ManySeries, MetricSeries, Point
from ragpulse_collector.monitoring.targets import TargetState
from ragpulse_collector.words.figures import by_unit, judge_name, snippet, title, unit_of
from ragpulse_collector.words.times import iso
from ragpulse_dashboards.drawing import ChartLine, InRange, ahead, columns, epoch, finite, grid_of, markers
from ragpulse_dashboards.site import Site, View

__all__ = ["LABELS", "PER", "WIDTH", "Chart", "ChartRow", "InRange", "fit_range", "read_metrics"]

MAX_LINES: Final = 6
"""Lines whose colours a person can tell apart; the others are in the table only."""
MAX_ROWS: Final = 2000
_MINUTE, _HOUR = (60, "per minute"), (3600, "per hour")
PER: Final = {
    "requests": _MINUTE, "errors": _MINUTE, "cost_usd": _HOUR, "input_tokens": _MINUTE, "output_tokens": _MINUTE,
}  # fmt: skip
"""Sums are drawn as rates, so that the length of a bucket does not change a chart."""
LABELS: Final = {
    "latency_p50": "p50", "latency_p95": "p95", "latency_p99": "p99", "requests": "", "error_rate": "",
    "cost_usd": "", "input_tokens": "input", "output_tokens": "output",
}  # fmt: skip
"""Names of traffic metrics in a chart of several."""
WIDTH: Final = 120
"""Points of a chart at most: a card is about 500 px wide, and a point with an interval needs 4."""
SHORT_RANGES: Final = tuple((f"-{hours}h", timedelta(hours=hours)) for hours in (1, 6, 12))
"""Ranges for a young store."""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A point as a row of the table twin."""

    epoch: int
    line: str
    metric: str
    point: Point
    not_scored: str
    part: str = ""
    """A word for a bucket that the range holds in part."""

    @property
    def value(self) -> float | None:
        """The value, if it is a number."""
        return finite(self.point.value)

    @property
    def words(self) -> str | None:
        """Of an error rate of few errors: their number."""
        return getattr(self.point, "words", None) if self.metric == "error_rate" else None

    @property
    def t(self) -> datetime:
        """The start of its bucket."""
        return datetime.fromtimestamp(self.epoch, UTC)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One side of a target on one metric."""

    metric: str
    limit: float
    at_least: bool
    text: str
    """`at least 0.900`, and the condition of the target."""

    @property
    def head(self) -> str:
        """The head of its column."""
        return f"Target {self.text}"

    def state(self, row: ChartRow) -> str:
        """Return whether a table row meets it: by its whole interval where it has one, else by its value."""
        edges = [edge for edge in (row.point.lo, row.value, row.point.hi) if edge is not None]
        if row.value is None:
            return ""
        within = [edge >= self.limit if self.at_least else edge <= self.limit for edge in (edges[0], edges[-1])]
        return "met" if all(within) else "undecided" if any(within) else "missed"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure of a page and its table twin: the answers of `GET metrics` (label, answer) joined."""

    key: str
    """Unique on the page; also the anchor."""
    name: str
    metric: str
    """The metric whose examples a click opens."""
    answers: Sequence[tuple[str, MetricSeries]]
    """Labels tell the metrics apart."""
    targets: Sequence[TargetState] = ()
    """As in `GET targets`; those of the chart's metrics are drawn."""
    note: str = ""
    bars: bool = False
    level: float | None = None
    """The level before a change, drawn dashed."""
    in_range: InRange | None = None
    """The value of the whole range; without one a card shows the last bucket."""
    of_each: bool = False
    """Whether the values of a sum are means of an answer."""
    tall: bool = False
    since: datetime | None = None
    """The time of a change, from which `Why?` explains the metric."""

    @cached_property
    def title(self) -> str:
        """The name, and the unit of time of a rate."""
        _, per = self._per
        return title(self.name if self.name.endswith(per) else f"{self.name} {per}")

    @property
    def _per(self) -> tuple[int, str]:
        return (0, "per answer") if self.of_each else PER.get(self.metric, (0, ""))

    @property
    def whole(self) -> InRange | None:
        """The value of the whole range in the unit of the chart."""
        (start, end), (seconds, _) = self.span, self._per
        if not seconds or self.in_range is None or self.in_range.value is None or end <= start:
            return self.in_range
        return InRange(self.in_range.value * seconds / (end - start))

    @cached_property
    def unit(self) -> str:
        """The unit of every line."""
        of_score = self.metric.startswith("quality:")
        return unit_of(self.metric) if of_score else self.answers[0][1].unit

    @cached_property
    def step(self) -> int:
        """Seconds of a bucket; of a single bucket (step 0) those of the range."""
        start, end = self.span
        return self.answers[0][1].step or (end - start) or 60

    def _covered(self, time: int) -> tuple[int, int]:
        """Return start and end of the part of a bucket that lies in the range."""
        start, end = self.span
        first = max(time, start)
        return first, max(first + 1, min(self._end(time), end))

    @cached_property
    def _ends(self) -> Mapping[int, int]:
        """The end of each bucket: of a local day it is 23 to 25 hours later."""
        answer = self.answers[0][1]
        starts = [epoch(point.t) for line in answer.series[:1] for point in line.points]
        edges = pairwise([*starts, epoch(answer.until)])
        return {start: end for start, end in edges if end - start < 1.5 * self.step}

    def _end(self, time: int) -> int:
        return self._ends.get(time, time + self.step)

    def long(self, time: int) -> int:
        """Return the seconds of the bucket that begins then."""
        return self._end(time) - time

    def _part(self, time: int) -> str:
        """Return a word for a bucket that the range holds in part: the first and the last one may be such."""
        first, last = self._covered(time)
        if (first, last) == (time, self._end(time)):
            return ""
        return "so far" if self._end(time) > datetime.now(UTC).timestamp() else "in part"

    @cached_property
    def metrics(self) -> Sequence[str]:
        """All metrics of the chart."""
        return [answer.name for _, answer in self.answers]

    @cached_property
    def lines(self) -> Sequence[ChartLine]:
        """One line for each series of the answers, the largest sample first."""
        seconds, _ = self._per
        lines = [line for label, answer in self.answers for line in _lines(label, answer, self._covered, seconds)]
        return sorted(lines, key=lambda line: -line.n)

    @cached_property
    def drawn(self) -> Sequence[ChartLine]:
        """The lines that are drawn, in the order of the answers."""
        labels = [label for label, _ in self.answers]
        return sorted(self.lines[:MAX_LINES], key=lambda line: (labels.index(line.answer), line.number))

    @property
    def names(self) -> Sequence[str]:
        """Labels of the drawn lines."""
        return [line.label for line in self.drawn]

    @property
    def hidden_lines(self) -> int:
        """Lines that are in the table only."""
        return len(self.lines) - len(self.drawn)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start and end of the range, epoch seconds."""
        _, answer = self.answers[0]
        return epoch(answer.from_), epoch(answer.to)

    @cached_property
    def bounds(self) -> Sequence[Bound]:
        """Targets of its metrics; a target of a sum is about the whole range and is not drawn."""
        return [] if self.metric in PER else _bounds(self.targets, self.metrics, self.unit)

    @cached_property
    def latest(self) -> ChartRow | None:
        """The newest measured row of the chart's metric, of a complete bucket where there is one."""
        measured = [row for row in _rows(self.lines) if row.metric == self.metric and row.value is not None]
        complete = [row for row in measured if not self._part(row.epoch)]
        return max(complete or measured, key=lambda row: (row.epoch, row.point.n), default=None)

    @property
    def n(self) -> int:
        """The answers behind the chart's metric."""
        return sum(line.n for line in self.lines if line.metric == self.metric)

    @cached_property
    def rows(self) -> Sequence[ChartRow]:
        """Table rows of all lines, newest first."""
        return [replace(row, part=self._part(row.epoch)) for row in _rows(self.lines)[:MAX_ROWS]]

    @cached_property
    def why(self) -> Mapping[str, str | int]:
        """The parameters of Explain for a stretch of the chart; of a count, all requests of the stretch are marked."""
        family, _, evaluator = self.metric.partition(":")
        if evaluator and family != "quality":
            return {}
        if family == "requests":
            return {"metric": "latency_p95", "sel_lo": 0}
        metric = {"errors": "error_rate"}.get(family, self.metric)
        return {"metric": metric, **({"at": iso(self.since.replace(microsecond=0))} if self.since else {})}

    @cached_property
    def data(self) -> str:
        """JSON for the drawing module."""
        grid, (_, answer) = grid_of([line.points for line in self.drawn], self.step), self.answers[0]
        data = {
            "metric": self.metric,
            "title": self.title,
            "unit": self.unit,
            "step": self.step,
            "ends": [self._end(time) for time in grid],
            "ahead": ahead(answer.from_, answer.until),
            "range": self.span,
            "bars": self.bars,
            "t": grid,
            "x": [sum(self._covered(time)) / 2 for time in grid],
            "part": [self._part(time) for time in grid],
            "lines": [columns(line, grid) for line in self.drawn],
            "markers": markers(self.answers),
            "tall": self.tall,
            "level": self.level,
            "targets": [{"value": bound.limit, "text": bound.text} for bound in self.bounds],
        }
        return json.dumps(data, separators=(",", ":"), allow_nan=False)


async def read_metrics(
    site: Site,
    view: View,
    names: Sequence[str],
    *,
    group_by: Sequence[str] = (),
    corrected: bool = False,
    width: int = WIDTH,
    step: str = "auto",
    max_age: float = 0.0,
) -> dict[str, MetricSeries]:
    """Return the answers for several metrics by name; one call, because each call takes a thread."""
    params = {**view.params(), "name": list(names), "step": step, "width": width, "group_by": list(group_by)}
    params |= {"max_age": max_age} if max_age else {}
    answer: ManySeries = await site.api("GET metrics", params | ({"corrected": "true"} if corrected else {}))
    return {metric.name: metric for metric in answer.metrics}


def fit_range(view: View, requests: MetricSeries) -> View:
    """Return the view; without an explicit range, with the shortest one that holds all requests of the day."""
    oldest = min((point.t for line in requests.series for point in line.points if point.n), default=None)
    if view.explicit or oldest is None:
        return view
    fitting = (start for start, length in SHORT_RANGES if requests.to - oldest <= length)
    return replace(view, start=next(fitting, view.start))


def _bounds(targets: Sequence[TargetState], metrics: Sequence[str], unit: str) -> list[Bound]:
    return [
        Bound(
            metric=target.metric,
            limit=limit,
            at_least=limit == target.min,
            text=f"{words} {by_unit(limit, unit)}" + (f" where {snippet(target.where, 40)}" if target.where else ""),
        )
        for target in targets
        if target.metric in metrics
        for limit, words in ((target.min, "at least"), (target.max, "at most"))
        if limit is not None
    ]


def _lines(
    label: str, answer: MetricSeries, covered: Callable[[int], tuple[int, int]], per: int
) -> Iterator[ChartLine]:
    """Yield one line per (group, version, judge): different versions never share a line."""
    several = len({(line.version, line.judge) for line in answer.series}) > 1
    for number, line in enumerate(answer.series):
        words = filter(None, [label, *_group(line), _version(line) if several else ""])
        points = _points(line, covered, per)
        yield ChartLine(" · ".join(words), label, number, answer.name, line.group, points)


def _group(line: Line) -> list[str]:
    group = line.group
    return [str(value) if value not in (None, "") else f"no {name.replace('_', ' ')}" for name, value in group.items()]


def _points(line: Line, covered: Callable[[int], tuple[int, int]], per: int) -> dict[int, Point]:
    """Return the points by time; with `per`, sums become rates of so many seconds."""
    points: dict[int, Point] = {epoch(point.t): point for point in line.points}
    if not per:
        return points
    return {
        time: point if point.value is None else replace(point, value=point.value * per / (end - start))
        for time, point in points.items()
        for start, end in [covered(time)]
    }


def _version(line: Line) -> str:
    return f"version {(line.version or '?')[:8]}" + (f", {judge_name(line.judge)}" if line.judge else "")


def _rows(lines: Sequence[ChartLine]) -> list[ChartRow]:
    """Return table rows, newest first; a bucket without requests is left out, like its gap in the drawing."""
    rows = [
        ChartRow(time, line.label, line.metric, point, not_scored)
        for line in lines
        for time, point in line.points.items()
        if (not_scored := _not_scored(point)) or point.value is not None or point.n
    ]
    return sorted(rows, key=lambda row: row.epoch, reverse=True)


def _not_scored(point: Point) -> str:
    """`2 skipped, 1 invalid`: counted, but not in the mean."""
    counts = dict[str, int](getattr(point, "counts", {}))
    counts |= {name: getattr(point, name, 0) for name in ("dropped", "pending")}
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
