"""A metric's answer as a chart: columns for the browser to draw, and the same figures as table rows.

Gaps stay gaps: where a bucket was not measured the column holds null, and a version never joins another version's line.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from ragpulse_dashboards.formats import iso, parse_time, unit_of
from ragpulse_dashboards.targets import Bound, bounds_of

__all__ = ["MAX_LINES", "PER", "THIN", "Chart", "build_chart"]

THIN: Final = 10
"""Buckets with fewer scored answers are drawn hollow, where the collector does not say itself which are thin."""
MAX_LINES: Final = 6
"""More lines than colours a person can tell apart are left to the table."""
MAX_ROWS: Final = 2000
_MINUTE, _HOUR = (60, "per minute"), (3600, "per hour")
PER: Final = {
    "requests": _MINUTE, "errors": _MINUTE, "cost_usd": _HOUR, "input_tokens": _MINUTE, "output_tokens": _MINUTE,
}  # fmt: skip
"""Sums are drawn as rates, so that a chart says the same however long its buckets are."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure on a page with its table twin."""

    key: str
    """Unique on the page; also the anchor."""
    title: str
    unit: str
    metric: str
    """The metric a click asks exemplars for."""
    metrics: Sequence[str]
    """All metrics of the chart."""
    data: str
    """JSON for the drawing module."""
    lines: Sequence[Mapping[str, Any]]
    """What was answered, by line; `rows` makes the table of it."""
    latest: Mapping[str, Any] | None
    """The newest measured row."""
    names: Sequence[str]
    bars: bool
    hidden_lines: int
    """Lines in the table that are not drawn."""
    step: int
    bounds: Sequence[Bound] = ()
    """Targets of its metrics."""
    note: str = ""
    level: float | None = None
    """The level before a change, drawn dashed."""
    tall: bool = False

    @cached_property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The figures of all lines, newest first: t, line, value, lo, hi, n, n_eff, not_scored."""
        return _rows(self.lines)[:MAX_ROWS]


def build_chart(
    *,
    key: str,
    title: str,
    answers: Sequence[tuple[str, Mapping[str, Any]]],
    metric: str,
    targets: Sequence[Mapping[str, Any]] = (),
    note: str = "",
    bars: bool = False,
    level: float | None = None,
    tall: bool = False,
) -> Chart:
    """Join the answers of `GET metrics` (label, answer) into one chart; labels tell the metrics apart.

    Of `targets` (as in `GET targets`) those of the chart's metrics are drawn, and `level`, which was before a change.
    """
    first = answers[0][1]
    long, per = PER.get(metric, (0, ""))
    unit = unit_of(metric) if metric.startswith("quality:") else str(first.get("unit") or "count")
    step = int(first.get("step") or 60)
    scale = long / step if long else 1.0
    lines = [line for at, (label, answer) in enumerate(answers) for line in _lines(at, label, answer, scale)]
    lines.sort(key=lambda line: line["n"], reverse=True)
    drawn = sorted(lines[:MAX_LINES], key=lambda line: line["order"])
    grid = _grid([line["points"] for line in drawn], step)
    start, end = _epoch(first.get("from")), _epoch(first.get("to"))
    metrics = [str(answer.get("name") or metric) for _, answer in answers]
    bounds = [] if per else bounds_of(targets, metrics, unit)  # a bound of a sum is one of the whole range
    title = title if title.endswith(per) else f"{title} {per}"
    data = {
        "metric": metric,
        "title": title,
        "unit": unit,
        "step": step,
        "range": [start, end],
        "bars": bars,
        "t": grid,
        "lines": [_columns(line, grid) for line in drawn],
        "markers": _markers(answers),
        "tall": tall,
        "level": None if level is None else {"value": level},
        "targets": [{"value": one.limit, "text": one.text} for one in bounds],
    }
    return Chart(
        key=key,
        title=title,
        unit=unit,
        metric=metric,
        metrics=metrics,
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
        lines=lines,
        latest=_latest([line for line in lines if line["metric"] == metric], over_by=end and end - step),
        names=[line["label"] for line in drawn],
        bars=bars,
        hidden_lines=len(lines) - len(drawn),
        step=step,
        bounds=bounds,
        note=note,
        level=level,
        tall=tall,
    )


def _epoch(value: Any) -> int | None:
    moment = parse_time(value)
    return None if moment is None else int(moment.timestamp())


def _lines(at: int, label: str, answer: Mapping[str, Any], scale: float) -> list[dict[str, Any]]:
    """One line per (group, version, judge): different versions are never one line."""
    series = answer.get("series") or []
    versions = {(one.get("version"), one.get("judge")) for one in series}
    lines = []
    for order, one in enumerate(series):
        group = one.get("group") or {}
        words = [label] if label else []
        words += [
            str(value) if value not in (None, "") else f"no {name.replace('_', ' ')}" for name, value in group.items()
        ]
        if len(versions) > 1:
            words.append(_version(one))
        points = {
            moment: _scaled(point, scale)
            for point in one.get("points") or []
            if (moment := _epoch(point.get("t"))) is not None
        }
        total = sum(point.get("n") or 0 for point in points.values())
        lines.append(
            {
                "label": " · ".join(words),
                "order": (at, order),
                "points": points,
                "n": total,
                "group": group,
                "metric": answer.get("name"),
            }
        )
    return lines


def _scaled(point: Mapping[str, Any], scale: float) -> Mapping[str, Any]:
    if scale == 1.0 or point.get("value") is None:
        return point
    return {**point, "value": point["value"] * scale}


def _version(series: Mapping[str, Any]) -> str:
    judge = series.get("judge")
    return f"version {str(series.get('version') or '?')[:8]}" + (f", {judge}" if judge else "")


def _grid(points: Sequence[Mapping[int, Any]], step: int) -> list[int]:
    """All bucket times, with one empty bucket wherever at least one is missing, so that lines break there."""
    times = sorted({moment for line in points for moment in line})
    grid: list[int] = []
    for moment in times:
        if grid and moment - grid[-1] > step * 1.5:
            grid.append(grid[-1] + step)
        grid.append(moment)
    return grid


def _columns(line: Mapping[str, Any], grid: Sequence[int]) -> dict[str, Any]:
    points = [line["points"].get(moment) or {} for moment in grid]
    columns: dict[str, Any] = {"label": line["label"], "group": line["group"], "metric": line["metric"]}
    for name, key in (("v", "value"), ("lo", "lo"), ("hi", "hi"), ("n", "n")):
        columns[name] = [_finite(point.get(key)) for point in points]
    if all(value is None for value in columns["lo"]):
        del columns["lo"], columns["hi"]
    else:
        columns["thin"] = [_thin(point) for point in points]
    return columns


def _thin(point: Mapping[str, Any]) -> bool:
    """Whether too few answers stand behind a point for its interval to be trusted."""
    n = point.get("n")
    thin = point.get("thin")
    return bool(thin) if thin is not None else n is not None and n < THIN


def _finite(value: Any) -> float | None:
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(value, 6)


def _markers(answers: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Version changes and change points, each once."""
    found = {}
    for _, answer in answers:
        for marker in answer.get("markers") or []:
            moment = _epoch(marker.get("t"))
            if moment is not None:
                text = str(marker.get("text") or "")
                found[moment, text] = {"t": moment, "kind": str(marker.get("kind") or ""), "text": text[:80]}
    return sorted(found.values(), key=lambda marker: str(marker["t"]))


