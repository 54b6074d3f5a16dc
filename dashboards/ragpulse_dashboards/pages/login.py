"""`/login`: the form that exchanges a key for a cookie; the collector handles what it posts."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """The form only: `POST /login` is the collector's."""
    return [site.page("/login", login)]


async def login(site: Site, request: Request) -> Response:
    """One field; a refused key leads back here with `failed`, one that may not do it with the scope it `lacks`.

    `to` is the page that was asked for; whether it is one of ours is for the collector to say.
    """
    query = request.query_params
    told = {"failed": "failed" in query, "lacks": query.get("lacks", ""), "to": query.get("to", "/")}
    return site.render(request, "login.html", told)
