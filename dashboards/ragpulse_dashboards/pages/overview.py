"""`/`: what changed, the worst answers, the cost; then every metric over time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.changes import Level, Shift
from ragpulse_collector.analysis.overview import RangeSummary
from ragpulse_collector.analysis.series import Line, MetricSeries, Point, QualityLine, TrafficPoint
from ragpulse_collector.monitoring.headline import decline, headline, steady_facts
from ragpulse_collector.monitoring.targets import TargetState
from ragpulse_collector.words import few_errors
from ragpulse_collector.words.figures import metric_name
from ragpulse_dashboards.charts import LABELS, WIDTH, Chart, InRange, fit_range, read_metrics
from ragpulse_dashboards.site import Site, View, read_view, see_other

BUCKETS: Final = (WIDTH, 48, 24, 12)
"""Numbers of points of a chart."""
PER_BUCKET: Final = 30
"""Answers in a point."""
MAX_QUALITY: Final = 8
MAX_AGE_S: Final = 300.0
"""Cached figures up to this age are shown at once; the page names their age and reloads them."""
FRESH_S: Final = 5.0
"""Figures up to this age count as new."""
SLOW_S: Final = 0.02
"""If reading the traffic alone takes this long, the rest takes six times as long: the page comes without it first."""

EFFICIENCY: Final = (
    ("latency", "Latency", ("latency_p50", "latency_p95", "latency_p99"), False),
    ("requests", "Requests", ("requests",), True),
    ("error-rate", "Error rate", ("error_rate",), False),
    ("cost", "Cost", ("cost_usd",), True),
    ("tokens", "Tokens", ("input_tokens", "output_tokens"), True),
)
"""Key, title, metrics and whether bars are drawn."""
MAIN: Final = {"latency": "latency_p95"}
"""The main metric of a chart of several."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the overview, and the forms that make and remove demo data."""
    return [
        site.page("/", overview, reads=("corrected", "quality", "whole", "width")),
        site.page("/demo", load_demo, post=True),
        site.page("/demo/remove", remove_demo, post=True),
    ]


@dataclass(frozen=True)
class _GroupRow:
    """The figures of a group over the whole range, by metric."""

    group: str
    figures: Mapping[str, Point]

    @property
    def requests(self) -> float:
        """Their number."""
        requests = self.figures.get("requests")
        return (requests and requests.value) or 0.0


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """Everything the overview shows, read at one time."""

    view: View
    overview: RangeSummary
    efficiency: Sequence[Chart]
    targets: Sequence[TargetState] = ()
    quality: Sequence[Chart] = ()
    coverage: Chart | None = None
    lead: Chart | None = None
    """Large: the metric that changed, the quality that leads first, else the surest; without a change the former."""
    groups: Sequence[_GroupRow] = ()
    """One row for each group."""
    width: str
    """The numbers of points of its charts, which a reload keeps: `120,groundedness:24`."""
    complete: bool = True
    """False: the traffic only, without scores."""


async def overview(site: Site, request: Request) -> Response:
    """Show what changed, steady facts, the worst answers, charts, coverage; or how to send the first span."""
    view, query = read_view(request), request.query_params
    corrected = query.get("corrected") == "true"
    max_age = _max_age(site, request)
    figures = await _read_traffic(site, view, max_age) if _can_reload(request) else None
    if figures is None:
        pinned, kept = query.getlist("quality"), _kept(query.get("width", ""))
        read = partial(_read, site, view, pinned=pinned, corrected=corrected, kept=kept)
        figures = await read(max_age=max_age)
        if max_age and not figures.overview.n_traces:  # the first answers may have come since
            figures = await read(max_age=0.0)
    answer = figures.overview
    if answer.newest_span is None and not answer.n_traces:
        return site.render(request, "welcome.html", {"view": figures.view, "origin": _origin(request)})
    fallen = decline(answer)
    columns = dict.fromkeys(name for row in figures.groups for name in row.figures)
    context = {
        **vars(figures),
        "statements": headline(
            figures.view, answer, figures.targets, request.state.monitors, complete=figures.complete
        ),
        "columns": columns,
        "heads": [(metric_name(name).capitalize(), "num") for name in columns],
        "steady": steady_facts(figures.view, answer, figures.targets),
        "decline": fallen,
        "worst": fallen.metric.removeprefix("quality:") if fallen else _rated(answer),
        "extra": {"corrected": "true"} if corrected else {},
        "age_s": _age(answer),
        "max_age": max_age,
        "coverage_of": {row.evaluator: row for row in answer.coverage},
        "tables": "whole" in query,
        "whole_url": "/?" + request.url.include_query_params(whole="true").query,
        "same_url": "/?" + request.url.include_query_params(width=figures.width, **{"from": figures.view.start}).query,
    }
    return site.render(request, "overview.html", context)


