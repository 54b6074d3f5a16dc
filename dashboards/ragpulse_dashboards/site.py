"""What every page gets: the JSON function, the templates, the view in its URL, and how a request becomes a page."""

import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ragpulse_collector import zones
from ragpulse_collector.api.headers import SECURITY_HEADERS
from ragpulse_collector.api.http import unexpected
from ragpulse_collector.monitoring.listing import MonitorList, ShownMonitor
from ragpulse_collector.operations.rules import EvaluatorList
from ragpulse_collector.operations.traces import TracePage
from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_collector.store.queries.traces import DIMENSIONS
from ragpulse_collector.words.figures import count
from ragpulse_collector.words.times import address_time, placed

FILTERS: Final = ("q", *DIMENSIONS, "label", "tag", "roots", "dataset", "where")
_NO_GROUPS: Final = ("prompt_name", "user_id", "session_id", "error")
GROUPS: Final = (*(name for name in DIMENSIONS if name not in _NO_GROUPS), "label", "tag")
SELECTORS: Final = {"prompt_version": "prompt", "model": "model", "variant": "variant", "service": "service"}
"""Dimensions that `/compare` accepts, and their name in a selector such as `prompt:v7`."""
MEMBERS: Final = ("metadata.", "label.", "label:")
"""Prefixes of filters and groups by a key of the metadata, and by the label of an evaluator."""
SHARED: Final = frozenset(("from", "to", "back", "tz", "group_by", *FILTERS))
"""Parameters that links carry from page to page."""
RANGES: Final = (
    ("-1h", "", "1 h"), ("-6h", "", "6 h"), ("-12h", "", "12 h"), ("-24h", "", "24 h"), ("-7d", "", "7 d"),
    ("-30d", "", "30 d"), ("today", "", "Today"), ("yesterday", "today", "Yesterday"), ("this-week", "", "This week"),
    ("last-week", "this-week", "Last week"),
)  # fmt: skip
"""`from`, `to`, and words."""
_BEFORE: Final = {
    "today": "yesterday up to this time", "yesterday": "the day before", "this-week": "last week up to this time",
    "last-week": "the week before",
}  # fmt: skip
ZONE_COOKIE: Final = "tz"
"""The zone that a person chose."""
DEFAULT_RANGE: Final = "-24h"
ALL_TIME: Final = "-3650d"
LONGER: Final = (("-7d", "in 7 days"), ("-30d", "in 30 days"), (ALL_TIME, "of all time"))
"""Ranges that are offered where one is empty, and words."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of the URL that every page shares, so that links keep range and filters."""

    start: str = DEFAULT_RANGE
    """`from`: ISO time or relative such as -24h."""
    explicit: bool = True
    """Whether the URL names the start; if not, a page may choose a fitting one."""
    end: str = ""
    """`to`: empty means now."""
    back: str = ""
    """The relative range to return to after zooming in on a chart."""
    tz: str = "UTC"
    """The IANA zone of all times and days."""
    own_tz: bool = False
    """Whether the URL names it."""
    filters: Mapping[str, str] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether the range is one of the picker."""
        return any((self.start, self.end) == (start, end) for start, end, _ in RANGES)

    @property
    def before(self) -> str:
        """The range to compare with, in words."""
        return _BEFORE.get(self.start, "the range before") if self.named else "the range before"

    def back_url(self, path: str, **changes: Any) -> str:
        """Return a link to the range before zooming in."""
        end = next((end for start, end, _ in RANGES if start == self.back), None)
        return self.url(path, from_=self.back, to=end, back=None, **changes)

    @property
    def _zone(self) -> dict[str, str]:
        return {} if self.tz == "UTC" else {"tz": self.tz}

    def params(self) -> dict[str, Any]:
        """Return range and filters as parameters of the JSON function."""
        return {"from": self.start, **({"to": self.end} if self.end else {}), **self._zone, **self.filters}

    def query(self) -> list[tuple[str, str]]:
        """Return the view as query pairs, without defaults."""
        pairs = [("from", self.start)] if self.explicit else []
        own = (("to", self.end), ("back", self.back), ("tz", self.tz if self.own_tz else ""))
        pairs += [(name, value) for name, value in own if value]
        pairs += self.filters.items()
        return pairs + [("group_by", name) for name in self.group_by]

    def url(self, path: str, /, **changes: Any) -> str:
        """Return a link to `path` under this view; a change to None or '' removes a pair. `from_` stands for `from`."""
        changes = {"from" if name == "from_" else name: value for name, value in changes.items()}
        return link(path, [*(pair for pair in self.query() if pair[0] not in changes), *changes.items()])

    def json_url(self, operation: str, /, **changes: Any) -> str:
        """Return a link to an operation of the API under this view, ungrouped unless `group_by` is named."""
        return self.url(f"/api/v1/{operation}", **{"back": None, "group_by": None, **self._zone, **changes})


class LongerRange(NamedTuple):
    """A range that holds something where the one asked for holds nothing: `80 in 7 days`."""

    start: str
    words: str


def link(path: str, params: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Return a URL with its query; empty values are left out, each item of a list becomes a pair."""
    pairs = []
    for name, value in params.items() if isinstance(params, Mapping) else params:
        values = value if isinstance(value, list | tuple) else [value]
        texts = [address_time(item) if isinstance(item, datetime) else str(item) for item in values if item is not None]
        pairs += [(name, text) for text in texts if text]
    return f"{path}?{urlencode(pairs, errors='replace')}" if pairs else path


