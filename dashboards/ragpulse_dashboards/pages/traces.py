"""`/traces`: the list, also live; the values to filter it by, which every filter menu shows; its rows as CSV."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from ragpulse_collector.api.headers import SECURITY_HEADERS
from ragpulse_collector.operations.traces import TracePage
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, TraceScore
from ragpulse_collector.words.figures import csv_text
from ragpulse_dashboards.site import ALL_TIME, SHARED, Site, View, read_view, see_other

SORTS: Final = {
    "time": ("time", "oldest"), "scores": ("worst", "best"), "latency": ("slow", "fast"),
    "tokens": ("long", "short"), "cost": ("expensive", "cheap"),
}  # fmt: skip
"""The orders of each column, of the first and of the second click."""
COLUMNS: Final = ("time", "answer", "scores", "latency", "tokens", "cost", "user", "session", "model", "version")
TOLD: Final = {"service": "", "model": "model", "prompt_version": "version", "variant": ""}
"""What a row says of its trace, where it has no column and not all rows of the page say the same."""
DEFAULT_COLUMNS: Final = ("time", "answer", "scores", "latency", "cost")
OWNERS: Final = {"user": "user_id", "session": "session_id"}
OUTCOMES: Final = {"uncovered": "left out of every rule"}
"""Words for outcomes whose name in the API is not plain."""
OWN: Final = (
    "evaluator", "failing", "outcome", "evaluated_from", "document", "min_score", "max_score", "sort", "cursor",
)  # fmt: skip
"""Parameters that this list adds to the shared view."""
PAGE: Final = 50
FEW: Final = 5
"""Rows of so few traces say everything."""
FILTERED: Final = ("/", "/traces", "/sessions", "/explain", "/compare", "/documents", "/figures")
"""Pages with a filter menu."""
TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
CSV_COLUMNS: Final = (
    "trace_id", "start_time", "service", "environment", "name", "model", "prompt_name", "prompt_version", "variant",
    "session_id", "user_id", "latency_ms", "ttft_ms", "input_tokens", "output_tokens", "cost_usd", "error", "top_score",
    "n_spans", "query", "response",
)  # fmt: skip
CSV_PAGE: Final = 1000


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, its CSV twin (the JSON twin is the API itself), and the facets."""
    return [
        site.page("/traces", traces, reads=(*OWN, "columns", "live")),
        site.page("/traces.csv", as_csv),
        site.page("/facets", facets, reads=None),
        site.page("/live", live),
    ]


def _own(request: Request) -> dict[str, str]:
    return {name: value for name in OWN if (value := request.query_params.get(name))}


def _columns(request: Request) -> Sequence[str]:
    chosen = request.query_params.getlist("columns")
    return [name for name in COLUMNS if name in chosen]


async def traces(site: Site, request: Request) -> Response:
    """Show one page of the list; the facets take as long as the list and load after it."""
    view, own, columns = read_view(request), _own(request), _columns(request)
    trace_id = view.filters.get("q", "").strip().lower()
    if TRACE_ID.fullmatch(trace_id):
        return see_other(f"/traces/{trace_id}")
    page: TracePage
    page, owners = await asyncio.gather(
        site.api("GET traces", {**view.params(), **own, "limit": PAGE, "total": "true"}), _owners(site, view)
    )
    live = request.query_params.get("live")
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "all_columns": COLUMNS,
        "columns": columns or DEFAULT_COLUMNS,
        "extra": {**{name: own.get(name) for name in OWN if name != "cursor"}, "columns": columns, "live": live},
        "live": live is not None,
        "read_at": datetime.now(UTC),
        "outcomes": OUTCOMES,
        "page": page,
        "told": [
            name
            for name, column in TOLD.items()
            if column not in columns
            and (len(page.traces) < FEW or len({getattr(row, name) for row in page.traces}) > 1)
        ],
        "owners": owners,
        "longer": None if page.traces or live or own.get("cursor") else await site.longer_range(view, own),
        "evaluators": _evaluators(page.traces, own.get("evaluator"), page.lead),
    }
    return site.render(request, "traces.html", context)