def _rated(answer: RangeSummary) -> str | None:
    """Return the evaluator that leads, where it has scored an answer."""
    return next((row.evaluator for row in answer.quality if row.evaluator == answer.lead and row.n), None)


def _max_age(site: Site, request: Request) -> float:
    """Return the seconds that figures may be old: for a visit minutes; none for a reload."""
    if "no-cache" in request.headers.get("cache-control", ""):
        return 0.0
    return min(MAX_AGE_S, time.monotonic() - site.posted_at)


def _age(answer: RangeSummary) -> float:
    """Return the age of the figures in seconds; 0 for fresh ones."""
    age = (datetime.now(UTC) - answer.as_of.replace(tzinfo=UTC)).total_seconds()
    return age if age > FRESH_S else 0.0


def _can_reload(request: Request) -> bool:
    """Whether this is a browser's visit: it asks for the rest by script, or without scripts by the URL of `whole`."""
    return request.headers.get("sec-fetch-mode") == "navigate" and "whole" not in request.query_params


async def _read_traffic(site: Site, view: View, max_age: float) -> _Figures | None:
    """Read the traffic alone, one pass over the requests; None where that is fast."""
    begun = time.monotonic()
    requests = (await read_metrics(site, view, ["requests"], max_age=max_age))["requests"]
    if time.monotonic() - begun < SLOW_S or not any(line.points for line in requests.series):
        return None
    view, width = fit_range(view, requests), _width_for(requests)
    answer = await site.api("GET overview", {**view.params(), "only": "traffic", "points": width, "max_age": max_age})
    metrics = await read_metrics(site, view, _traffic_names(view), group_by=view.group_by, width=width, max_age=max_age)
    efficiency = _with_range(view, answer, _efficiency(view, metrics, ()))
    return _Figures(view=view, overview=answer, efficiency=efficiency, width=str(width), complete=False)


async def _read(
    site: Site, view: View, *, pinned: Sequence[str], corrected: bool, max_age: float, kept: Mapping[str, int]
) -> _Figures:
    """Read everything; traffic first, because it decides the range and the number of points."""
    requests = (await read_metrics(site, view, ["requests"], max_age=max_age))["requests"]
    view = fit_range(view, requests)
    width = kept.get("") or _width_for(requests)
    answer: RangeSummary
    answer, watched = await asyncio.gather(
        site.api("GET overview", {**view.params(), "points": width, "max_age": max_age}),  # of the charts' reading
        site.api("GET targets", view.params()),
    )
    names = _evaluators(answer, pinned)
    if corrected:
        whole = [f"quality:{row.evaluator}" for row in answer.quality]
        answer = _corrected(answer, await read_metrics(site, view, whole, corrected=True, step="all", max_age=max_age))
    covered = [row.evaluator for row in answer.coverage][: 1 if view.group_by else MAX_QUALITY]
    by_width = {width: [*_traffic_names(view), *(f"coverage:{name}" for name in covered)]}
    scored = {row.evaluator: row.n for row in answer.quality}
    widths = {name: kept.get(name) or min(width, _width(scored[name])) for name in names}  # few answers, few buckets
    for name, points in widths.items():
        by_width.setdefault(points, []).append(f"quality:{name}")
    calls = (
        read_metrics(site, view, some, group_by=view.group_by, corrected=corrected, width=points, max_age=max_age)
        for points, some in by_width.items()
    )
    metrics = {name: metric for part in await asyncio.gather(*calls) for name, metric in part.items()}
    targets = watched.targets
    since = {shift.metric: shift.t for shift in answer.changes}
    changes = sorted(answer.changes, key=lambda shift: shift.metric != f"quality:{answer.lead}")
    lead = _lead(view, changes, metrics, targets, leading=answer.lead, corrected=corrected)
    quality = [_chart(f"quality-{name}", f"quality:{name}", metrics, targets, corrected=corrected) for name in names]

    def finished(charts: Sequence[Chart]) -> list[Chart]:
        return _with_range(view, answer, [_told(chart, since, metrics) for chart in charts])

    return _Figures(
        view=view,
        overview=answer,
        targets=targets,
        width=",".join([str(width), *(f"{name}:{points}" for name, points in widths.items())]),
        lead=next(iter(finished([lead] if lead else [])), None),
        groups=await _groups(site, view, names, max_age),
        quality=finished([chart for chart in quality if lead is None or lead.metric != chart.metric]),
        efficiency=finished(_efficiency(view, metrics, targets)),
        coverage=_coverage(covered, metrics),
    )


