"""`/figures`: a chart alone; `/exemplars`: the traces behind one point of it; `/worst`: those since a change."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.charts import LABELS, Chart, read_metrics
from ragpulse_dashboards.evidence import find_sentences
from ragpulse_dashboards.formats import iso, parse_time
from ragpulse_dashboards.site import Site, segment
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]

MOST: Final = 8
"""Metrics of one chart."""
WORST: Final = 5


def routes(site: Site) -> list[BaseRoute]:
    """Pages of their own, and what is put below a chart, into the drawer or into a card of the overview."""
    return [
        site.page("/figures", figures),
        site.page("/figures/rows", rows),
        site.page("/exemplars", exemplars),
        site.page("/worst", worst),
    ]


async def figures(site: Site, request: Request) -> Response:
    """One chart with every row of its table twin."""
    return site.render(request, "figures.html", await _alone(site, request))


async def rows(site: Site, request: Request) -> Response:
    """The newest rows of a chart's table twin, for the card that the chart is on."""
    return site.render(request, "rows.html", await _alone(site, request))


async def _alone(site: Site, request: Request) -> dict[str, Any]:
    view, query = read_view(request), request.query_params
    names = query.getlist("metric")[:MOST] or ["requests"]
    corrected = query.get("corrected") == "true"
    watched, answers = await asyncio.gather(
        site.api("GET targets", view.params()),
        read_metrics(site, view, names, group_by=view.group_by, corrected=corrected, step=query.get("step") or "auto"),
    )
    labelled = [
        (LABELS.get(name, name.partition(":")[2]) if len(names) > 1 else "", one) for name, one in answers.items()
    ]
    title = query.get("title") or ", ".join(name.replace("quality:", "") for name in names).replace("_", " ")
    targets = watched["targets"]
    chart = Chart(key="only", name=title, answers=labelled, metric=names[0], targets=targets)
    keep = {"metric": names, "title": title, **({"corrected": "true"} if corrected else {})}
    return {"view": view, "chart": chart, "keep": keep}


async def exemplars(site: Site, request: Request) -> Response:
    """Three short lists; each row opens its trace."""
    view, query = read_view(request), request.query_params
    name = query.get("metric", "requests").replace("coverage:", "quality:")  # what was not scored has no worst
    point = {"name": name, "t": query.get("t", ""), "step": query.get("step", "")}
    answer = await site.api(
        "GET exemplars", {**view.params(), **{name: value for name, value in point.items() if value}}
    )
    groups = [(name, answer.get(name) or []) for name in ("worst", "median", "best")]
    context = {"view": view, "point": point, "groups": groups, "all_url": _all_url(view, point)}
    return site.render(request, "exemplars.html", context)


def _all_url(view: View, point: Mapping[str, str]) -> str:
    """The list of every trace of the bucket, in the order that the figure is about; empty where it has no end."""
    start = parse_time(point["t"])
    if start is None or not point["step"].isdecimal():
        return ""
    family, _, evaluator = point["name"].partition(":")
    order = {"evaluator": evaluator, "sort": "worst"} if evaluator else {"sort": "slow"} if "latency" in family else {}
    error = {"error": "true"} if family == "error_rate" else {}
    end = iso(start + timedelta(seconds=int(point["step"])))
    return view.url("/traces", from_=iso(start), to=end, group_by=None, back=None, **order, **error)


async def worst(site: Site, request: Request) -> Response:
    """The five worst answers of an evaluator, each with its worst sentence and document; and what many share."""
    view, evaluator = read_view(request), segment(request.query_params.get("evaluator", ""))
    since = view.params() | {"from": request.query_params.get("since") or view.start}
    listed, shared = await asyncio.gather(
        site.api("GET traces", {**since, "evaluator": evaluator, "sort": "worst", "limit": WORST}),
        site.api("GET explain", {**since, "metric": f"quality:{evaluator}", "bad": True}),
    )
    rows = listed["traces"]
    details = await asyncio.gather(
        *(site.api(f"GET traces/{one['trace_id']}", {"at": one["start_time"]}) for one in rows)
    )
    documents = [one for one in shared["attributes"] if one["attribute"] == "document"]
    lifted = [one for one in documents if one["selected"]["share"] >= 2 * one["baseline"]["share"]]
    because = max(lifted, key=lambda one: one["selected"]["share"] - one["baseline"]["share"], default=None)
    named = because["value"] if because else None
    answers = [_offending(row, detail, named) for row, detail in zip(rows, details, strict=True)]
    context = {"view": view, "evaluator": evaluator, "answers": answers, "because": because,
               "n_bad": shared.get("n_selected"), "since": since["from"]}  # fmt: skip
    return site.render(request, "worst.html", context)


def _offending(row: Mapping[str, Any], detail: Mapping[str, Any], shared: str | None) -> dict[str, Any]:
    """The question, the sentence that is supported least, and the document: the shared one, else the closest."""
    sentences = [one for one in find_sentences(detail["scores"]) if one["claim"] and not one["supported"]]
    least = min(sentences, key=lambda one: one.get("score") or 0.0, default=None)
    contexts = detail["contexts"]
    place = least["context"] if least else None
    closest = contexts[place].get("id") if isinstance(place, int) and 0 <= place < len(contexts) else None
    return {
        "row": row,
        "sentence": least and least["text"],
        "document": shared if any(one.get("id") == shared for one in contexts) else closest,
    }
