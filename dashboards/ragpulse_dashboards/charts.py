"""A metric's answer as a chart: columns for the browser to draw, and the same figures as table rows.

Gaps stay gaps: where a bucket was not measured the column holds null, and a version never joins another version's line.
A target is a line to stay above or below, and a word in each row.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from ragpulse_dashboards.formats import by_unit, iso, parse_time, snippet, unit_of
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View

__all__ = ["LABELS", "MAX_LINES", "PER", "THIN", "WIDTH", "Chart", "fitting", "read_metrics"]

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
LABELS: Final = {
    "latency_p50": "p50", "latency_p95": "p95", "latency_p99": "p99", "requests": "", "error_rate": "",
    "cost_usd": "", "input_tokens": "input", "output_tokens": "output",
}  # fmt: skip
"""What metrics of traffic are called where a chart has several."""
WIDTH: Final = 120
"""Points a chart asks for at most: a card is about 500 px wide, and a point with an interval needs 4."""
SHORT: Final = tuple((f"-{hours}h", timedelta(hours=hours)) for hours in (1, 6, 12))
"""Ranges that a young store is shown by."""
_EXPLAINED: Final = {"latency": "latency_ms", "ttft": "ttft_ms", "error": "error_rate", "errors": "error_rate"}
"""What Explain calls the figure that a family of metrics is made of."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One side of a target on one metric."""

    metric: str
    limit: float
    at_least: bool
    text: str
    """`at least 0.900`, and where it holds if not everywhere."""

    def judged(self, row: Mapping[str, Any]) -> str:
        """Whether a table row meets it: by its whole interval where it has one, else by its value."""
        edges = [row[name] for name in ("lo", "value", "hi") if row.get(name) is not None]
        if row.get("value") is None:
            return ""
        beyond = [edge >= self.limit if self.at_least else edge <= self.limit for edge in (edges[0], edges[-1])]
        return "met" if all(beyond) else "undecided" if any(beyond) else "missed"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure on a page with its table twin: the answers of `GET metrics` (label, answer) joined."""

    key: str
    """Unique on the page; also the anchor."""
    name: str
    metric: str
    """The metric a click asks exemplars for."""
    answers: Sequence[tuple[str, Mapping[str, Any]]]
    """Labels tell the metrics apart."""
    targets: Sequence[Mapping[str, Any]] = ()
    """As in `GET targets`; those of the chart's metrics are drawn."""
    note: str = ""
    bars: bool = False
    level: float | None = None
    """The level before a change, drawn dashed."""
    tall: bool = False

    @cached_property
    def title(self) -> str:
        """The name, and what a sum is drawn per."""
        _, per = PER.get(self.metric, (0, ""))
        return self.name if self.name.endswith(per) else f"{self.name} {per}"

    @cached_property
    def unit(self) -> str:
        """The unit of every line."""
        of_score = self.metric.startswith("quality:")
        return unit_of(self.metric) if of_score else str(self.answers[0][1].get("unit") or "count")

    @cached_property
    def step(self) -> int:
        """Seconds of a bucket."""
        return int(self.answers[0][1].get("step") or 60)

    @cached_property
    def metrics(self) -> Sequence[str]:
        """All metrics of the chart."""
        return [str(answer.get("name") or self.metric) for _, answer in self.answers]

    @cached_property
    def lines(self) -> Sequence[Mapping[str, Any]]:
        """What was answered, by line, the one that stands on most answers first."""
        long, _ = PER.get(self.metric, (0, ""))
        scale = long / self.step if long else 1.0
        lines = [line for at, (label, answer) in enumerate(self.answers) for line in _lines(at, label, answer, scale)]
        return sorted(lines, key=lambda line: -line["n"])

    @cached_property
    def drawn(self) -> Sequence[Mapping[str, Any]]:
        """As many lines as can be told apart, in the order of the answers."""
        return sorted(self.lines[:MAX_LINES], key=lambda line: line["order"])

    @property
    def names(self) -> Sequence[str]:
        """The drawn lines by name."""
        return [line["label"] for line in self.drawn]

    @property
    def hidden_lines(self) -> int:
        """Lines in the table that are not drawn."""
        return len(self.lines) - len(self.drawn)

    @cached_property
    def span(self) -> Sequence[int | None]:
        """Where the range starts and ends."""
        return [_epoch(self.answers[0][1].get(edge)) for edge in ("from", "to")]

    @cached_property
    def bounds(self) -> Sequence[Bound]:
        """Targets of its metrics; a bound of a sum is one of the whole range and is not drawn."""
        return [] if self.metric in PER else _bounds(self.targets, self.metrics, self.unit)

    @cached_property
    def latest(self) -> Mapping[str, Any] | None:
        """The newest measured row of the chart's metric."""
        own = [line for line in self.lines if line["metric"] == self.metric]
        return _latest(own, over_by=self.span[1] and self.span[1] - self.step)

    @cached_property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The figures of all lines, newest first: t, line, value, lo, hi, n, users, asked, missing, not_scored."""
        return _rows(self.lines)[:MAX_ROWS]

    @cached_property
    def why(self) -> Mapping[str, Any]:
        """What to ask Explain about a stretch of it; of a count, what differs among all requests of the stretch."""
        family, _, evaluator = self.metric.partition(":")
        if evaluator:
            return {"metric": self.metric} if family == "quality" else {}
        if family == "requests":
            return {"metric": "latency_ms", "sel_lo": 0}
        return {"metric": _EXPLAINED.get(family.partition("_")[0], family)}

    @cached_property
    def data(self) -> str:
        """JSON for the drawing module."""
        grid = _grid([line["points"] for line in self.drawn], self.step)
        data = {
            "metric": self.metric,
            "title": self.title,
            "unit": self.unit,
            "step": self.step,
            "range": self.span,
            "bars": self.bars,
            "t": grid,
            "lines": [_columns(line, grid) for line in self.drawn],
            "markers": _markers(self.answers),
            "tall": self.tall,
            "level": None if self.level is None else {"value": self.level},
            "targets": [{"value": one.limit, "text": one.text} for one in self.bounds],
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
) -> dict[str, Mapping[str, Any]]:
    """The answers for several metrics by name; all in one question, as each waits for a thread of its own."""
    params = {**view.params(), "name": list(names), "step": step, "width": width, "group_by": list(group_by)}
    params |= {"max_age": max_age} if max_age else {}
    answer = await site.api("GET metrics", params | ({"corrected": "true"} if corrected else {}))
    return {name: {**one, "name": name} for name, one in zip(names, answer["metrics"], strict=True)}


def fitting(asked: View, requests: Mapping[str, Any]) -> View:
    """The range the URL asks for; where it asks for none, the shortest one that holds all there is of the day."""
    times = [parse_time(point.get("t")) for one in requests["series"] for point in one["points"] if point["n"]]
    oldest, end = min((time for time in times if time), default=None), parse_time(requests.get("to"))
    if asked.given or oldest is None or end is None:
        return asked
    fit = (start for start, long in SHORT if end - oldest <= long)
    return replace(asked, start=next(fit, asked.start))


def _bounds(targets: Sequence[Mapping[str, Any]], metrics: Sequence[str], unit: str) -> list[Bound]:
    return [
        Bound(metric=one["metric"], limit=float(one[side]), at_least=side == "min", text=_bound_text(one, side, unit))
        for one in targets
        if one.get("metric") in metrics
        for side in ("min", "max")
        if one.get(side) is not None
    ]


def _bound_text(target: Mapping[str, Any], side: str, unit: str) -> str:
    where = f" where {snippet(target['where'], 40)}" if target.get("where") else ""
    return f"{'at least' if side == 'min' else 'at most'} {by_unit(target[side], unit)}{where}"


def _epoch(value: Any) -> int | None:
    moment = parse_time(value)
    return None if moment is None else int(moment.timestamp())


def _lines(at: int, label: str, answer: Mapping[str, Any], scale: float) -> list[dict[str, Any]]:
    """One line per (group, version, judge): different versions are never one line."""
    series = answer["series"]
    several = len({(one.get("version"), one.get("judge")) for one in series}) > 1
    return [
        {
            "label": " · ".join([*([label] if label else []), *_group(one), *([_version(one)] if several else [])]),
            "order": (at, order),
            "points": (points := _points(one, scale)),
            "n": sum(point.get("n") or 0 for point in points.values()),
            "group": one.get("group") or {},
            "metric": answer.get("name"),
        }
        for order, one in enumerate(series)
    ]


def _group(series: Mapping[str, Any]) -> list[str]:
    group = series.get("group") or {}
    return [str(value) if value not in (None, "") else f"no {name.replace('_', ' ')}" for name, value in group.items()]


def _points(series: Mapping[str, Any], scale: float) -> dict[int, Mapping[str, Any]]:
    return {
        moment: _scaled(point, scale)
        for point in series.get("points") or []
        if (moment := _epoch(point.get("t"))) is not None
    }


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
    """Version changes, change points, and where scores of a replay end and those of a rule begin; each once."""
    found = {}
    for _, answer in answers:
        for marker in (*answer["markers"], *filter(None, map(_bridge, answer["series"]))):
            moment = _epoch(marker.get("t"))
            if moment is not None:
                text = str(marker.get("text") or "")
                found[moment, text] = {"t": moment, "kind": str(marker.get("kind") or ""), "text": text[:80]}
    return sorted(found.values(), key=lambda marker: str(marker["t"]))


def _bridge(series: Mapping[str, Any]) -> dict[str, Any] | None:
    """The marker of a line whose past a replay scored."""
    replayed = any(point.get("replayed") for point in series.get("points") or [])
    if not replayed or not series.get("online_since"):
        return None
    return {"t": series["online_since"], "kind": "replay", "text": "replayed before, live from here"}


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
        "users": point.get("users"),
        "asked": point.get("asked"),
        "missing": point.get("missing"),
        "not_scored": _not_scored(point),
    }


def _not_scored(point: Mapping[str, Any]) -> str:
    """What was counted but never averaged in: `2 skipped, 1 invalid`."""
    counts = {**(point.get("counts") or {}), "dropped": point.get("dropped"), "pending": point.get("pending")}
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
