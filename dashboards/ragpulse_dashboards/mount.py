"""The pages joined: one JSON function, one sandboxed template environment, one list of routes; one trace as a file."""

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from jinja2 import ChainableUndefined, PackageLoader
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from ragpulse_dashboards.assets import HTMX, UPLOT, Assets, load_assets
from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.evidence import context_views, find_sentences
from ragpulse_dashboards.formats import TEMPLATE_FILTERS, interval, unforced
from ragpulse_dashboards.markdown import render_answer
from ragpulse_dashboards.pages import PAGES
from ragpulse_dashboards.site import Api, Site
from ragpulse_dashboards.view import FILTERS, GROUPS, RANGES
from ragpulse_dashboards.waterfall import waterfall

__all__ = ["environment", "redacted", "routes", "standalone"]

MASK: Final = "[redacted]"
_SECRETS: Final = re.compile(
    "|".join((
        r"\b(?:sk|pk|rk|rp|ghp|gho|xox[abprs])[-_][A-Za-z0-9_-]{16,}",  # provider and service keys
        r"\bAKIA[0-9A-Z]{16}\b",  # AWS access key ids
        r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}",  # JSON web tokens
        r"(?i:\bbearer\s+)[\w.~+/-]{16,}",
        r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",  # e-mail addresses
        r"\b\d(?:[ -]?\d){12,18}\b",  # card numbers
    ))
)  # fmt: skip


def standalone(answer: Mapping[str, Any]) -> str:
    """Return the answer of `GET traces/{id}` as a self-contained page: no script, no address is loaded."""
    shown = redacted(answer)
    sentences = find_sentences(reversed(shown["scores"]))
    contexts = context_views(shown["contexts"], sentences)
    assets = load_assets()
    return environment(assets).get_template("standalone.html").render(
        trace=shown["trace"],
        answer=render_answer(
            str(shown["trace"].get("response") or ""), sentences, [one.row for one in contexts if one.index is not None]
        ),
        contexts=contexts,
        scores=shown["scores"],
        rows=waterfall(shown["spans"]),
    )  # fmt: skip


def redacted(value: Any) -> Any:
    """Return JSON with keys, tokens, e-mail addresses and card numbers masked in every text; ids stay."""
    if isinstance(value, str):
        return _SECRETS.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: one if key in _IDS else redacted(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id", "version", "hash", "start_time", "created_at"})


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses aloud: a tolerant undefined value would print a forbidden one as nothing."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"{attribute!r} of {type(obj).__name__} is not for templates")


def environment(assets: Assets) -> ImmutableSandboxedEnvironment:
    """The one template environment: sandboxed, escaping everything."""
    environment = _Sandbox(
        loader=PackageLoader("ragpulse_dashboards"),
        autoescape=True,
        undefined=ChainableUndefined,
        finalize=unforced,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(TEMPLATE_FILTERS)
    environment.globals.update(
        asset=assets.url, interval=interval, RANGES=RANGES, GROUPS=GROUPS, FILTERS=FILTERS, HTMX=HTMX, UPLOT=UPLOT
    )
    return environment


def routes(api: Api, *, root: str = "", needs_key: bool = True) -> list[BaseRoute]:
    """Every page, fragment and static file over one JSON function; mount the list at the root of an application.

    `root` is put in front of every link, for a proxy that hosts the pages below a path (`/rag`).
    `needs_key` says whether people sign in. That application checks keys and the origin of each request, not the pages.
    """
    assets = load_assets()
    site = Site(api=api, templates=environment(assets), assets=assets, root=root, needs_key=needs_key)
    found: list[BaseRoute] = [Route("/static/{digest}/{path:path}", assets.serve)]
    for page in PAGES:
        found += page(site)
    found.append(site.page("/login", _login))
    nowhere = site.page("/{path:path}", _nowhere)
    return [*found, _Last(nowhere.path, nowhere.endpoint, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])]


async def _login(site: Site, request: Request) -> Response:
    """The form that exchanges a key for a cookie; `POST /login` is the application's.

    A refused key leads back here with `failed`, one that is `bound` with that, one that may not with the scope it
    `lacks`. `to` is the page that
    was asked for; whether it is one of ours is for the application to say.
    """
    query = request.query_params
    values = {
        "failed": "failed" in query,
        "bound": "bound" in query,
        "lacks": query.get("lacks", ""),
        "to": query.get("to", "/"),
    }
    return site.render(request, "login.html", {**values, "needs_key": site.needs_key})


class _Last(Route):
    """A route for what no other names, so that a page asked with a wrong method is answered 405 and not 404."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match partially."""
        match, child = super().matches(scope)
        return Match.PARTIAL if match is Match.FULL else match, child


async def _nowhere(site: Site, request: Request) -> Response:
    """An address that is none of ours: a page for a person; the application answers a program."""
    if "text/html" in request.headers.get("accept", ""):
        raise ApiError(404, "There is no page at this address.")
    raise HTTPException(404)
