"""`/compare`: two versions, prompts, models or runs; a verdict that may be "not enough data"."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import read_view

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/compare", compare)]


async def compare(site: Site, request: Request) -> Response:
    """The form alone, or the difference with its interval and the answers that changed sides."""
    view, query = read_view(request), request.query_params
    a, b, evaluator, by = (query.get(name, "").strip() for name in ("a", "b", "evaluator", "by"))
    facets = await site.api("GET traces", {**view.params(), "limit": 1, "facets": "true"})
    known = await site.api("GET evaluators", {})
    answer = None
    if a and b:
        chosen = {name: value for name, value in (("evaluator", evaluator), ("by", by)) if value}
        answer = await site.api("GET compare", {**view.params(), "a": a, "b": b, **chosen})
    context = {
        "view": view,
        "a": a,
        "b": b,
        "evaluator": evaluator,
        "by": by,
        "answer": answer,
        "evaluators": [one["name"] for one in known.get("evaluators") or [] if one.get("online")],
        "suggestions": _suggestions(facets.get("facets") or {}),
    }
    return site.render(request, "compare.html", context)


def _suggestions(facets: dict[str, list[dict[str, object]]]) -> list[str]:
    """Selectors as `ragpulse compare` takes them, from what is in the range."""
    kinds = (("prompt_version", "prompt"), ("model", "model"), ("variant", "variant"))
    return [f"{word}:{one['value']}" for name, word in kinds for one in facets.get(name) or [] if one.get("value")]
