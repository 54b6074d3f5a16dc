"""`/traces`: the list, also live, what narrows it down (also for the filter menu of any page), and the rows as CSV."""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site, see_other
from ragpulse_dashboards.view import FILTERS, View, read_view

__all__ = ["routes"]

SORTS: Final = {
    "time": ("time", "oldest"), "scores": ("worst", "best"), "latency": ("slow", "fast"),
    "tokens": ("long", "short"), "cost": ("expensive", "cheap"),
}  # fmt: skip
"""The orders of each column: the one of the first click, and that of the second."""
COLUMNS: Final = ("time", "answer", "scores", "latency", "tokens", "cost", "user", "session", "model", "version")
SHOWN: Final = ("time", "answer", "scores", "latency", "tokens", "cost")
OUTCOMES: Final = {"uncovered": "left out of every rule"}
"""How the overview calls what became of an answer, where that differs from the API's word."""
OWN: Final = (
    "evaluator", "failing", "outcome", "evaluated_from", "document", "min_score", "max_score", "sort", "cursor",
)  # fmt: skip
"""What this list adds to the shared view."""
PAGE: Final = 50
FILTERED: Final = ("/", "/traces", "/sessions", "/explain", "/compare", "/documents", "/figures")
"""Pages with a filter menu."""
SHARED: Final = frozenset(("from", "to", "back", "group_by", "for", *FILTERS))
TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
CSV_COLUMNS: Final = (
    "trace_id", "start_time", "service", "environment", "name", "model", "prompt_name", "prompt_version", "variant",
    "session_id", "user_id", "latency_ms", "ttft_ms", "input_tokens", "output_tokens", "cost_usd", "error", "top_score",
    "n_spans", "query", "response",
)  # fmt: skip
CSV_PAGE: Final = 1000
EVERY_S: Final = 1.0
DRAWN: Final = 8
"""Rows that are drawn a second while the list is live; the rest of that second are counted as skipped."""
FETCHED: Final = 200
STREAM_S: Final = 300
"""A stream ends itself; the browser returns with the last cursor, so a stopping server waits for no one."""


def routes(site: Site) -> list[BaseRoute]:
    """The list, its stream, its CSV twin (the JSON twin is the API itself), and the facets."""
    return [
        site.page("/traces", traces),
        site.page("/traces.csv", as_csv),
        site.page("/facets", facets),
        site.page("/live/events", events),
        site.page("/live", live),
    ]


def _own(request: Request) -> dict[str, str]:
    return {name: value for name in OWN if (value := request.query_params.get(name))}


async def traces(site: Site, request: Request) -> Response:
    """Newest first, or in another order; keyset pages. What narrows it down takes as long, and comes behind."""
    view, own, query = read_view(request), _own(request), request.query_params
    if TRACE_ID.fullmatch(view.filters.get("q", "").strip().lower()):
        return see_other(f"/traces/{view.filters['q'].strip().lower()}")
    answer = await site.api("GET traces", {**view.params(), **own, "limit": PAGE, "total": "true"})
    rows = answer["traces"]
    wanted = [name for name in COLUMNS if name in query.getlist("columns")]
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "all_columns": COLUMNS,
        "columns": wanted or SHOWN,
        "keep": {
            **{name: own.get(name) for name in OWN if name != "cursor"},
            "columns": wanted,
            "live": query.get("live"),
        },
        "live": "live" in query,
        "outcomes": OUTCOMES,
        "rows": rows,
        "evaluators": _evaluators(rows, own.get("evaluator")),
        **{name: answer.get(name) for name in ("next", "total", "newest")},
    }
    return site.render(request, "traces.html", context)


async def facets(site: Site, request: Request) -> Response:
    """The values that narrow down the page named by `for`, with counts; links keep that page's parameters."""
    view, query = read_view(request), request.query_params
    asked = {name: value for name, value in _own(request).items() if name not in ("sort", "cursor")}
    answer = await site.api("GET traces", {**view.params(), **asked, "limit": 1, "facets": "true"})
    context = {
        "view": view,
        "page": query.get("for") if query.get("for") in FILTERED else "/traces",
        "keep": {name: query.getlist(name) for name in query if name not in {*SHARED, *view.filters}},
        "facets": answer["facets"],
    }
    return site.render(request, "facets.html", context)


