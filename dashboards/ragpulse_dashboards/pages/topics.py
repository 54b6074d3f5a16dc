"""`/topics`: what people ask, by the answers lost; what they miss, to hand to whoever writes documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.gaps import ContentGaps
from ragpulse_collector.analysis.topics import TopicReport
from ragpulse_collector.api.headers import SECURITY_HEADERS
from ragpulse_collector.operations.topics import RenamedTopic
from ragpulse_collector.words.figures import csv_text
from ragpulse_dashboards.site import Site, View, read_form, read_view, see_other, segment

RANGE: Final = "-7d"
COLUMNS: Final = ("kind", "question", "terms", "users", "share", "failing", "nearest document")


def routes(site: Site) -> list[BaseRoute]:
    """Return the page, its gaps as a part and as a file, and the forms that rename a topic and find topics again."""
    return [
        site.page("/topics", topics),
        site.page("/topics/gaps", gaps),
        site.page("/topics/gaps.csv", gaps_file),
        site.page("/topics/fit", fit, post=True),
        site.page("/topics/{id}", rename, post=True),
    ]


def _view(request: Request) -> View:
    """Return the view; without a range in the address it is a week."""
    view = read_view(request)
    return view if view.explicit else replace(view, start=RANGE)


async def topics(site: Site, request: Request, note: str | None = None) -> Response:
    """Show the topics, and what there is to know of a new name; the gaps follow."""
    view = _view(request)
    report: TopicReport = await site.api("GET topics", view.params())
    return site.render(request, "topics.html", {"view": view, "report": report, "note": note})


async def gaps(site: Site, request: Request) -> Response:
    """Show groups of questions that fail, and the collection of documents."""
    view = _view(request)
    found: ContentGaps = await site.api("GET gaps", view.params())
    ids = list(dict.fromkeys(trace_id for gap in found.gaps for trace_id in gap.trace_ids))
    context = {"view": view, "found": found, "trace_ids": ids, "markdown": "\n".join(gap.issue for gap in found.gaps)}
    return site.render(request, "topic_gaps.html", context)


async def gaps_file(site: Site, request: Request) -> Response:
    """Send the gaps as CSV."""
    found: ContentGaps = await site.api("GET gaps", _view(request).params())
    rows = [
        (gap.kind, gap.question, ", ".join(gap.terms), gap.users, gap.share.value, gap.failing.value,
         gap.nearest and gap.nearest.id) for gap in found.gaps
    ]  # fmt: skip
    headers = {**SECURITY_HEADERS, "Content-Disposition": 'attachment; filename="gaps.csv"'}
    return Response(csv_text([COLUMNS, *rows]).encode("utf-8", "replace"), media_type="text/csv", headers=headers)


async def rename(site: Site, request: Request) -> Response:
    """Give a topic a name; say which rules and monitors still quote the one before."""
    form = await read_form(request)
    operation = f"PUT topics/{segment(request.path_params['id'])}"
    renamed: RenamedTopic = await site.api(operation, {"name": form.get("name", "")})
    return await topics(site, request, renamed.note) if renamed.note else see_other("/topics")


async def fit(site: Site, request: Request) -> Response:
    """Find topics again, in the background."""
    await site.api("POST topics/fit", {})
    return see_other("/topics")
