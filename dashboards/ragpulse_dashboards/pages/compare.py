"""`/compare`: two versions, prompts, models or replays, and a verdict that may be "not enough data"."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards import ApiError
from ragpulse_dashboards.site import SELECTORS, Site, View, read_view

if TYPE_CHECKING:
    from ragpulse_collector.analysis.series import MetricSeries
    from ragpulse_collector.api.handlers.rules import EvaluatorList
    from ragpulse_collector.evaluation.replay import ReplayList

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """Return the page."""
    return [site.page("/compare", compare, reads=("a", "b", "by", "evaluator"))]


async def compare(site: Site, request: Request) -> Response:
    """Show the form and, with two sides, the difference with its interval and the answers that changed most."""
    view, query = read_view(request), request.query_params
    a, b, evaluator, by = (query.get(name, "").strip() for name in ("a", "b", "evaluator", "by"))
    registry, replays, in_use = await asyncio.gather(
        site.api("GET evaluators", {}), site.api("GET replays", {}), site.evaluators_in_use()
    )
    judged_by = evaluator or next(iter(in_use), "")
    suggestions = await _suggestions(site, view, judged_by) if judged_by else []
    answer, problem = None, None
    if a and b:
        options = {name: value for name, value in (("evaluator", evaluator), ("by", by)) if value}
        try:
            answer = await site.api("GET compare", {**view.params(), "a": a, "b": b, **options})
        except ApiError as error:  # the form stays, so that another choice is one field away
            problem = error
    context = {
        "view": view,
        "a": a,
        "b": b,
        "evaluator": evaluator,
        "by": by,
        "answer": answer,
        "problem": problem and problem.message,
        "sides": [_side_url(view, side) for side in (a, b)],
        "evaluators": in_use,
        "judged_by": judged_by,
        "suggestions": [*(selector for group in suggestions for selector in group), *_versions(registry, replays)],
        "pairs": [sorted(group[:2]) for group in suggestions if len(group) > 1],
    }
    return site.render(request, "compare.html", context, status=problem.status if problem else 200)


def _side_url(view: View, selector: str) -> str:
    """Return the link to the traces of a selector, or to its replay."""
    kind, _, value = selector.partition(":")
    if kind == "run":
        return f"/replays/{quote(value, safe='')}"
    column = {"prompt": "prompt_version"}.get(kind, kind)
    return view.url("/traces", **({column: value} if value else {"evaluator": selector.partition("@")[0]}))


async def _suggestions(site: Site, view: View, evaluator: str) -> list[list[str]]:
    """Return selectors of scored answers in the range, one list for each dimension, most scored first."""
    params = {**view.params(), "name": f"quality:{evaluator}", "step": "all"}
    answers: Sequence[MetricSeries] = await asyncio.gather(
        *(site.api("GET metrics", {**params, "group_by": [name]}) for name in SELECTORS)
    )
    suggestions = []
    for (name, kind), answer in zip(SELECTORS.items(), answers, strict=True):
        scored: Counter[str] = Counter()
        for line in answer.series:
            scored[str(line.group.get(name) or "")] += sum(point.n for point in line.points)
        values = sorted(
            (value for value, n in scored.items() if value and n), key=lambda value: (-scored[value], value)
        )
        suggestions.append([f"{kind}:{value}" for value in values])
    return suggestions


def _versions(registry: EvaluatorList, replays: ReplayList) -> list[str]:
    """Return the evaluator versions that rules run or replays ran, and the replays themselves."""
    runs = [run for run in replays.replays if run.ok]
    versions = [(item.name, item.version) for item in registry.evaluators if item.online]
    versions += [(run.evaluator, run.version) for run in runs]
    names = dict.fromkeys(f"{name}@{version[:12]}" for name, version in versions if version)
    return [*names, *(f"run:{run.run_id}" for run in runs)]
