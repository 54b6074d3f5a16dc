"""`/`: is the pipe alive, how good are the answers, what do they cost, over time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.charts import Chart, build_chart
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]

BUCKETS: Final = 120
"""Points a chart asks for: a card is about 500 px wide, and a point with an interval needs 4."""
MAX_QUALITY: Final = 8
SHORT: Final = ("-1h", "-6h")
"""Ranges that a young store is shown by."""

EFFICIENCY: Final = (
    ("latency", "Latency", ("latency_p50", "latency_p95", "latency_p99"), False),
    ("requests", "Requests and errors", ("requests", "errors"), True),
    ("cost", "Cost", ("cost_usd",), True),
    ("tokens", "Tokens", ("input_tokens", "output_tokens"), True),
)
"""Key, title, metrics and whether bars are drawn."""
LABELS: Final = {
    "latency_p50": "p50", "latency_p95": "p95", "latency_p99": "p99", "requests": "requests", "errors": "errors",
    "cost_usd": "", "input_tokens": "input", "output_tokens": "output",
}  # fmt: skip


def routes(site: Site) -> list[BaseRoute]:
    """The overview, any chart of it alone with its whole table, and the fragment that waits for the first span."""
    return [
        site.page("/", overview),
        site.page("/figures", figures),
        site.page("/figures/rows", rows),
        site.page("/waiting", waiting),
    ]


async def overview(site: Site, request: Request) -> Response:
    """Headline strip, targets, quality charts, coverage, efficiency charts; or the three lines to paste."""
    view = await _fitting(site, read_view(request))
    corrected = request.query_params.get("corrected") == "true"
    strip, targets, efficiency = await asyncio.gather(
        site.api("GET overview", view.params()),
        site.api("GET targets", view.params()),
        asyncio.gather(*(_efficiency(site, view, *spec) for spec in EFFICIENCY)),
    )
    if strip.get("newest_span") is None and not strip.get("n_traces"):
        return site.render(request, "welcome.html", {"view": view, "origin": _origin(request)})
    pinned = request.query_params.getlist("quality")
    measured = dict.fromkeys(one["evaluator"] for one in strip.get("quality") or [] if one.get("n"))
    chosen = [name for name in measured if not pinned or name in pinned][:MAX_QUALITY]
    quality = await asyncio.gather(*(_quality(site, view, name, corrected=corrected) for name in chosen))
    context = {
        "view": view,
        "keep": {"corrected": "true"} if corrected else {},
        "strip": strip,
        "targets": targets.get("targets") or [],
        "quality": quality,
        "efficiency": efficiency,
    }
    return site.render(request, "overview.html", context)


async def figures(site: Site, request: Request) -> Response:
    """One chart with every row of its table twin."""
    return site.render(request, "figures.html", await _alone(site, request))


async def rows(site: Site, request: Request) -> Response:
    """The newest rows of a chart's table twin, for the card that the chart is on."""
    return site.render(request, "rows.html", await _alone(site, request))


async def _alone(site: Site, request: Request) -> dict[str, Any]:
    view, query = read_view(request), request.query_params
    names = query.getlist("metric")[:MAX_QUALITY] or ["requests"]
    corrected = query.get("corrected") == "true"
    answers = await asyncio.gather(*(_metrics(site, view, name, view.group_by, corrected=corrected) for name in names))
    labelled = [
        (LABELS.get(name, name) if len(names) > 1 else "", one) for name, one in zip(names, answers, strict=True)
    ]
    title = query.get("title") or names[0].replace("quality:", "")
    chart = build_chart(key="only", title=title, answers=labelled, metric=names[0])
    keep = {"metric": names, "title": title, **({"corrected": "true"} if corrected else {})}
    return {"view": view, "chart": chart, "keep": keep}


async def waiting(site: Site, request: Request) -> Response:
    """Polled by the empty page: reloads it when the first span is on disk."""
    strip = await site.api("GET overview", {"from": "-30d"})
    response = site.render(request, "parts/waiting.html", {})
    if strip.get("newest_span"):
        response.headers["HX-Refresh"] = "true"
    return response


def _origin(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1:4318')}"


async def _fitting(site: Site, view: View) -> View:
    """The range the URL asks for; where it asks for none, the shortest one that holds all there is of the day."""
    if view.given:
        return view

    async def held(**range_: str) -> bool:
        answer = await site.api("GET traces", {**view.filters, "from": view.start, "limit": 1, **range_})
        return bool(answer.get("traces"))

    anything, *older = await asyncio.gather(held(), *(held(to=start) for start in SHORT))
    fitting = next((start for start, found in zip(SHORT, older, strict=True) if not found), view.start)
    return replace(view, start=fitting) if anything else view


async def _metrics(
    site: Site, view: View, name: str, group_by: Sequence[str], *, corrected: bool = False
) -> Mapping[str, Any]:
    params = {**view.params(), "name": name, "step": "auto", "width": BUCKETS, "group_by": list(group_by)}
    answer: Mapping[str, Any] = await site.api("GET metrics", params | ({"corrected": "true"} if corrected else {}))
    return {**answer, "name": name}


async def _quality(site: Site, view: View, evaluator: str, *, corrected: bool) -> Chart:
    metric = f"quality:{evaluator}"
    answer = await _metrics(site, view, metric, view.group_by, corrected=corrected)
    note = _correction(answer.get("series") or []) if corrected else ""
    key = metric.replace(":", "-")
    return build_chart(key=key, title=evaluator, answers=[("", answer)], metric=metric, note=note)


def _correction(series: Sequence[Mapping[str, Any]]) -> str:
    """Whether people's labels moved the newest line, and how many there are."""
    labels = max((one.get("labels") or 0 for one in series), default=0)
    if any(one.get("corrected") for one in series):
        return f"corrected by {labels} labels"
    return f"not corrected: {labels} labels, 30 are needed"


async def _efficiency(site: Site, view: View, key: str, title: str, names: Sequence[str], bars: bool) -> Chart:
    """Grouped, three percentiles of every group are unreadable: one metric stands for the chart."""
    shown = names if not view.group_by else (names[1] if key == "latency" else names[0],)
    answers = await asyncio.gather(*(_metrics(site, view, name, view.group_by) for name in shown))
    labelled = [(LABELS[name], answer) for name, answer in zip(shown, answers, strict=True)]
    metric = "latency_p95" if key == "latency" else shown[0]
    return build_chart(key=key, title=title, answers=labelled, metric=metric, bars=bars and not view.group_by)