def _evaluators(rows: Sequence[Mapping[str, Any]], first: str | None) -> list[str]:
    """The evaluators on this page, the one asked for first, then those that pass or fail an answer."""
    scores = [(name, one) for row in rows for name, one in row["scores"].items()]
    judging = {name for name, one in scores if one.get("passing") is not None}
    return sorted(dict(scores), key=lambda name: (name != first, name not in judging, name))


async def as_csv(site: Site, request: Request) -> Response:
    """All rows of the list for a spreadsheet, with a column for each evaluator."""
    view, own = read_view(request), _own(request)
    params = {**view.params(), **own, "limit": CSV_PAGE}
    first = await site.api("GET traces", params)
    known = await site.api("GET evaluators", {})
    used = {one["name"] for one in known["evaluators"] if one.get("online") or one.get("stats_24h")}
    names = sorted(used | set(_evaluators(first["traces"], None)))
    headers = {**SECURITY_HEADERS, "Content-Disposition": 'attachment; filename="traces.csv"'}
    return StreamingResponse(_lines(site, params, first, names), media_type="text/csv", headers=headers)


async def _lines(
    site: Site, params: Mapping[str, Any], answer: Mapping[str, Any], names: Sequence[str]
) -> AsyncIterator[bytes]:
    """The head, then page after page; a score of an evaluator without a column of its own is in the last one."""
    yield _csv([[*CSV_COLUMNS, *names, "other_scores"]])
    while True:
        yield _csv(_line(row, names) for row in answer["traces"])
        if not answer.get("next"):
            return
        answer = await site.api("GET traces", {**params, "cursor": answer["next"]})


def _line(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    scores = {name: one.get("normalized") for name, one in row["scores"].items()}
    others = "; ".join(f"{name}={value}" for name, value in scores.items() if name not in names)
    return [*(row.get(name) for name in CSV_COLUMNS), *(scores.get(name) for name in names), others]


def _csv(rows: Sequence[Sequence[Any]] | Iterator[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is quoted: answers are hostile text here too."""
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


async def live(site: Site, request: Request) -> Response:
    """The address that the live list had once."""
    del site
    return see_other(read_view(request).url("/traces", live="true"))


async def events(site: Site, request: Request) -> Response:
    """`rows` events with HTML rows and the number skipped; ids are cursors, so a reconnect loses nothing."""
    view, query = read_view(request), request.query_params
    cursor = request.headers.get("last-event-id") or query.get("after") or ""
    if not cursor:
        first = await site.api("GET traces", {**view.params(), "limit": 1})
        cursor = str(first.get("newest") or "")
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    shown = {
        "view": view,
        "columns": [name for name in COLUMNS if name in query.getlist("columns")] or SHOWN,
        "evaluators": query.getlist("score"),
    }
    return StreamingResponse(_stream(site, view, cursor, shown), media_type="text/event-stream", headers=headers)


async def _stream(site: Site, view: View, cursor: str, shown: Mapping[str, Any]) -> AsyncIterator[str]:
    row = site.templates.get_template("parts/trace_row.html")
    yield "retry: 1000\n\n"
    for _ in range(int(STREAM_S / EVERY_S)):
        try:
            answer = await site.api("GET traces", {**view.params(), "after": cursor, "limit": FETCHED})
        except ApiError as error:
            yield _event("problem", cursor, {"message": error.message})
            return
        rows = answer["traces"]
        cursor = str(answer.get("newest") or cursor)
        if rows:
            html = [site.linked(row.render(row=one, **shown)) for one in reversed(rows[:DRAWN])]
            yield _event("rows", cursor, {"rows": html, "skipped": max(0, len(rows) - DRAWN)})
        else:
            yield ": nothing new\n\n"
        await asyncio.sleep(EVERY_S)


def _event(kind: str, cursor: str, data: Mapping[str, Any]) -> str:
    """JSON has no raw line breaks, so hostile text cannot start an event of its own."""
    return f"event: {kind}\nid: {' '.join(cursor.split())}\ndata: {json.dumps(data)}\n\n"
