"""`/figures`: one chart; `/exemplars`: the traces behind a point of it; `/worst`: the worst answers since a change.

`/failures`: what went wrong.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.exemplars import ExemplarTraces
from ragpulse_collector.analysis.explain import Explanation
from ragpulse_collector.analysis.failures import Failures
from ragpulse_collector.operations.trace import TraceParts
from ragpulse_collector.operations.traces import TracePage
from ragpulse_collector.store.queries.scored_traces import ScoredTrace
from ragpulse_collector.words.figures import metric_name
from ragpulse_collector.words.times import iso, parse_time
from ragpulse_dashboards.answer import find_sentences
from ragpulse_dashboards.charts import LABELS, Chart, read_metrics
from ragpulse_dashboards.site import Site, View, read_view, segment

MAX_METRICS: Final = 8
WORST: Final = 5
_CHART: Final = ("metric", "title", "corrected", "step")
"""Parameters of a chart."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the pages, which are also fragments: below a chart, in the drawer, in a card of the overview."""
    return [
        site.page("/figures", figures, reads=_CHART),
        site.page("/figures/rows", rows, reads=_CHART),
        site.page("/exemplars", exemplars, reads=("metric", "step", "t")),
        site.page("/worst", worst, reads=("evaluator", "since")),
        site.page("/failures", failures),
    ]


async def figures(site: Site, request: Request) -> Response:
    """Show one chart with every row of its table twin."""
    return await _render(site, request, "figures.html")


async def rows(site: Site, request: Request) -> Response:
    """Show the newest rows of a chart's table twin."""
    return await _render(site, request, "rows.html")


async def _render(site: Site, request: Request, template: str) -> Response:
    """Render a chart of the metrics that the request names."""
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
    return site.render(request, template, {"view": view, "chart": chart, "extra": extra})


async def exemplars(site: Site, request: Request) -> Response:
    """Show three short lists; each row opens its trace."""
    view, query = read_view(request), request.query_params
    name = query.get("metric", "requests").replace("coverage:", "quality:")  # an unscored answer has no rank
    point = {"name": name, "t": query.get("t", ""), "step": query.get("step", "")}
    params = {**view.params(), **{name: value for name, value in point.items() if value}}
    answer: ExemplarTraces = await site.api("GET exemplars", params)
    groups = [("worst", answer.worst), ("median", answer.median), ("best", answer.best)]
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


async def failures(site: Site, request: Request) -> Response:
    """Show the share of each kind of failure."""
    view = read_view(request)
    answer: Failures = await site.api("GET failures", view.params())
    return site.render(request, "failures.html", {"view": view, "failures": answer.failures, "lead": answer.lead})


async def worst(site: Site, request: Request) -> Response:
    """Show the worst answers of an evaluator, each with its worst sentence and document, and their common cause."""
    view, evaluator = read_view(request), segment(request.query_params.get("evaluator", ""))
    changed = request.query_params.get("since")
    since = view.params() | {"from": changed or view.start}
    listed: TracePage = await site.api(
        "GET traces", {**since, "evaluator": evaluator, "sort": "worst", "limit": 10 * WORST}
    )
    explained: Explanation | None = None
    if changed:
        explained = await site.api("GET explain", {**since, "metric": f"quality:{evaluator}", "bad": True})
    once: dict[str, ScoredTrace] = {}  # a question that many ask stands for them all
    for row in listed.traces:
        once.setdefault(row.query or row.trace_id, row)
    rows = list(once.values())[:WORST]
    details: Sequence[TraceParts] = await asyncio.gather(
        *(site.api(f"GET traces/{row.trace_id}", {"at": row.start_time}) for row in rows)
    )
    lifted = [
        row
        for row in (explained.attributes if explained else ())
        if row.attribute == "document" and row.selected.share >= 2 * row.baseline.share
    ]
    cause = max(lifted, key=lambda row: row.selected.share - row.baseline.share, default=None)
    common = cause.value if cause else None
    context = {
        "view": view,
        "evaluator": evaluator,
        "answers": [_worst_sentence(row, detail, common) for row, detail in zip(rows, details, strict=True)],
        "cause": cause,
        "n_bad": explained.n_selected if explained else 0,
        "since": since["from"],
    }
    return site.render(request, "worst.html", context)


class WorstAnswer(NamedTuple):
    """An answer with its least supported sentence, and the common document or else the closest one."""

    row: "ScoredTrace"
    sentence: str | None
    document: str | None


def _worst_sentence(row: "ScoredTrace", parts: "TraceParts", common: str | None) -> WorstAnswer:
    sentences = [
        item for item in find_sentences(parts.scores, parts.lead) if item.claim and item.support == "unsupported"
    ]
    least = min(sentences, key=lambda item: item.score or 0.0, default=None)
    index = least.context if least else None
    closest = parts.contexts[index].id if index is not None and 0 <= index < len(parts.contexts) else None
    document = common if common and any(context.id == common for context in parts.contexts) else closest
    return WorstAnswer(row, least.text if least else None, document)
