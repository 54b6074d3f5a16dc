"""`/explain`: mark a region of a heatmap, see which attributes are more common in it than outside."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.formats import iso, parse_time
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import read_view

__all__ = ["Heatmap", "build_heatmap", "routes"]

SELECTION: Final = ("sel_from", "sel_to", "sel_lo", "sel_hi")
SHADES: Final = 4
DEFAULT_METRIC: Final = "latency_ms"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the heatmap in words, as a row of its table twin."""

    start: str
    end: str
    """Empty for the last one, which ends now."""
    traces: int
    most: tuple[float, float]
    """The range of values that most of them lie in ..."""
    highest: tuple[float, float]
    """... and that of the highest."""


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """Counts over time and value, with what the browser needs to name a marked region."""

    columns: int
    rows: int
    cells: Sequence[tuple[int, int, int, int]]
    """Column, row from the bottom, shade 1..4, count; empty cells are left out."""
    x: Sequence[str]
    """Start of each column."""
    y: Sequence[float]
    """Lower edge of each row."""
    table: Sequence[Column]
    """Newest first; a time without traces is left out."""
    end: str
    """Where the last column ends."""


def routes(site: Site) -> list[BaseRoute]:
    """One page; its result part is also swapped in alone."""
    return [site.page("/explain", explain)]


async def explain(site: Site, request: Request) -> Response:
    """Heatmap, marked region, attributes ranked by lift."""
    view, query = read_view(request), request.query_params
    metric = query.get("metric") or DEFAULT_METRIC
    selection = {name: query[name] for name in SELECTION if query.get(name)}
    params = {**view.params(), "metric": metric, **selection}
    answer = await site.api("GET explain", params)
    known = await site.api("GET evaluators", {})
    metrics = [
        DEFAULT_METRIC,
        *(f"quality:{one['name']}" for one in known.get("evaluators") or [] if one.get("online")),
    ]
    context = {
        "view": view,
        "metric": metric,
        "metrics": list(dict.fromkeys([*metrics, metric])),
        "selection": selection,
        "answer": answer,
        "heatmap": build_heatmap(answer.get("heatmap") or {}),
        "attributes": answer.get("attributes") or [],
        "unit": "ms" if metric == DEFAULT_METRIC else "ratio",
    }
    return site.render(request, "explain.html", context)


def _by_column(cells: Sequence[Sequence[int]], columns: int) -> Sequence[Sequence[int]]:
    """Cells as one list a column; a list of rows is turned."""
    return cells if len(cells) == columns else list(zip(*cells, strict=False))


def build_heatmap(answer: Mapping[str, Any]) -> Heatmap:
    """Cells as `cells[column][row]`, shaded by the logarithm of their count: beside a full one others stay visible."""
    x, y = answer.get("x") or [], answer.get("y") or []
    counts = _by_column(answer.get("cells") or [], len(x))
    most = max((number or 0 for column in counts for number in column), default=0)
    cells = [
        (left, up, math.ceil(math.log1p(number) / math.log1p(most) * SHADES), number)
        for left, column in enumerate(counts)
        for up, number in enumerate(column)
        if number
    ]
    table = [_in_words(x, y, left, column) for left, column in enumerate(counts) if any(column)]
    return Heatmap(columns=len(x), rows=len(y), cells=cells, x=x, y=y, table=table[::-1], end=_end(x))


def _end(x: Sequence[str]) -> str:
    """The columns are of one length; of a single one it is not known."""
    before, last = (parse_time(one) for one in x[-2:]) if len(x) > 1 else (None, None)
    return iso(last + (last - before)) if before and last else ""


def _in_words(x: Sequence[str], y: Sequence[float], left: int, column: Sequence[int]) -> Column:
    edges = [*y, 2 * y[-1] - y[-2]] if len(y) > 1 else [*y, *y]
    filled = [up for up, number in enumerate(column) if number]
    most, highest = max(filled, key=lambda up: column[up]), filled[-1]
    return Column(
        start=x[left],
        end=x[left + 1] if left + 1 < len(x) else "",
        traces=sum(column),
        most=(edges[most], edges[most + 1]),
        highest=(edges[highest], edges[highest + 1]),
    )