def _latest(lines: Sequence[Mapping[str, Any]], *, over_by: int | None) -> Mapping[str, Any] | None:
    """The newest measured point of these lines as a table row: of a bucket that is over, where there is one."""
    measured = [
        (moment, line, point)
        for line in lines
        for moment, point in line["points"].items()
        if _finite(point.get("value")) is not None
    ]
    over = [one for one in measured if over_by is None or one[0] <= over_by]
    return _row(*max(over or measured, key=lambda one: (one[0], one[2].get("n") or 0))) if measured else None


def _rows(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Table rows; a bucket in which nothing happened is left out, as its gap is in the drawing."""
    rows = [
        _row(moment, line, point)
        for line in lines
        for moment, point in line["points"].items()
        if point.get("value") is not None or point.get("n") or _not_scored(point)
    ]
    return sorted(rows, key=lambda row: str(row["t"]), reverse=True)


def _row(moment: int, line: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "t": iso(datetime.fromtimestamp(moment, UTC)),
        "line": line["label"],
        "metric": line["metric"],
        "value": _finite(point.get("value")),
        "lo": _finite(point.get("lo")),
        "hi": _finite(point.get("hi")),
        "n": point.get("n"),
        "n_eff": point.get("n_eff"),
        "not_scored": _not_scored(point),
    }


def _not_scored(point: Mapping[str, Any]) -> str:
    """What was counted but never averaged in: `2 skipped, 1 invalid`."""
    counts = {**(point.get("counts") or {}), "dropped": point.get("dropped")}
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