def read_view(request: Request) -> View:
    """Return the view of one request; a page reads its own parameters itself."""
    query = request.query_params
    groups = query.getlist("group_by")
    return View(
        start=placed(query.get("from", "")) or DEFAULT_RANGE,
        explicit=bool(query.get("from")),
        end=placed(query.get("to", "")),
        back=query.get("back", ""),
        tz=str(query.get("tz") or getattr(request.state, "tz", "UTC")),
        own_tz=bool(query.get("tz")),
        filters={name: query[name] for name in (*FILTERS, *_members(query)) if query.get(name)},
        group_by=tuple(dict.fromkeys(name for name in groups if name in (*GROUPS, *_members(groups)))),
    )


def _members(names: Iterable[str]) -> tuple[str, ...]:
    """Return those names that are a key of the metadata, or the label of an evaluator."""
    return tuple(dict.fromkeys(name for name in names if name.startswith(MEMBERS) and name not in MEMBERS))


def _unknown(query: QueryParams, reads: Collection[str]) -> list[str]:
    """Return the parameters that a page does not read, and the groups that there are not."""
    known = {*SHARED, *reads, *_members(query)}
    groups = [name for name in query.getlist("group_by") if name and name not in (*GROUPS, *_members([name]))]
    return [*(name for name in query if name not in known), *(f"group_by={name}" for name in dict.fromkeys(groups))]


Api = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""`await api("GET traces", params)`: the operations and shapes of `/api/v1`."""
Handler = Callable[["Site", Request], Awaitable[Response]]
_Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("ragpulse.dashboards")
MAX_FORM_BYTES: Final = 64 * 1024
FULL_LAYOUT: Final = "base.html"
TITLE: Final = "<title>"
_OWN_LINK: Final = re.compile(r'(\s(?:href|src|action|formaction|hx-[a-z]+|data-(?:live|later|root|url))=")/(?!/)')
SESSION_COOKIE: Final = "ragpulse_session"
"""What the application sets at a login."""
_HEADERS: Final = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Vary": "HX-Request-Type, Cookie"}


@dataclass(kw_only=True)
class Site:
    """What every page gets."""

    api: Api
    templates: ImmutableSandboxedEnvironment
    root: str = ""
    """Stands before every link of a page."""
    posted_at: float = -math.inf
    """When a form last changed something (monotonic): cached figures from before are not shown."""
    needs_key: bool = True
    """Whether people sign in with a key."""
    tz: str = "UTC"
    """The zone of times, where neither the address nor the person names one."""

    def page(self, path: str, handler: Handler, *, post: bool = False, reads: Collection[str] | None = ()) -> Route:
        """Return a route whose failures become a page that says what to do.

        A page names the parameters that it neither `reads` nor shares with the others; None: those of a form.
        """

        async def endpoint(request: Request) -> Response:
            cookie = request.cookies.get(ZONE_COOKIE, "")
            request.state.tz = cookie if zones.find(cookie) else self.tz
            zones.SHOWN.set(zones.find(request.query_params.get("tz") or request.state.tz) or UTC)
            request.state.unknown = [] if post or reads is None else _unknown(request.query_params, reads)
            try:
                if post:
                    self.posted_at = time.monotonic()
                request.state.monitors = await self._firing(request)
                return await handler(self, request)
            except HTTPException:  # the application answers a program
                raise
            except Exception as error:  # noqa: BLE001 - a person gets a page
                return self.refuse(request, _as_refusal(request, error))

        return _Page(path, endpoint, methods=["POST"] if post else ["GET"], site=self)

    async def _firing(self, request: Request) -> Sequence[ShownMonitor]:
        """Return the firing alerts for navigation and headline; none for a fragment, and where nobody may know."""
        if request.method == "POST" or _is_partial(request):
            return ()
        try:
            answer: MonitorList = await self.api("GET monitors", {"only": "firing"})
        except Refusal:
            return ()
        return answer.monitors

    def refuse(self, request: Request, error: Refusal) -> Response:
        """Return a page that shows an error."""
        answer = self.render(request, "error.html", {"error": error}, status=error.status)
        answer.headers.update(error.headers)
        return answer

    def render(self, request: Request, template: str, context: Mapping[str, Any], *, status: int = 200) -> Response:
        """Return one template as a response: a whole page, or only its content when htmx asks for a fragment."""
        body = self._render(template, {**_request_context(request), **context})
        return HTMLResponse(body, status_code=status, headers=_HEADERS)

    async def begin(
        self, request: Request, template: str, read: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> Response:
        """Render, but send the head at once: the browser fetches styles and scripts while `read` runs.

        The status is sent with the head, so check first what can fail with another one. A later failure is shown on
        the page.
        """
        base = _request_context(request)
        if base["layout"] != FULL_LAYOUT:
            return self.render(request, template, await read())
        head = takewhile(lambda piece: TITLE not in piece, self.templates.get_template(template).generate(base))

        async def pieces() -> AsyncIterator[bytes]:
            yield self.linked("".join(head)).encode()
            try:
                page = self._render(template, {**base, **await read()})
            except Exception as error:  # noqa: BLE001 - a person gets a page
                page = self._render("error.html", {**base, "error": _as_refusal(request, error)})
            yield page[page.index(TITLE.encode()) :]

        return StreamingResponse(pieces(), media_type="text/html", headers=_HEADERS)

    def _render(self, template: str, context: Mapping[str, Any]) -> bytes:
        text = self.templates.get_template(template).render(context)
        return self.linked(text).encode("utf-8", "replace")  # a stored text can hold a lone surrogate

    async def evaluators_in_use(self) -> list[str]:
        """Return the evaluators that rules run, the one that leads first."""
        answer: EvaluatorList = await self.api("GET evaluators", {})
        names = [evaluator.name for evaluator in answer.evaluators if evaluator.online]
        return sorted(names, key=lambda name: (name != answer.lead, name))

    async def longer_range(self, view: View, own: Mapping[str, str]) -> LongerRange | None:
        """Return the shortest longer range with traces that pass the filters; None without any."""
        filters = {name: value for name, value in {**view.params(), **own}.items() if name != "to"}
        for start, words in LONGER:
            page: TracePage = await self.api("GET traces", {**filters, "from": start, "limit": 1, "total": "true"})
            if page.total:
                return LongerRange(start, f"{count(page.total)} {words}")
        return None

    def linked(self, page: str) -> str:
        """Put the root path before the page's own links; texts escape their quotes, so they cannot look like a link."""
        return _OWN_LINK.sub(rf"\g<1>{self.root}/", page) if self.root else page


