"""`/documents`: which documents help, which mislead, and whether retrieval or generation failed."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.formats import iso, parse_time
from ragpulse_dashboards.site import Site, read_view

__all__ = ["routes"]

SORTS: Final = (
    ("retrieved", "most retrieved"),
    ("worst", "worst quality"),
    ("best", "best quality"),
    ("unused", "least used"),
)
CAUSES: Final = (
    ("good", "good answer"),
    ("retrieval", "retrieval: contexts insufficient"),
    ("generation", "generation: contexts ignored"),
    ("refusal_right", "rightly declined"),
    ("refusal_wrong", "wrongly declined"),
    ("unknown", "not decidable"),
)


def routes(site: Site) -> list[BaseRoute]:
    """Return the page."""
    return [site.page("/documents", documents)]


async def documents(site: Site, request: Request) -> Response:
    """Show failure attribution over time, then the documents."""
    view, query = read_view(request), request.query_params
    own = {name: query[name] for name in ("evaluator", "sort") if query.get(name)}
    answer, attribution = await asyncio.gather(
        site.api("GET documents", {**view.params(), **own}),
        site.api("GET blame", {**view.params(), **({"group_by": list(view.group_by)} if view.group_by else {})}),
    )
    cells = attribution["cells"]
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "causes": CAUSES,
        "documents": answer["documents"],
        "never_used": answer["never_used"],
        "cells": [_shares(cell) for cell in cells],
        "columns": _columns(cells),
        "total": _shares(_sum(cells)) if cells else None,
    }
    return site.render(request, "documents.html", context)


def _sum(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {cause: sum(cell[cause] for cell in cells) for cause, _ in CAUSES}


def _columns(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one stacked column for each bucket with answers, groups added up."""
    buckets: dict[datetime, list[Mapping[str, Any]]] = {}
    for cell in cells:
        if (time := parse_time(cell["t"])) is not None:
            buckets.setdefault(time, []).append(cell)
    times = sorted(buckets)
    step = min((after - before for before, after in pairwise(times)), default=timedelta(hours=1))
    return [
        {**_shares(_sum(buckets[time])), "t": iso(time), "end": iso(time + step), "index": (time - times[0]) // step}
        for time in times
    ]


def _shares(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell with its total and, in percent, where each cause's bar begins and how long it is."""
    total = sum(cell[cause] for cause, _ in CAUSES)
    left, bars = 0.0, []
    for cause, _ in CAUSES:
        width = cell[cause] / total * 100 if total else 0
        bars.append((cause, round(left, 2), round(width, 2)))
        left += width
    return {**cell, "total": total, "bars": bars}
