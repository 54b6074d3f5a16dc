"""`/`: what changed, the worst answers, what does it cost; then every metric over time."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.charts import LABELS, PER, WIDTH, Chart, fitting, read_metrics
from ragpulse_dashboards.formats import metric_name, parse_time
from ragpulse_dashboards.happened import in_words
from ragpulse_dashboards.site import Site, see_other
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]

BUCKETS: Final = (WIDTH, 48, 24, 12)
"""Points a chart may ask for."""
PER_BUCKET: Final = 30
"""Answers that a point should rest on."""
MAX_QUALITY: Final = 8
MAX_AGE_S: Final = 300.0
"""Figures up to this age are shown at once; the page says so and asks for newer ones when it is painted."""
FRESH_S: Final = 5.0
"""Figures up to this age are as good as new."""
SLOW_S: Final = 0.02
"""Where the traffic alone takes so long to read, the rest takes six times that: the page comes without."""

EFFICIENCY: Final = (
    ("latency", "Latency", ("latency_p50", "latency_p95", "latency_p99"), False),
    ("requests", "Requests", ("requests",), True),
    ("error-rate", "Error rate", ("error_rate",), False),
    ("cost", "Cost", ("cost_usd",), True),
    ("tokens", "Tokens", ("input_tokens", "output_tokens"), True),
)
"""Key, title, metrics and whether bars are drawn."""
MIDDLE: Final = {"latency": "latency_p95"}
"""What stands for a chart of several metrics."""


def routes(site: Site) -> list[BaseRoute]:
    """The overview, its fragments, and generated traffic for users without an application at hand."""
    return [
        site.page("/", overview),
        site.page("/steady", steady),
        site.page("/waiting", waiting),
        site.page("/demo", load_demo, post=True),
        site.page("/demo/remove", remove_demo, post=True),
    ]


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """Everything the overview shows, read at one time."""

    view: View
    strip: Mapping[str, Any]
    targets: Sequence[Mapping[str, Any]]
    quality: Sequence[Chart]
    efficiency: Sequence[Chart]
    coverage: Chart | None
    lead: Chart | None = None
    """The metric that changed most, large."""
    groups: Sequence[Mapping[str, Any]] = ()
    """Grouped: what each group says, one row each."""
    whole: bool = True
    """False: the traffic only, the scores are still to be read."""


async def overview(site: Site, request: Request) -> Response:
    """What changed, steady facts, the worst answers, charts, coverage; or the three lines to paste."""
    asked, query = read_view(request), request.query_params
    corrected = query.get("corrected") == "true"
    max_age = _max_age(site, request)
    first = await _first(site, asked, max_age) if _asks_again(request) else None
    figures = first or await _read(site, asked, pinned=query.getlist("quality"), corrected=corrected, max_age=max_age)
    if figures.strip.get("newest_span") is None and not figures.strip.get("n_traces"):
        return site.render(request, "welcome.html", {"view": figures.view, "origin": _origin(request)})
    context = {
        **vars(figures),
        **in_words(figures.view, figures.strip, figures.targets),
        "keep": {"corrected": "true"} if corrected else {},
        "age_s": _age(figures.strip),
        "coverage_of": {one["evaluator"]: one for one in figures.strip.get("coverage") or []},
        "tables": "whole" in query,
        "whole_url": "/?" + request.url.include_query_params(whole="true").query,
    }
    return site.render(request, "overview.html", context)


def _max_age(site: Site, request: Request) -> float:
    """Seconds: a visit is shown what is there; a reload, or the page that asks for the rest, waits for the newest."""
    fragment = request.headers.get("hx-request-type") == "partial"
    if fragment or "no-cache" in request.headers.get("cache-control", ""):
        return 0.0
    return min(MAX_AGE_S, time.monotonic() - site.posted_at)


def _age(strip: Mapping[str, Any]) -> float:
    """How old the figures are in seconds; 0 for those that are as good as new."""
    read = parse_time(strip.get("as_of"))
    age = (datetime.now(UTC) - read).total_seconds() if read else 0.0
    return age if age > FRESH_S else 0.0


def _asks_again(request: Request) -> bool:
    """Whether it is a browser's visit, which can ask for the rest: by script, or sent on to `whole` without one."""
    return request.headers.get("sec-fetch-mode") == "navigate" and "whole" not in request.query_params


