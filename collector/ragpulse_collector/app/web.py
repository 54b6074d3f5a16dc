"""The HTTP side: OTLP, JSON, pages, health and Prometheus on one port.

guard ─▶ headers ─▶ StartingApp ─┬─▶ /healthz, from the first moment
                           └─▶ web: the routes, once the components are loaded; the pages load with their first request
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any
from urllib.parse import parse_qs, quote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from ragpulse_collector import receiver
from ragpulse_collector.analysis.overview import Headline, RangeSummary
from ragpulse_collector.analysis.series import ManySeries, QualityLine
from ragpulse_collector.api import http
from ragpulse_collector.api.guard import COOKIE, MCP, Keys, by_tls
from ragpulse_collector.api.operations import Operations, document, routes
from ragpulse_collector.api.pages import pages
from ragpulse_collector.api.params import Caller
from ragpulse_collector.api.status import VERSION, ExportedQuality, render
from ragpulse_collector.app.assistants import Assistants
from ragpulse_collector.otlp.intake import Counters, Flight
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import CollectorSettings, Settings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.health import probe

_log = logging.getLogger("ragpulse.collector")
MAX_LOGIN_BYTES = 4096
_OWN_PAGE = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""The paths that the login may return to: none that a browser takes for another site."""
_NO_PAGES = ("/api/", "/v1/")
PROBE_EVERY_S = 1.0
PROBE_TIMEOUT_S = 5.0
CHECK_FILES_EVERY_S = 5.0


def web(
    store: Store,
    settings: Settings,
    *,
    operations: Operations,
    keys: Keys,
    flight: Flight,
    counters: Counters,
) -> Starlette:
    """Join all routes."""
    served: list[BaseRoute] = [
        *receiver.routes(store, flight=flight, counters=counters),
        *routes(operations),
        Route("/readyz", partial(_ready, Probe(store)), methods=["GET"]),
        Route("/metrics", partial(_prometheus, operations), methods=["GET"]),
        Route("/openapi.json", partial(_openapi, operations, settings.collector.root), methods=["GET"]),
        Route(MCP, Assistants(operations), methods=["POST"]),
        Route("/login/end", partial(_logout, settings, keys), methods=["POST"]),
        _Last("/", Pages(operations, settings.collector)),
        Route("/login", partial(_login, settings, keys), methods=["POST"]),  # after the pages, which have the form
    ]
    middleware = []
    origins = list(settings.collector.allowed_origins)
    if origins:
        allowed = ["content-type", "content-encoding", "authorization"]
        cors = Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["POST"], allow_headers=allowed)
        middleware.append(cors)
    return Starlette(routes=served, middleware=middleware, exception_handlers=_HANDLERS)


class _Last(Mount):
    """A mount for every path without a route of its own, which leaves a wrong method on the other routes a 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match partially; paths of the API never."""
        if scope["path"].startswith(_NO_PAGES):
            return Match.NONE, {}
        match, child = super().matches(scope)
        return Match.PARTIAL if match is Match.FULL else match, child


class Pages:
    """The pages. They load with their first request: many collectors are never looked at."""

    def __init__(self, operations: Operations, settings: CollectorSettings) -> None:
        self._api, self._settings = partial(operations.call, caller=Caller()), settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if "router" not in self.__dict__:
            await anyio.to_thread.run_sync(getattr, self, "router")
        await self.router(scope, receive, send)

    @cached_property
    def router(self) -> Router:
        """The routes of the pages."""
        settings = self._settings
        return Router(pages().routes(self._api, root=settings.root, needs_key=settings.needs_key, tz=settings.tz))


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answer an unexpected error; the traceback goes to the log, not to the client."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return http.refusal(request, http.unexpected(error))


_HANDLERS: dict[Any, Any] = {Exception: _unexpected, Refusal: http.refusal, HTTPException: http.http_refusal}


