"""`/label`: the traces whose label would teach most, one after another, from the keyboard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.evidence import answer_pieces, context_views, find_sentences
from ragpulse_dashboards.site import Site

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """One page; saving is the trace page's form."""
    return [site.page("/label", label)]


async def label(site: Site, request: Request) -> Response:
    """The first suggestion in full, the others as a queue; `skip` moves down the queue."""
    answer = await site.api("GET labels/suggest", {})
    queue = answer.get("traces") or []
    skip = request.query_params.get("skip", "0")
    at = min(int(skip) if skip.isdecimal() else 0, max(len(queue) - 1, 0))
    context = {"queue": queue, "at": at, "row": None}
    if queue:
        row = queue[at]
        full = await site.api(
            f"GET traces/{row['trace_id']}", {"at": row["start_time"]} if row.get("start_time") else {}
        )
        scores = full.get("scores") or []
        sentences = find_sentences(reversed(scores))
        context |= {
            "row": row,
            "trace": full["trace"],
            "scores": scores,
            "answer": answer_pieces(str(full["trace"].get("response") or ""), sentences),
            "contexts": context_views(full.get("contexts") or [], sentences),
        }
    return site.render(request, "label.html", context)