async def _first(site: Site, asked: View, max_age: float) -> _Figures | None:
    """The traffic alone, one pass over the requests; None where that is so quick that the rest is worth waiting for."""
    begun = time.monotonic()
    requests = (await read_metrics(site, asked, ["requests"], max_age=max_age))["requests"]
    if time.monotonic() - begun < SLOW_S or not any(one["points"] for one in requests["series"]):
        return None
    view = fitting(asked, requests)
    strip = await site.api("GET overview", {**view.params(), "only": "traffic", "max_age": max_age})
    charts = _efficiency(
        view, await read_metrics(site, view, _traffic_names(view), group_by=view.group_by, max_age=max_age), ()
    )
    return _Figures(view=view, strip=strip, targets=(), quality=(), efficiency=charts, coverage=None, whole=False)


async def _read(site: Site, asked: View, *, pinned: Sequence[str], corrected: bool, max_age: float) -> _Figures:
    """Traffic first, because it says which range and how many points fit."""
    requests = (await read_metrics(site, asked, ["requests"], max_age=max_age))["requests"]
    view, width = fitting(asked, requests), _width(_total(requests))
    strip, answer = await asyncio.gather(
        site.api("GET overview", {**view.params(), "max_age": max_age}),  # a change is looked for in finer buckets
        site.api("GET targets", view.params()),
    )
    chosen, covered = _chosen(strip, pinned), [one["evaluator"] for one in strip["coverage"]]
    covered = covered[: 1 if view.group_by else MAX_QUALITY]
    asking = (
        read_metrics(site, view, some, group_by=view.group_by, corrected=corrected, width=most, max_age=max_age)
        for most, some in _by_width(view, strip, chosen, covered, width).items()
    )
    answers = {name: one for found in await asyncio.gather(*asking) for name, one in found.items()}
    targets, groups = answer["targets"], await _groups(site, view, chosen, max_age)
    lead = _lead(view, strip["changes"], answers, targets, corrected=corrected)
    small = [name for name in chosen if lead is None or lead.metric != f"quality:{name}"]
    return _Figures(
        view=view, strip=strip, targets=targets, lead=lead, groups=groups,
        quality=_quality(small, answers, targets, corrected=corrected),
        efficiency=_efficiency(view, answers, targets), coverage=_coverage(covered, answers),
    )  # fmt: skip


def _chosen(strip: Mapping[str, Any], pinned: Sequence[str]) -> list[str]:
    """The evaluators that have a chart: those that changed first."""
    order = [one["metric"].removeprefix("quality:") for one in strip["changes"]]
    measured = (one["evaluator"] for one in strip["quality"] if one["n"])
    wanted = (name for name in measured if not pinned or name in pinned)
    return sorted(wanted, key=lambda name: order.index(name) if name in order else len(order))[:MAX_QUALITY]


def _by_width(
    view: View, strip: Mapping[str, Any], chosen: Sequence[str], covered: Sequence[str], width: int
) -> dict[int, list[str]]:
    """The metrics to ask for by their number of buckets: an evaluator with few answers has few."""
    found = {width: [*_traffic_names(view), *(f"coverage:{name}" for name in covered)]}
    answers = {one["evaluator"]: one["n"] for one in strip["quality"]}
    for name in chosen:
        found.setdefault(min(width, _width(answers[name])), []).append(f"quality:{name}")
    return found


def _total(requests: Mapping[str, Any]) -> int:
    return sum(point["n"] or 0 for one in requests["series"] for point in one["points"])


def _width(n: int) -> int:
    """The number of buckets that leaves enough answers in each."""
    return next((width for width in BUCKETS if n >= width * PER_BUCKET), BUCKETS[-1])


def _lead(
    view: View,
    shifts: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Any],
    targets: Sequence[Mapping[str, Any]],
    *,
    corrected: bool,
) -> Chart | None:
    """The metric of the surest change with the level before it; a sum is drawn as a rate, and its level is not."""
    shift = next((one for one in shifts if one["metric"] in answers), None)
    if shift is None or view.group_by:
        return None
    metric = shift["metric"]
    return Chart(
        key="lead",
        name=metric_name(metric).capitalize(),
        answers=[("", answers[metric])],
        metric=metric,
        targets=targets,
        note=_correction(answers[metric].get("series") or []) if corrected and metric.startswith("quality:") else "",
        level=None if metric in PER else shift["before"]["value"],
        tall=True,
    )


