"""`/documents`: which documents help, which mislead, and whether retrieval or generation failed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.attribution import FailureAttribution, FailureCell
from ragpulse_collector.analysis.why.documents import RatedDocument, RatedDocuments
from ragpulse_dashboards.site import Site, read_view

SORTS: Final = (
    ("retrieved", "most retrieved"),
    ("worst", "worst quality"),
    ("best", "best quality"),
    ("unused", "least used"),
    ("stale", "old and harmful"),
)
SHOWN, MOST, SEARCHED = 20, 100, 1000
"""Documents at first, on demand, and those that a search looks through: the first ones of the order."""
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
    return [site.page("/documents", documents, reads=("evaluator", "find", "most", "sort"))]


async def documents(site: Site, request: Request) -> Response:
    """Show failure attribution over time, then the documents."""
    view, query = read_view(request), request.query_params
    own = {name: query[name] for name in ("evaluator", "find", "sort") if query.get(name)}
    find, most = own.get("find", "").lower(), MOST if query.get("most") else SHOWN
    asked = {**view.params(), **own, "limit": SEARCHED if find else most}
    asked.pop("find", None)
    answer: RatedDocuments
    attribution: FailureAttribution
    answer, attribution = await asyncio.gather(
        site.api("GET documents", asked),
        site.api("GET blame", {**view.params(), **({"group_by": list(view.group_by)} if view.group_by else {})}),
    )
    cells = attribution.cells
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "causes": CAUSES,
        "answer": answer,
        "documents": [one for one in answer.documents if find in " ".join(filter(None, _texts(one))).lower()][:most],
        "find": own.get("find", ""),
        "more": not find and most < answer.total,
        "faithful": attribution.evaluators.faithful,
        "heads": [(text.split(":")[0], "num") for _, text in CAUSES],
        "cells": [(cell, ByCause.of([cell])) for cell in cells],
        "columns": _columns(cells),
        "total": ByCause.of(cells) if cells else None,
    }
    return site.render(request, "documents.html", context)


def _texts(document: RatedDocument) -> tuple[str | None, ...]:
    return document.id, document.source, document.text


@dataclass(frozen=True)
class ByCause:
    """Numbers of answers by cause."""

    counts: Mapping[str, float]

    @classmethod
    def of(cls, cells: Sequence[FailureCell]) -> ByCause:
        """Add up cells."""
        return cls({cause: sum(getattr(cell, cause) for cell in cells) for cause, _ in CAUSES})

    @property
    def total(self) -> float:
        """All answers."""
        return sum(self.counts.values())

    @property
    def bars(self) -> Sequence[tuple[str, float, float]]:
        """Each cause with the begin and the length of its bar, in percent."""
        left, bars = 0.0, []
        for cause, n in self.counts.items():
            width = n / self.total * 100 if self.total else 0
            bars.append((cause, round(left, 2), round(width, 2)))
            left += width
        return bars


@dataclass(frozen=True)
class BlameColumn(ByCause):
    """The stacked column of a bucket."""

    t: datetime
    end: datetime
    index: int


def _columns(cells: Sequence[FailureCell]) -> list[BlameColumn]:
    """Return one column for each bucket with answers, groups added up."""
    buckets: dict[datetime, list[FailureCell]] = {}
    for cell in cells:
        buckets.setdefault(cell.t, []).append(cell)
    times = sorted(buckets)
    step = min((after - before for before, after in pairwise(times)), default=timedelta(hours=1))
    return [
        BlameColumn(ByCause.of(buckets[time]).counts, time, time + step, (time - times[0]) // step) for time in times
    ]
