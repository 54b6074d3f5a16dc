"""What the drawing module of a chart gets: one grid of times, a column for each line, markers, the zone's offsets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.series import Line, MetricSeries, Point
from ragpulse_collector.zones import SHOWN, offsets
from ragpulse_evaluators.statistics import Uncertain

if TYPE_CHECKING:
    from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class ChartLine:
    """The points of one series by their time, epoch seconds; sums are rates."""

    label: str
    answer: str
    """The label of the answer that it is of."""
    number: int
    metric: str
    group: Mapping[str, GroupValue]
    points: Mapping[int, Point]

    @property
    def n(self) -> int:
        """The size of its sample."""
        return sum(point.n for point in self.points.values())


@dataclass(frozen=True, slots=True)
class InRange(Uncertain):
    """The value of a metric over the whole range, and its interval; of a sum the sum."""

    words: str | None = None
    """Of an error rate of few errors: their number."""


def epoch(moment: datetime) -> int:
    """Return the seconds of a time in UTC."""
    return int(moment.replace(tzinfo=UTC).timestamp())


def ahead(first: datetime, last: datetime) -> list[tuple[int, int]]:
    """Return how many seconds the clock of the page is ahead of UTC, and since when."""
    return [(epoch(since), round(offset.total_seconds())) for since, offset in offsets(first, last, SHOWN.get())]


def grid_of(points: Sequence[Mapping[int, Point]], step: int) -> list[int]:
    """Return all bucket times, with one empty bucket wherever at least one is missing: lines break there."""
    grid: list[int] = []
    for time in sorted({time for line in points for time in line}):
        if grid and time - grid[-1] > step * 1.5:
            grid.append(grid[-1] + step)
        grid.append(time)
    return grid


def columns(line: ChartLine, grid: Sequence[int]) -> dict[str, JsonValue]:
    """Return the values of a line at the times of the grid, with the edges of its intervals."""
    points = [line.points.get(time) for time in grid]

    def column(name: str) -> list[JsonValue]:
        return [finite(getattr(point, name, None)) for point in points]

    low = column("lo")
    thin: list[JsonValue] = [point is not None and point.thin for point in points]
    band = {} if all(value is None for value in low) else {"lo": low, "hi": column("hi"), "thin": thin}
    return {
        "label": line.label,
        "group": dict(line.group),
        "metric": line.metric,
        "v": column("value"),
        "n": column("n"),
        **band,
    }


def finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it; None for none."""
    return round(value, 6) if value is not None and math.isfinite(value) else None


def markers(answers: Iterable[tuple[str, MetricSeries]]) -> list[dict[str, int | str]]:
    """Return version changes, change points, and the first live score after a replay; each once."""
    found = {
        (epoch(time), text, label)
        for _, answer in answers
        for time, text, label in (
            *((marker.t, marker.text, marker.label) for marker in answer.markers),
            *((since, "replayed before, live from here", "live") for since in map(_first_live, answer.series) if since),
        )
    }
    return [{"t": time, "text": text[:80], "label": (label or text)[:10]} for time, text, label in sorted(found)]


def _first_live(line: Line) -> datetime | None:
    """Return since when a line is live whose past a replay scored."""
    replayed = any(getattr(point, "replayed", 0) for point in line.points)
    return getattr(line, "online_since", None) if replayed else None