async def _owners(site: Site, view: View) -> list[tuple[str, str, int]]:
    """Return kind, id and number of answers of the user and the session whose id is the search text, of all time."""
    text = view.filters.get("q", "").strip(' "')
    if not text:
        return []
    params = {"from": ALL_TIME, "limit": 1, "total": "true"}
    calls = (site.api("GET traces", {**params, column: text}) for column in OWNERS.values())
    pages: Sequence[TracePage] = await asyncio.gather(*calls)
    return [(kind, text, page.total) for kind, page in zip(OWNERS, pages, strict=True) if page.total]


async def facets(site: Site, request: Request) -> Response:
    """Show the values to filter the page `for` by, with counts, or what to group it by; links keep its parameters."""
    view, query = read_view(request), request.query_params
    own = {name: value for name, value in _own(request).items() if name not in ("sort", "cursor")}
    page: TracePage = await site.api("GET traces", {**view.params(), **own, "limit": 1, "facets": "true"})
    context = {
        "view": view,
        "page": query.get("for") if query.get("for") in FILTERED else "/traces",
        "extra": {name: query.getlist(name) for name in query if name not in {*SHARED, *view.filters, "for", "groups"}},
        "groups": query.get("groups"),
        "facets": page.facets,
    }
    return site.render(request, "facets.html", context)


def _evaluators(rows: Sequence["ScoredTrace"], *first: str | None) -> list[str]:
    """Return the evaluators of these rows: `first`, then those that pass or fail an answer."""
    scores = [(name, score) for row in rows for name, score in row.scores.items()]
    judging = {name for name, score in scores if score.passing is not None}
    order = [name for name in first if name]
    return sorted(
        dict(scores),
        key=lambda name: (order.index(name) if name in order else len(order), name not in judging, name),
    )


async def as_csv(site: Site, request: Request) -> Response:
    """Send all rows of the list for a spreadsheet, with a column for each evaluator."""
    params = {**read_view(request).params(), **_own(request), "limit": CSV_PAGE}
    first: TracePage = await site.api("GET traces", params)
    registry = await site.api("GET evaluators", {})
    used = {item.name for item in registry.evaluators if item.online or item.stats_24h}
    names = sorted(used | set(_evaluators(first.traces)))
    headers = {**SECURITY_HEADERS, "Content-Disposition": 'attachment; filename="traces.csv"'}
    return StreamingResponse(_csv_pages(site, params, first, names), media_type="text/csv", headers=headers)


async def _csv_pages(
    site: Site, params: Mapping[str, str | int], page: "TracePage", names: Sequence[str]
) -> AsyncIterator[bytes]:
    """Yield the head, then page after page; the last column has the scores of evaluators without a column."""
    head = [[*CSV_COLUMNS, *names, "other_scores"]]
    while True:
        yield csv_text([*head, *(_csv_row(row, names) for row in page.traces)]).encode("utf-8", "replace")
        if not page.next:
            return
        head, page = [], await site.api("GET traces", {**params, "cursor": page.next})


Cell = str | float | datetime | None
"""A value of a table for a spreadsheet."""


def _plain(score: "TraceScore") -> Cell:
    """Return a score as a number if there is one, else its label."""
    values = (score.normalized, score.score, score.label)
    return next((value for value in values if value is not None), None)


def _csv_row(row: "ScoredTrace", names: Sequence[str]) -> list[Cell]:
    scores = {name: _plain(score) for name, score in row.scores.items()}
    others = "; ".join(f"{name}={value}" for name, value in scores.items() if name not in names)
    return [*(getattr(row, name) for name in CSV_COLUMNS), *(scores.get(name) for name in names), others]


async def live(site: Site, request: Request) -> Response:
    """Redirect the former address of the live list."""
    del site
    return see_other(read_view(request).url("/traces", live="true"))
