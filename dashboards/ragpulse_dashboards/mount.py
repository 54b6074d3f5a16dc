"""All pages together: static files, one sandboxed template environment, one list of routes; one trace as a file.

Static files have one hashed path, so that browsers can cache them forever. The hash covers every file: ES modules
import each other by relative path and still change name together.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

from jinja2 import ChainableUndefined, PackageLoader
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from ragpulse._record.credentials import CARD, EMAIL, KEYS
from ragpulse_collector.operations.trace import TraceParts
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.words.figures import interval
from ragpulse_dashboards.answer import context_views, find_sentences, render_answer
from ragpulse_dashboards.formats import TEMPLATE_FILTERS, visible
from ragpulse_dashboards.pages import PAGES
from ragpulse_dashboards.pages.trace import waterfall
from ragpulse_dashboards.site import FILTERS, GROUPS, RANGES, Api, Site

HTMX: Final = "vendor/htmx-4.0.1.min.js"
UPLOT: Final = "vendor/uplot-1.6.32.min.js"
"""Third-party scripts, loaded by the pages that use them."""

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".json": "application/json",
}
_SHEETS = ("vendor/uplot-1.6.32.min.css", "css/tokens.css", "css/layout.css", "css/parts.css", "css/pages.css")
_STYLE = "style.css"
"""All sheets in one file: a page waits for its styles, and one request is faster than five."""
_IMMUTABLE = "public, max-age=31536000, immutable"
COLOURS: Final = "/* colours */"
"""Stands for the sheet of colours in the file of a trace."""
MASK: Final = "[redacted]"
_SECRETS: Final = re.compile(f"{KEYS} | {CARD} | {EMAIL}", re.VERBOSE | re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Assets:
    """Every static file in memory, addressed by content."""

    digest: str
    """First 12 hex of the sha256 over all files; a part of every URL."""
    content: Mapping[str, bytes]
    """Path below `static/` to bytes; any other path is a 404, so no request opens a file."""
    packed: Mapping[str, bytes]
    """The same, gzipped once."""

    def url(self, path: str) -> str:
        """Return the URL of one file; raises KeyError for a file that is not shipped."""
        if path not in self.content:
            raise KeyError(path)
        return f"/static/{self.digest}/{path}"

    async def serve(self, request: Request) -> Response:
        """Answer `/static/{digest}/{path}`: immutable for the current digest, uncached for an older one."""
        path = request.path_params["path"]
        body = self.content.get(path)
        if body is None:
            return Response("No such file.", status_code=404, media_type="text/plain")
        current = request.path_params["digest"] == self.digest
        headers = {"Cache-Control": _IMMUTABLE if current else "no-store", "X-Content-Type-Options": "nosniff"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = self.packed[path]
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(body, media_type=_TYPES[Path(path).suffix], headers=headers)


def load_assets() -> Assets:
    """Read the packaged static files once."""
    files = (file for file in sorted(_FOLDER.rglob("*")) if file.suffix in _TYPES)
    content = {file.relative_to(_FOLDER).as_posix(): file.read_bytes() for file in files}
    content[_STYLE] = b"\n".join(content[sheet] for sheet in _SHEETS)
    digest = hashlib.sha256()
    for path, body in content.items():
        digest.update(f"{path}\0{len(body)}\0".encode() + body)
    packed = {path: gzip.compress(body, 9, mtime=0) for path, body in content.items()}
    return Assets(digest=digest.hexdigest()[:12], content=content, packed=packed)


def standalone(parts: "TraceParts") -> str:
    """Return the answer of `GET traces/{id}` as a self-contained page without scripts and without requests."""
    parts = redacted(parts)
    trace, scores = parts.trace, [score for score in parts.scores if not score.exploratory]
    assert trace is not None
    sentences = find_sentences(reversed(scores), parts.lead)
    contexts = context_views(parts.contexts, sentences)
    evaluated = [context.row for context in contexts if context.index is not None]
    assets = load_assets()
    page = environment(assets).get_template("standalone.html").render(
        trace=trace,
        answer=render_answer(trace.response or "", sentences, evaluated),
        contexts=contexts,
        scores=scores,
        rows=waterfall(parts.spans),
    )  # fmt: skip
    return page.replace(COLOURS, assets.content["css/tokens.css"].decode(), 1)


T = TypeVar("T")


def redacted(value: T) -> T:
    """Return a value with keys, tokens, e-mail addresses and card numbers masked in every text; ids stay."""
    masked: Any = value
    if isinstance(value, str):
        masked = _SECRETS.sub(MASK, value)
    elif isinstance(value, Mapping):
        masked = {key: item if key in _IDS else redacted(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        masked = [redacted(item) for item in value]
    elif is_dataclass(value) and not isinstance(value, type):
        texts = ((field.name, getattr(value, field.name)) for field in fields(value) if field.name not in _IDS)
        masked = replace(value, **{name: redacted(item) for name, item in texts})
    return cast("T", masked)


_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id", "version", "hash"})


class _Sandbox(ImmutableSandboxedEnvironment):
    """Raises for forbidden attributes; a tolerant undefined value would print them as nothing."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"{attribute!r} of {type(obj).__name__} is not for templates")


def environment(assets: Assets) -> ImmutableSandboxedEnvironment:
    """Return the only template environment: sandboxed, escaping everything."""
    environment = _Sandbox(
        loader=PackageLoader("ragpulse_dashboards"),
        autoescape=True,
        undefined=ChainableUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(TEMPLATE_FILTERS)
    environment.globals.update(
        asset=assets.url, interval=interval, RANGES=RANGES, GROUPS=GROUPS, FILTERS=FILTERS, HTMX=HTMX, UPLOT=UPLOT
    )
    return environment


def routes(api: Api, *, root: str = "", needs_key: bool = True, tz: str | None = None) -> list[BaseRoute]:
    """Return every page, fragment and static file over one JSON function, for the root of an application.

    `root` stands before every link, for a proxy that hosts the pages below a path (`/rag`).
    `needs_key` says whether people sign in. The application checks keys and the origin of each request, not the pages.
    `tz` is the zone of all times where neither the address nor the person names one.
    """
    assets = load_assets()
    site = Site(api=api, templates=environment(assets), root=root, needs_key=needs_key, tz=tz or "UTC")
    missing = site.page("/{path:path}", _missing, reads=None)
    return [
        Route("/static/{digest}/{path:path}", assets.serve),
        *(route for page in PAGES for route in page(site)),
        site.page("/login", _login, reads=("bound", "failed", "lacks", "to")),
        _Fallback(missing.path, missing.endpoint, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


async def _login(site: Site, request: Request) -> Response:
    """Show the form that exchanges a key for a cookie; `POST /login` is the application's.

    The application redirects here with `failed` for a refused key, with `bound` for a bound key, and with the scope
    that a key `lacks`. `to` is the page to show next; the application checks that it is a page of this site.
    """
    query = request.query_params
    context = {
        "failed": "failed" in query,
        "bound": "bound" in query,
        "lacks": query.get("lacks", ""),
        "to": query.get("to", "/"),
    }
    return site.render(request, "login.html", {**context, "needs_key": site.needs_key})


class _Fallback(Route):
    """The route of last resort; it matches partially, so that a wrong method of another route is 405 and not 404."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match partially."""
        match, child = super().matches(scope)
        return Match.PARTIAL if match is Match.FULL else match, child


async def _missing(site: Site, request: Request) -> Response:
    """Show a person that there is no such page; the application answers a program."""
    if "text/html" in request.headers.get("accept", ""):
        raise NotFound("There is no page at this address.")
    raise HTTPException(404)
