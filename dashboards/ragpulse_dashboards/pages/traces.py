"""`/traces`: the list, what narrows it down (also for the filter menu of any page), and the rows as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import FILTERS, read_view

__all__ = ["routes"]

SORTS: Final = (("time", "newest"), ("worst", "worst score"), ("best", "best score"), ("slow", "slowest"))
OUTCOMES: Final = {"uncovered": "never selectable"}
"""How the overview calls what became of an answer, where that differs from the API's word."""
OWN: Final = ("evaluator", "failing", "outcome", "document", "min_score", "max_score", "sort", "cursor")
"""What this list adds to the shared view."""
PAGE: Final = 50
FILTERED: Final = ("/", "/traces", "/explain", "/compare", "/documents", "/figures", "/live")
"""Pages with a filter menu."""
SHARED: Final = frozenset(("from", "to", "back", "group_by", "for", *FILTERS))
CSV_COLUMNS: Final = (
    "trace_id", "start_time", "service", "environment", "name", "model", "prompt_name", "prompt_version", "variant",
    "latency_ms", "input_tokens", "output_tokens", "cost_usd", "error", "top_score", "n_spans", "query", "response",
)  # fmt: skip


def routes(site: Site) -> list[BaseRoute]:
    """The list, its CSV twin (the JSON twin is the API itself), and the facets."""
    return [site.page("/traces", traces), site.page("/traces.csv", as_csv), site.page("/facets", facets)]


def _own(request: Request) -> dict[str, str]:
    return {name: value for name in OWN if (value := request.query_params.get(name))}


async def traces(site: Site, request: Request) -> Response:
    """Newest first, or worst, best, slowest; keyset pages. What narrows it down takes as long, and comes behind."""
    view, own = read_view(request), _own(request)
    answer = await site.api("GET traces", {**view.params(), **own, "limit": PAGE})
    rows = answer.get("traces") or []
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "outcomes": OUTCOMES,
        "rows": rows,
        "evaluators": _columns(rows, own.get("evaluator")),
        "next": answer.get("next"),
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
        "keep": {name: query.getlist(name) for name in query if name not in SHARED},
        "facets": answer.get("facets") or {},
    }
    return site.render(request, "facets.html", context)


def _columns(rows: Sequence[Mapping[str, Any]], first: str | None) -> list[str]:
    """The evaluators on this page, the one asked for first, then those that pass or fail an answer."""
    scores = [(name, one) for row in rows for name, one in (row.get("scores") or {}).items()]
    judging = {name for name, one in scores if one.get("passing") is not None}
    return sorted(dict(scores), key=lambda name: (name != first, name not in judging, name))


async def as_csv(site: Site, request: Request) -> Response:
    """Up to 1,000 rows of the list for a spreadsheet; larger exports are the command line's."""
    view, own = read_view(request), _own(request)
    answer = await site.api("GET traces", {**view.params(), **own, "limit": 1000})
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for row in answer.get("traces") or []:
        writer.writerow([_cell(row, name) for name in CSV_COLUMNS])
    headers = {**SECURITY_HEADERS, "Content-Disposition": 'attachment; filename="traces.csv"'}
    return Response(text.getvalue().encode("utf-8", "replace"), media_type="text/csv", headers=headers)


def _cell(row: Mapping[str, Any], name: str) -> Any:
    """A text that a spreadsheet would run as a formula is quoted: answers are hostile text here too."""
    value = row.get(name)
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