def _corrected(answer: RangeSummary, whole: Mapping[str, MetricSeries]) -> RangeSummary:
    """Return the answer with the figures that people's labels correct: cards and sentences say what the lines do."""
    by_name = {f"quality:{row.evaluator}": row for row in answer.quality}
    points = {
        metric: line.points[0]
        for metric, row in by_name.items()
        for line in whole[metric].series
        if line.points and isinstance(line, QualityLine) and (line.version, line.judge) == (row.version, row.judge)
    }
    moves = {
        metric: point.value - row.value
        for metric, point in points.items()
        if (row := by_name[metric]).value is not None and point.value is not None
    }

    def moved(level: Level, metric: str) -> Level:
        lo, hi = (None if end is None else end + moves[metric] for end in (level.lo, level.hi))
        return replace(level, value=level.value + moves[metric], lo=lo, hi=hi)

    quality = []
    for metric, row in by_name.items():
        if metric in moves:
            point, before = points[metric], row.previous
            previous = before and replace(before, value=(before.value or 0.0) + moves[metric], lo=None, hi=None)
            row = replace(row, value=point.value, lo=point.lo, hi=point.hi, previous=previous)
        quality.append(row)
    changes = [
        replace(shift, before=moved(shift.before, shift.metric), after=moved(shift.after, shift.metric), usually=None)
        if shift.metric in moves
        else shift
        for shift in answer.changes
    ]
    usual = {
        metric: replace(one, before=one.before + move, after=one.after + move)
        for metric, one in answer.usual.items()
        for move in (moves.get(metric, 0.0),)
    }
    return replace(answer, quality=quality, changes=changes, usual=usual)


def _evaluators(answer: RangeSummary, pinned: Sequence[str]) -> list[str]:
    """Return the evaluators that have a chart: the one that leads, then the surest change."""
    order = [answer.lead, *(shift.metric.removeprefix("quality:") for shift in answer.changes)]
    measured = [row.evaluator for row in answer.quality if row.n]
    names = [name for name in measured if not pinned or name in pinned]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))[:MAX_QUALITY]


def _width(n: int) -> int:
    """Return the number of buckets that leaves enough answers in each."""
    return next((width for width in BUCKETS if n >= width * PER_BUCKET), BUCKETS[-1])


def _kept(text: str) -> dict[str, int]:
    """Return the numbers of points in an address: those of a chart of quality by its evaluator, of the others by ``."""
    parts = (part.rpartition(":") for part in text.split(","))
    return {name: int(points) for name, _, points in parts if points in map(str, BUCKETS)}


def _width_for(requests: MetricSeries) -> int:
    return _width(sum(point.n for line in requests.series for point in line.points))


def _with_range(view: View, answer: RangeSummary, charts: Sequence[Chart]) -> list[Chart]:
    """Return the charts with the value of the whole range, where the overview has it; a chart of groups has none."""
    if view.group_by:
        return list(charts)
    (lo, hi), n, cost = answer.error_interval or (None, None), answer.n_traces, answer.cost_usd
    of_each = None if cost is None or not n else cost / n / (1.0 - (answer.cost_unknown_share or 0.0) or 1.0)
    known: dict[str, InRange] = {
        "latency_p95": InRange(answer.latency_p95),
        "requests": InRange(float(n)),
        "error_rate": InRange(answer.error_rate, lo, hi, few_errors(answer.n_errors, n)),
        "cost_usd": InRange(cost),
    }
    known |= {f"quality:{row.evaluator}": InRange(row.value, row.lo, row.hi) for row in answer.quality}
    return [replace(chart, in_range=InRange(of_each) if chart.of_each else known.get(chart.metric)) for chart in charts]


def _lead(
    view: View,
    changes: Sequence[Shift],
    metrics: Mapping[str, MetricSeries],
    targets: Sequence[TargetState],
    *,
    leading: str,
    corrected: bool,
) -> Chart | None:
    """Return the chart of the first change with the level before it, else that of the evaluator that leads."""
    shift = next((shift for shift in changes if shift.metric in metrics), None)
    metric = shift.metric if shift else f"quality:{leading}"
    if view.group_by or metric not in metrics:
        return None
    chart = _chart("lead", metric, metrics, targets, corrected=corrected)
    return replace(chart, level=shift.before.value if shift else None, tall=True)