class _Page(Route):
    """A route that shows a page to a person who opens the address of a form."""

    def __init__(self, path: str, endpoint: _Endpoint, *, methods: list[str], site: Site) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._site = site

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a browser's GET of a form's address gets a 405 page."""
        request = Request(scope)
        person = scope["method"] == "GET" and "text/html" in request.headers.get("accept", "")
        if not person or "GET" in (self.methods or ()):
            return await super().handle(scope, receive, send)
        error = Refusal("A form is sent to this address; there is no page to look at.", status=405)
        answer = self._site.refuse(request, error)
        answer.headers["Allow"] = "POST"
        await answer(scope, receive, send)


def _as_refusal(request: Request, error: Exception) -> Refusal:
    """Return the error that a page shows; the traceback of an unexpected one goes to the log."""
    if isinstance(error, Refusal):
        return error
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return unexpected(error)


def _is_partial(request: Request) -> bool:
    return request.headers.get("hx-request-type") == "partial"


def _request_context(request: Request) -> dict[str, Any]:
    """Return what a template gets from the request alone."""
    return {
        "layout": "partial.html" if _is_partial(request) else FULL_LAYOUT,
        "firing": sum(monitor.state == "firing" for monitor in getattr(request.state, "monitors", ())),
        "view": read_view(request),
        "unknown": getattr(request.state, "unknown", ()),
        "path": request.url.path,
        "params": request.query_params.multi_items(),
        "posted": request.method == "POST",
        "zones": dict.fromkeys((getattr(request.state, "tz", "UTC"), "UTC")),
        "theme": request.cookies.get("theme", ""),
        "signed_in": SESSION_COOKIE in request.cookies,
    }


def see_other(url: str) -> Response:
    """Redirect to the result of a form."""
    return RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})


async def read_form(request: Request) -> QueryParams:
    """Read a url-encoded form like a query string; raises Refusal."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Refusal("Send the form as application/x-www-form-urlencoded.", status=415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(f"The form is larger than {MAX_FORM_BYTES // 1024} kB.", status=413)
    return QueryParams(body.decode("utf-8", "replace"))


def segment(name: str) -> str:
    """Return a name that can be one part of an operation's path; raises NotFound for any other."""
    if not name or "/" in name:
        raise NotFound("There is nothing of this name.")
    return name
