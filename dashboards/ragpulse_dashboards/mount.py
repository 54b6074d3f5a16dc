"""The pages joined: one JSON function, one sandboxed template environment, one list of routes."""

from typing import Any, NoReturn

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
from ragpulse_dashboards.formats import TEMPLATE_FILTERS, interval
from ragpulse_dashboards.pages import PAGES
from ragpulse_dashboards.site import Api, Site
from ragpulse_dashboards.view import FILTERS, GROUPS, RANGES

__all__ = ["environment", "routes"]


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