def _told(chart: Chart, since: Mapping[str, datetime], metrics: Mapping[str, MetricSeries]) -> Chart:
    """Return the chart with the time of its change; a change of cost is one of an answer, and so is its chart."""
    chart = replace(chart, since=since.get(chart.metric))
    if chart.since is None or chart.metric != "cost_usd":
        return chart
    answers = [(label, _of_each(answer, metrics["requests"])) for label, answer in chart.answers]
    return replace(chart, answers=answers, of_each=True, bars=False)


def _of_each(sums: MetricSeries, requests: MetricSeries) -> MetricSeries:
    """Return sums as means of the requests whose value is known."""
    numbers = {(*line.group.values(), point.t): point.value or 0.0 for line in requests.series for point in line.points}

    def mean(line: Line, point: TrafficPoint) -> TrafficPoint:
        known = numbers.get((*line.group.values(), point.t), 0.0) * (1.0 - (point.unknown_share or 0.0))
        return replace(point, value=point.value / known if known and point.value is not None else None)

    lines = [
        replace(line, points=[mean(line, point) for point in cast("Sequence[TrafficPoint]", line.points)])
        for line in sums.series
    ]
    return replace(sums, series=lines)


async def _groups(site: Site, view: View, evaluators: Sequence[str], max_age: float) -> list[_GroupRow]:
    """Return one row for each group with the figures of the whole range, most requests first."""
    if not view.group_by:
        return []
    names = ["requests", "error_rate", "latency_p95", "cost_usd", *(f"quality:{name}" for name in evaluators)]
    metrics = await read_metrics(site, view, names, group_by=view.group_by, step="all", max_age=max_age)
    rows: dict[str, dict[str, Point]] = {}
    for name, metric in metrics.items():
        for line in metric.series:
            words = [str(value) if value not in (None, "") else "none" for value in line.group.values()]
            measured = [point for point in line.points if point.value is not None]
            if measured:
                rows.setdefault(" · ".join(words), {})[name] = measured[-1]
    return sorted((_GroupRow(*row) for row in rows.items()), key=lambda row: -row.requests)


async def load_demo(site: Site, request: Request) -> Response:
    """Make demo traffic and show it."""
    await site.api("POST demo", {})
    return see_other("/")


async def remove_demo(site: Site, request: Request) -> Response:
    """Delete everything of the service `demo`."""
    await site.api("DELETE demo", {})
    return see_other("/")


def _origin(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1:4318')}"


def _chart(
    key: str, metric: str, metrics: Mapping[str, MetricSeries], targets: Sequence[TargetState], *, corrected: bool
) -> Chart:
    """Return the chart of one metric."""
    return Chart(
        key=key,
        name=metric_name(metric),
        answers=[("", metrics[metric])],
        metric=metric,
        targets=targets,
        note=_correction(metrics[metric]) if corrected and metric.startswith("quality:") else "",
    )


def _correction(answer: MetricSeries) -> str:
    """Return whether people's labels corrected the figures, and how many there are."""
    labels = max((getattr(line, "labels", None) or 0 for line in answer.series), default=0)
    if any(getattr(line, "corrected", False) for line in answer.series):
        return f"corrected by {labels} labels"
    return f"not corrected: {labels} labels, 30 are needed"


def _coverage(evaluators: Sequence[str], metrics: Mapping[str, MetricSeries]) -> Chart | None:
    """Return the share of the eligible answers that each evaluator scored."""
    answers = [(metric_name(name), metrics[f"coverage:{name}"]) for name in evaluators]
    if not answers:
        return None
    return Chart(key="coverage", name="Scored share", answers=answers, metric=f"coverage:{evaluators[0]}")


def _metrics_of(view: View, key: str, names: Sequence[str]) -> Sequence[str]:
    """Return the metrics of a chart: in groups only the main one, as percentiles of every group are unreadable."""
    return (MAIN.get(key, names[0]),) if view.group_by else names


def _traffic_names(view: View) -> list[str]:
    return [name for key, _, names, _ in EFFICIENCY for name in _metrics_of(view, key, names)]


def _efficiency(view: View, metrics: Mapping[str, MetricSeries], targets: Sequence[TargetState]) -> list[Chart]:
    return [
        Chart(
            key=key,
            name=name,
            answers=[(LABELS[metric], metrics[metric]) for metric in _metrics_of(view, key, names)],
            metric=MAIN.get(key, names[0]),
            targets=targets,
            bars=bars and not view.group_by,
        )
        for key, name, names, bars in EFFICIENCY
    ]
