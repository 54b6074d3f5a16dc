"""`/compare`: two versions, prompts, models or runs; a verdict that may be "not enough data"."""

import asyncio
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]

KINDS: Final = {"prompt_version": "prompt", "model": "model", "variant": "variant", "service": "service"}
"""Dimensions that can be compared, and their word in a selector."""


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/compare", compare)]


async def compare(site: Site, request: Request) -> Response:
    """The form alone, or the difference with its interval and the answers that changed sides."""
    view, query = read_view(request), request.query_params
    a, b, evaluator, by = (query.get(name, "").strip() for name in ("a", "b", "evaluator", "by"))
    known, replays, evaluators = await asyncio.gather(
        site.api("GET evaluators", {}), site.api("GET replays", {}), site.in_use()
    )
    judged_by = evaluator or next(iter(evaluators), "")
    suggestions = await _suggestions(site, view, judged_by) if judged_by else {}
    answer, problem = None, None
    if a and b:
        chosen = {name: value for name, value in (("evaluator", evaluator), ("by", by)) if value}
        try:
            answer = await site.api("GET compare", {**view.params(), "a": a, "b": b, **chosen})
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
        "sides": [_rows_of(view, one) for one in (a, b)],
        "evaluators": evaluators,
        "judged_by": judged_by,
        "suggestions": [*(one for found in suggestions.values() for one in found), *_versions(known, replays)],
        "pairs": [sorted(found[:2]) for found in suggestions.values() if len(found) > 1],
    }
    return site.render(request, "compare.html", context, status=problem.status if problem else 200)


def _rows_of(view: View, selector: str) -> str:
    """The traces that a selector stands for, or the replay."""
    kind, _, value = selector.partition(":")
    if kind == "run":
        return f"/replays/{quote(value, safe='')}"
    column = {"prompt": "prompt_version"}.get(kind, kind)
    filters = {column: value} if value else {"evaluator": selector.partition("@")[0]}
    return view.url("/traces", **filters)


async def _suggestions(site: Site, view: View, evaluator: str) -> dict[str, list[str]]:
    """Selectors as `ragpulse compare` takes them, of what the evaluator has scored in the range, most scored first."""
    params = {**view.params(), "name": f"quality:{evaluator}", "step": "all"}
    answers = await asyncio.gather(*(site.api("GET metrics", {**params, "group_by": [name]}) for name in KINDS))
    found: dict[str, dict[str, int]] = {word: {} for word in KINDS.values()}
    for (name, word), answer in zip(KINDS.items(), answers, strict=True):
        for line in answer["series"]:
            value, n = (line.get("group") or {}).get(name), sum(point.get("n") or 0 for point in line["points"])
            if value and n:
                found[word][value] = found[word].get(value, 0) + n
    return {
        word: [f"{word}:{value}" for value in sorted(counts, key=lambda one: (-counts[one], one))]
        for word, counts in found.items()
    }


def _versions(known: dict[str, Any], replays: dict[str, Any]) -> list[str]:
    """Evaluator versions in force or replayed, and the replays themselves."""
    runs = replays["replays"]
    used = [one for one in known["evaluators"] if one.get("online")]
    versions = [(one.get("name"), one.get("version")) for one in used]
    runs = [run for run in runs if run.get("ok")]
    versions += [(run.get("evaluator"), run.get("version")) for run in runs]
    named = dict.fromkeys(f"{name}@{str(version)[:12]}" for name, version in versions if name and version)
    return [*named, *(f"run:{run['run_id']}" for run in runs if run.get("run_id"))]
