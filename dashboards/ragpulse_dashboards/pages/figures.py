"""`/figures`: one chart; `/exemplars`: the traces behind a point of it; `/worst`: the worst answers since a change."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.answer import find_sentences
from ragpulse_dashboards.charts import LABELS, Chart, read_metrics
from ragpulse_dashboards.formats import iso, metric_name, parse_time
from ragpulse_dashboards.site import Site, View, read_view, segment

__all__ = ["routes"]

MAX_METRICS: Final = 8
WORST: Final = 5


def routes(site: Site) -> list[BaseRoute]:
    """Return the pages, which are also fragments: below a chart, in the drawer, in a card of the overview."""
    return [
        site.page("/figures", figures),
        site.page("/figures/rows", rows),
        site.page("/exemplars", exemplars),
        site.page("/worst", worst),
    ]


async def figures(site: Site, request: Request) -> Response:
    """Show one chart with every row of its table twin."""
    return site.render(request, "figures.html", await _chart(site, request))


async def rows(site: Site, request: Request) -> Response:
    """Show the newest rows of a chart's table twin."""
    return site.render(request, "rows.html", await _chart(site, request))


async def _chart(site: Site, request: Request) -> dict[str, Any]:
    view, query = read_view(request), request.query_params
    names = query.getlist("metric")[:MAX_METRICS] or ["requests"]
    corrected = query.get("corrected") == "true"
    watched, metrics = await asyncio.gather(
        site.api("GET targets", view.params()),
        read_metrics(site, view, names, group_by=view.group_by, corrected=corrected, step=query.get("step") or "auto"),
    )
    answers = [(LABELS.get(name, metric_name(name)) if len(names) > 1 else "", metrics[name]) for name in metrics]
    title = query.get("title") or ", ".join(metric_name(name) for name in names)
    chart = Chart(key="only", name=title, answers=answers, metric=names[0], targets=watched.targets)
    extra = {"metric": names, "title": title, **({"corrected": "true"} if corrected else {})}
    return {"view": view, "chart": chart, "extra": extra}


async def exemplars(site: Site, request: Request) -> Response:
    """Show three short lists; each row opens its trace."""
    view, query = read_view(request), request.query_params
    name = query.get("metric", "requests").replace("coverage:", "quality:")  # an unscored answer has no rank
    point = {"name": name, "t": query.get("t", ""), "step": query.get("step", "")}
    params = {**view.params(), **{name: value for name, value in point.items() if value}}
    answer = await site.api("GET exemplars", params)
    groups = [(name, answer[name]) for name in ("worst", "median", "best")]
    context = {"view": view, "point": point, "groups": groups, "all_url": _all_url(view, point)}
    return site.render(request, "exemplars.html", context)


def _all_url(view: View, point: Mapping[str, str]) -> str:
    """Return the link to every trace of the bucket, the worst first; empty where the bucket has no end."""
    start = parse_time(point["t"])
    if start is None or not point["step"].isdecimal():
        return ""
    family, _, evaluator = point["name"].partition(":")
    order = {"evaluator": evaluator, "sort": "worst"} if evaluator else {"sort": "slow"} if "latency" in family else {}
    error = {"error": "true"} if family == "error_rate" else {}
    end = iso(start + timedelta(seconds=int(point["step"])))
    return view.url("/traces", from_=iso(start), to=end, group_by=None, back=None, **order, **error)


async def worst(site: Site, request: Request) -> Response:
    """Show the worst answers of an evaluator, each with its worst sentence and document, and their common cause."""
    view, evaluator = read_view(request), segment(request.query_params.get("evaluator", ""))
    since = view.params() | {"from": request.query_params.get("since") or view.start}
    listed, explained = await asyncio.gather(
        site.api("GET traces", {**since, "evaluator": evaluator, "sort": "worst", "limit": WORST}),
        site.api("GET explain", {**since, "metric": f"quality:{evaluator}", "bad": True}),
    )
    traces = listed["traces"]
    details = await asyncio.gather(
        *(site.api(f"GET traces/{row['trace_id']}", {"at": row["start_time"]}) for row in traces)
    )
    lifted = [
        row
        for row in explained.attributes
        if row.attribute == "document" and row.selected.share >= 2 * row.baseline.share
    ]
    cause = max(lifted, key=lambda row: row.selected.share - row.baseline.share, default=None)
    common = cause.value if cause else None
    context = {
        "view": view,
        "evaluator": evaluator,
        "answers": [_worst_sentence(row, detail, common) for row, detail in zip(traces, details, strict=True)],
        "cause": cause,
        "n_bad": explained.n_selected,
        "since": since["from"],
    }
    return site.render(request, "worst.html", context)


def _worst_sentence(row: Mapping[str, Any], detail: Mapping[str, Any], common: str | None) -> dict[str, Any]:
    """Return the least supported sentence of an answer, and the common document or else the closest one."""
    sentences = [
        item for item in find_sentences(detail["scores"]) if item["claim"] and item["support"] == "unsupported"
    ]
    least = min(sentences, key=lambda item: item.get("score") or 0.0, default={})
    contexts, index = detail["contexts"], least.get("context")
    closest = contexts[index].get("id") if isinstance(index, int) and 0 <= index < len(contexts) else None
    return {
        "row": row,
        "sentence": least.get("text"),
        "document": common if common and any(context.get("id") == common for context in contexts) else closest,
    }