class Probe:
    """Checks whether a write reaches the disk, at most once a second.

    Data files are checked at most every five seconds, on a thread of their own: a bucket that does not answer delays
    nothing else.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._probed_at = self._checked_at = -math.inf
        self._problem: str | None = None
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="ragpulse-check-files")
        self._check: Future[None] | None = None

    def problem(self) -> str | None:
        """Return why nothing can be written, or None."""
        with self._lock:
            if time.monotonic() - self._probed_at >= PROBE_EVERY_S:
                self._problem, self._probed_at = self._write(), time.monotonic()
            return self._problem

    def _write(self) -> str | None:
        try:
            self._store.write(probe).result(timeout=PROBE_TIMEOUT_S)
            self._files().result(timeout=PROBE_TIMEOUT_S)
        except TimeoutError:
            return f"no write was finished within {PROBE_TIMEOUT_S:g} s"
        except Exception as error:  # noqa: BLE001 - any error of the store means: not ready
            return str(error) or type(error).__name__
        return None

    def _files(self) -> Future[None]:
        """Return the last check of the files, or a new one where the last has ended and is old."""
        now = time.monotonic()
        if self._check is None or (self._check.done() and now - self._checked_at >= CHECK_FILES_EVERY_S):
            self._check, self._checked_at = self._checks.submit(self._store.check_files), now
        return self._check


async def _ready(writes: Probe, request: Request) -> Response:
    """Answer whether a write reaches the disk now."""
    del request
    problem = await anyio.to_thread.run_sync(writes.problem)
    if problem is not None:
        return PlainTextResponse(f"not ready: {problem}\n", 503, headers={"Retry-After": "1"})
    return PlainTextResponse("ready\n")


async def _prometheus(operations: Operations, request: Request) -> Response:
    del request
    status = await operations.call("GET status", {})
    overview: RangeSummary = await operations.call("GET overview", {"from": "-24h"})
    drift = await operations.call("GET drift", {})
    services, others = await _by_service(operations, overview.quality)
    whole = [ExportedQuality(headline.evaluator, headline) for headline in overview.quality]
    text = render(status, [*whole, *services], drift.watched, other_services=others)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _by_service(operations: Operations, quality: Sequence[Headline]) -> tuple[list[ExportedQuality], int]:
    """Return the last day's quality of the largest services, by the version and judge of the headline.

    All others are one service; their number comes second.
    """
    headlines = {f"quality:{row.evaluator}": row for row in quality}
    params = {"name": list(headlines), "from": "-24h", "step": "all", "group_by": "service"}
    answer: ManySeries = await operations.call("GET metrics", params) if headlines else ManySeries(())
    rows = [
        ExportedQuality(headline.evaluator, line.points[0], line.group["service"])
        for metric in answer.metrics
        for headline in (headlines[metric.name],)
        for line in metric.series
        if isinstance(line, QualityLine) and (line.version, line.judge) == (headline.version, headline.judge)
    ]
    return rows, max((metric.other_groups for metric in answer.metrics), default=0)


async def _openapi(operations: Operations, root: str, request: Request) -> Response:
    del request
    return http.json_response(document(operations, VERSION, root=root))


async def _login(settings: Settings, keys: Keys, request: Request) -> Response:
    """Exchange a key for a cookie that scripts cannot read and other sites cannot send."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_LOGIN_BYTES:
            return PlainTextResponse("too large\n", 413)
    form = parse_qs(body.decode("utf-8", "replace"))
    key = keys.find(form.get("key", [""])[0].strip())
    to = form.get("to", ["/"])[0]
    if not _OWN_PAGE.fullmatch(to):
        to = "/"
    if key is None or key.binding:  # pages show all services: a bound key gets no session
        return RedirectResponse(f"/login?{'bound' if key else 'failed'}=1&to={quote(to, safe='')}", 303)
    answer = RedirectResponse(to, 303)
    collector = settings.collector
    secure = by_tls(request.url.scheme, request.headers) or (collector.public_url or "").startswith("https:")
    # Lax: a link from a chat message opens the page; forms of other sites are refused by the origin check.
    session, path = keys.open(key), collector.root or "/"
    age = int(keys.session_s)
    answer.set_cookie(COOKIE, session, max_age=age, httponly=True, samesite="lax", secure=secure, path=path)
    return answer


async def _logout(settings: Settings, keys: Keys, request: Request) -> Response:
    """End the session, here and in the browser."""
    keys.close(request.headers.get("cookie", ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path=settings.collector.root or "/")
    return answer
