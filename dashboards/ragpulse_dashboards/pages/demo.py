"""Generated traffic for whoever has no application at hand yet, and its removal."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site, see_other

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """The buttons of the empty page and of the overview."""
    return [site.page("/demo", load, post=True), site.page("/demo/remove", remove, post=True)]


async def load(site: Site, request: Request) -> Response:
    """Make the traffic and look at it."""
    await site.api("POST demo", {})
    return see_other("/")


async def remove(site: Site, request: Request) -> Response:
    """Delete everything of the service `demo`."""
    await site.api("DELETE demo", {})
    return see_other("/")
