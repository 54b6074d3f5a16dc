"""What every page is handed: the JSON function, the templates, and the way a request becomes a page."""

import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ragpulse_dashboards.assets import Assets
from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.view import read_view

__all__ = ["Api", "Handler", "Site", "read_form", "see_other", "segment"]

Api = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""`await api("GET traces", params)`: the operations and shapes of `/api/v1`."""
Handler = Callable[["Site", Request], Awaitable[Response]]
_Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("ragpulse.dashboards")
MAX_FORM_BYTES: Final = 64 * 1024
USUAL: Final = ("faithfulness", "groundedness")
"""What people ask about first: a judge's verdict, else the offline check of the same question."""
WHOLE: Final = "base.html"
TITLE: Final = "<title>"
_OWN_LINK: Final = re.compile(r'(\s(?:href|src|action|formaction|hx-[a-z]+|data-(?:live|later|root|url))=")/(?!/)')
_HEADERS: Final = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Vary": "HX-Request-Type, Cookie"}


@dataclass(kw_only=True)
class Site:
    """What every page is handed."""

    api: Api
    templates: ImmutableSandboxedEnvironment
    assets: Assets
    root: str = ""
    """What is put in front of every link of a page."""
    posted_at: float = -math.inf
    """When a form last changed something (monotonic): figures that were read before are not shown any more."""
    needs_key: bool = True
    """Whether people sign in with a key."""

    def page(self, path: str, handler: Handler, *, post: bool = False) -> Route:
        """A route whose API failures become a page that says what to do."""

        async def endpoint(request: Request) -> Response:
            try:
                if post:
                    self.posted_at = time.monotonic()
                return await handler(self, request)
            except HTTPException:  # the application answers a program
                raise
            except Exception as error:  # noqa: BLE001 - a person gets a page
                return self.refuse(request, _foreseen(request, error))

        return _Page(path, endpoint, methods=["POST"] if post else ["GET"], site=self)

    def refuse(self, request: Request, error: ApiError) -> Response:
        """A page that says why there is none."""
        answer = self.render(request, "error.html", {"error": error}, status=error.status)
        answer.headers.update(error.headers)
        return answer

    def render(self, request: Request, template: str, context: Mapping[str, Any], *, status: int = 200) -> Response:
        """One template as a response: a whole page, or only its content when htmx asks for a fragment."""
        return HTMLResponse(self._page(_known(request), template, context), status_code=status, headers=_HEADERS)

    async def begin(
        self, request: Request, template: str, context: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> Response:
        """Render, but send the head at once: the browser fetches styles and scripts while `context` is read.

        The status is sent with the head. What may fail with another one is to be asked before; a later failure is told
        on the page.
        """
        known = _known(request)
        if known["layout"] != WHOLE:
            return self.render(request, template, await context())
        head = takewhile(lambda piece: TITLE not in piece, self.templates.get_template(template).generate(known))

        async def pieces() -> AsyncIterator[bytes]:
            yield self.linked("".join(head)).encode()
            try:
                page = self._page(known, template, await context())
            except Exception as error:  # noqa: BLE001 - a person gets a page
                page = self._page(known, "error.html", {"error": _foreseen(request, error)})
            yield page[page.index(TITLE.encode()) :]

        return StreamingResponse(pieces(), media_type="text/html", headers=_HEADERS)

    def _page(self, known: Mapping[str, Any], template: str, context: Mapping[str, Any]) -> bytes:
        text = self.templates.get_template(template).render({**known, **context})
        return self.linked(text).encode("utf-8", "replace")  # a lone surrogate in a stored text must not cost the page

    async def in_use(self) -> list[str]:
        """The evaluators that rules run; first the one that people ask about."""
        known = await self.api("GET evaluators", {})
        names = [str(one["name"]) for one in known["evaluators"] if one.get("online")]
        return sorted(names, key=lambda name: (USUAL.index(name) if name in USUAL else len(USUAL), name))

    def linked(self, page: str) -> str:
        """Put the root path in front of the page's own links; quotes in texts are escaped, so none looks like one."""
        return _OWN_LINK.sub(rf"\g<1>{self.root}/", page) if self.root else page


class _Page(Route):
    """A route that has a page for a person who opens the address of a form."""

    def __init__(self, path: str, endpoint: _Endpoint, *, methods: list[str], site: Site) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._site = site

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or say that a form is sent here."""
        request = Request(scope)
        person = scope["method"] == "GET" and "text/html" in request.headers.get("accept", "")
        if not person or "GET" in (self.methods or ()):
            return await super().handle(scope, receive, send)
        error = ApiError(405, "A form is sent to this address; there is no page to look at.")
        error.headers["Allow"] = "POST"
        await self._site.refuse(request, error)(scope, receive, send)


def _foreseen(request: Request, error: Exception) -> ApiError:
    """An error as a page tells it; the traceback of one that nobody foresaw goes to the log."""
    if isinstance(error, ApiError):
        return error
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(500, "The collector failed to answer; its log has the reason.")


def _known(request: Request) -> dict[str, Any]:
    """What a template has from the request alone."""
    partial = request.headers.get("hx-request-type") == "partial"
    return {
        "layout": "partial.html" if partial else WHOLE,
        "view": read_view(request),
        "path": request.url.path,
        "asked": request.query_params.multi_items(),
        "posted": request.method == "POST",
        "theme": request.cookies.get("theme", ""),
    }


def see_other(url: str) -> Response:
    """After a form: go and look at the result."""
    return RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})


async def read_form(request: Request) -> QueryParams:
    """A url-encoded form, read like a query string; raises ApiError 413 and 415."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise ApiError(415, "Send the form as application/x-www-form-urlencoded.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise ApiError(413, f"The form is larger than {MAX_FORM_BYTES // 1024} kB.")
    return QueryParams(body.decode("utf-8", "replace"))


def segment(name: str) -> str:
    """A name as one part of an operation's path; raises ApiError 404 for what cannot be one."""
    if not name or "/" in name:
        raise ApiError(404, "There is nothing of this name.")
    return name
