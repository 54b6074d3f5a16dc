"""`/compare`: two versions, prompts, models or runs; a verdict that may be "not enough data"."""

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/compare", compare)]


async def compare(site: Site, request: Request) -> Response:
    """The form alone, or the difference with its interval and the answers that changed sides."""
    view, query = read_view(request), request.query_params
    a, b, evaluator, by = (query.get(name, "").strip() for name in ("a", "b", "evaluator", "by"))
    facets, known, replays = await asyncio.gather(
        site.api("GET traces", {**view.params(), "limit": 1, "facets": "true"}),
        site.api("GET evaluators", {}),
        site.api("GET replays", {}),
    )
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
        "evaluators": [one["name"] for one in known.get("evaluators") or [] if one.get("online")],
        "suggestions": [*(suggestions := _suggestions(facets.get("facets") or {})), *_versions(known, replays)],
        "pairs": _pairs(suggestions),
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


def _suggestions(facets: dict[str, list[dict[str, object]]]) -> list[str]:
    """Selectors as `ragpulse compare` takes them, from what is in the range."""
    kinds = (("prompt_version", "prompt"), ("model", "model"), ("variant", "variant"))
    return [f"{word}:{one['value']}" for name, word in kinds for one in facets.get(name) or [] if one.get("value")]


def _versions(known: dict[str, Any], replays: dict[str, Any]) -> list[str]:
    """Evaluator versions in force or replayed, and the replays themselves."""
    runs = replays.get("replays") or []
    used = [one for one in known.get("evaluators") or [] if one.get("online")]
    versions = [(one.get("name"), one.get("version")) for one in used]
    versions += [(run.get("evaluator"), run.get("version")) for run in runs]
    named = dict.fromkeys(f"{name}@{str(version)[:12]}" for name, version in versions if name and version)
    return [*named, *(f"run:{run['run_id']}" for run in runs if run.get("run_id"))]


def _pairs(selectors: list[str]) -> list[tuple[str, str]]:
    """Two of each kind that has two, the one that sorts first as the old one."""
    kinds: dict[str, list[str]] = {}
    for one in selectors:
        kinds.setdefault(one.partition(":")[0], []).append(one)
    return [(first, last) for first, *_, last in map(sorted, (found for found in kinds.values() if len(found) > 1))]