async def _groups(site: Site, view: View, evaluators: Sequence[str], max_age: float) -> list[dict[str, Any]]:
    """One row a group: what the whole range says of each, most requests first."""
    if not view.group_by:
        return []
    names = ["requests", "error_rate", "latency_p95", "cost_usd", *(f"quality:{name}" for name in evaluators)]
    answers = await read_metrics(site, view, names, group_by=view.group_by, step="all", max_age=max_age)
    rows: dict[str, dict[str, Any]] = {}
    for name, answer in answers.items():
        for one in answer["series"]:
            words = [str(value) if value not in (None, "") else "none" for value in one["group"].values()]
            measured = [point for point in one["points"] if point.get("value") is not None]
            if measured:
                rows.setdefault(" · ".join(words), {})[name] = measured[-1]
    ranked = sorted(rows.items(), key=lambda row: -(row[1].get("requests") or {}).get("value", 0.0))
    return [{"group": group, "figures": figures} for group, figures in ranked]


async def steady(site: Site, request: Request) -> Response:
    """The sentences and facts alone, for a page that stays open."""
    view = read_view(request)
    strip, answer = await asyncio.gather(
        site.api("GET overview", view.params()), site.api("GET targets", view.params())
    )
    return site.render(request, "steady.html", {"view": view, **in_words(view, strip, answer["targets"])})


async def waiting(site: Site, request: Request) -> Response:
    """Polled by the empty page: reloads it when the first span is on disk."""
    strip = await site.api("GET overview", {"from": "-30d"})
    response = site.render(request, "parts/waiting.html", {})
    if strip.get("newest_span"):
        response.headers["HX-Refresh"] = "true"
    return response


async def load_demo(site: Site, request: Request) -> Response:
    """Make the traffic and look at it."""
    await site.api("POST demo", {})
    return see_other("/")


async def remove_demo(site: Site, request: Request) -> Response:
    """Delete everything of the service `demo`."""
    await site.api("DELETE demo", {})
    return see_other("/")


def _origin(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1:4318')}"


def _quality(
    evaluators: Sequence[str], answers: Mapping[str, Any], targets: Sequence[Mapping[str, Any]], *, corrected: bool
) -> list[Chart]:
    return [
        Chart(
            key=f"quality-{name}",
            name=metric_name(name),
            answers=[("", answers[f"quality:{name}"])],
            metric=f"quality:{name}",
            targets=targets,
            note=_correction(answers[f"quality:{name}"].get("series") or []) if corrected else "",
        )
        for name in evaluators
    ]


def _correction(series: Sequence[Mapping[str, Any]]) -> str:
    """Whether people's labels moved the newest line, and how many there are."""
    labels = max((one.get("labels") or 0 for one in series), default=0)
    if any(one.get("corrected") for one in series):
        return f"corrected by {labels} labels"
    return f"not corrected: {labels} labels, 30 are needed"


def _coverage(evaluators: Sequence[str], answers: Mapping[str, Any]) -> Chart | None:
    """The share of the eligible answers that each evaluator scored; grouped, one evaluator stands for the chart."""
    labelled = [(name, answers[f"coverage:{name}"]) for name in evaluators]
    if not labelled:
        return None
    return Chart(key="coverage", name="Scored share", answers=labelled, metric=f"coverage:{evaluators[0]}")


def _shown(view: View, key: str, names: Sequence[str]) -> Sequence[str]:
    """Grouped, three percentiles of every group are unreadable: one metric stands for the chart."""
    return (MIDDLE.get(key, names[0]),) if view.group_by else names


def _traffic_names(view: View) -> list[str]:
    return [name for key, _, names, _ in EFFICIENCY for name in _shown(view, key, names)]


def _efficiency(view: View, answers: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[Chart]:
    return [
        Chart(
            key=key,
            name=title,
            answers=[(LABELS[name], answers[name]) for name in _shown(view, key, names)],
            metric=MIDDLE.get(key, names[0]),
            targets=targets,
            bars=bars and not view.group_by,
        )
        for key, title, names, bars in EFFICIENCY
    ]
