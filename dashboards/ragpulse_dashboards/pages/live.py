"""`/live`: new traces as they arrive, by server-sent events, at a pace a person can read."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import read_view

__all__ = ["routes"]

EVERY_S: Final = 1.0
SHOWN: Final = 8
"""Rows shown a second; the rest of that second are counted as skipped."""
FETCHED: Final = 200
STREAM_S: Final = 300
"""A stream ends itself; the browser returns with the last cursor, so a stopping server waits for no one."""


def routes(site: Site) -> list[BaseRoute]:
    """The page and its stream."""
    return [site.page("/live", live), site.page("/live/events", events)]


async def live(site: Site, request: Request) -> Response:
    """The newest rows now; the stream adds to them."""
    view = read_view(request)
    answer = await site.api("GET traces", {**view.params(), "limit": 20})
    context = {"view": view, "rows": answer.get("traces") or [], "newest": answer.get("newest") or ""}
    return site.render(request, "live.html", context)


async def events(site: Site, request: Request) -> Response:
    """`rows` events with HTML rows and the number skipped; ids are cursors, so a reconnect loses nothing."""
    view = read_view(request)
    cursor = request.headers.get("last-event-id") or request.query_params.get("after") or ""
    if not cursor:
        first = await site.api("GET traces", {**view.params(), "limit": 1})
        cursor = str(first.get("newest") or "")
    params = view.params()
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(site, params, cursor), media_type="text/event-stream", headers=headers)


async def _stream(site: Site, params: dict[str, Any], cursor: str) -> AsyncIterator[str]:
    row = site.templates.get_template("parts/live_row.html")
    yield "retry: 1000\n\n"
    for _ in range(int(STREAM_S / EVERY_S)):
        try:
            answer = await site.api("GET traces", {**params, "after": cursor, "limit": FETCHED})
        except ApiError as error:
            yield _event("problem", cursor, {"message": error.message})
            return
        rows = answer.get("traces") or []
        cursor = str(answer.get("newest") or cursor)
        if rows:
            html = [row.render(row=one) for one in reversed(rows[:SHOWN])]
            yield _event("rows", cursor, {"rows": html, "skipped": max(0, len(rows) - SHOWN)})
        else:
            yield ": nothing new\n\n"
        await asyncio.sleep(EVERY_S)


def _event(kind: str, cursor: str, data: dict[str, Any]) -> str:
    """JSON has no raw line breaks, so hostile text cannot start an event of its own."""
    return f"event: {kind}\nid: {' '.join(cursor.split())}\ndata: {json.dumps(data)}\n\n"
