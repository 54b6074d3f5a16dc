"""`/label`: the traces whose label would teach most, one after another, from the keyboard."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.evidence import context_views, find_sentences
from ragpulse_dashboards.markdown import render_answer
from ragpulse_dashboards.site import Site

__all__ = ["routes"]

MOST: Final = 200
"""As many as the API suggests at once."""


def routes(site: Site) -> list[BaseRoute]:
    """One page; saving is the trace page's form."""
    return [site.page("/label", label)]


async def label(site: Site, request: Request) -> Response:
    """The first suggestion in full, the others as a queue; `skip` moves down it, and from its end to its head."""
    names = await site.in_use()
    evaluator = request.query_params.get("evaluator") or next(iter(names), "groundedness")
    queue = await _suggested(site, evaluator)
    skip = request.query_params.get("skip", "0")
    at = int(skip) % max(len(queue), 1) if skip.isdecimal() else 0
    context = {
        "queue": queue,
        "at": at,
        "row": None,
        "evaluator": evaluator,
        "names": list(dict.fromkeys([*names, evaluator])),
        "saved": request.query_params.get("saved"),
        "of": request.query_params.get("of", ""),
    }
    if queue:
        context |= await _full(site, queue[at])
    return site.render(request, "label.html", context)


async def _suggested(site: Site, evaluator: str) -> Sequence[Mapping[str, Any]]:
    """The suggestions; when all of the usual number have a label, those of the largest."""
    for more in ({}, {"limit": MOST}):
        answer = await site.api("GET labels/suggest", {"evaluator": evaluator, **more})
        if found := answer.get("traces"):
            return list(found)
    return []


async def _full(site: Site, row: Mapping[str, Any]) -> dict[str, Any]:
    full = await site.api(f"GET traces/{row['trace_id']}", {"at": row["start_time"]} if row.get("start_time") else {})
    sentences = find_sentences(reversed(full.get("scores") or []))
    return {
        "row": row,
        "trace": full["trace"],
        "answer": render_answer(str(full["trace"].get("response") or "")),
        "contexts": [
            one for one in context_views(full.get("contexts") or [], sentences) if not one.row.get("superseded")
        ],
    }
