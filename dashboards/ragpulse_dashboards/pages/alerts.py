"""`/alerts`: what is watched, its state, its history, and a test delivery."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site, see_other, segment

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """The page and the test button."""
    return [site.page("/alerts", alerts), site.page("/alerts/{name}/test", test, post=True)]


async def alerts(site: Site, request: Request) -> Response:
    """Firing monitors first."""
    answer = await site.api("GET monitors", {})
    order = {"firing": 0, "undecided": 1, "ok": 2}
    monitors = sorted(
        answer.get("monitors") or [], key=lambda one: (order.get(one.get("state"), 3), str(one.get("name")))
    )
    return site.render(request, "alerts.html", {"monitors": monitors, "tested": request.query_params.get("tested", "")})


async def test(site: Site, request: Request) -> Response:
    """Send a test delivery, marked as one."""
    name = request.path_params["name"]
    await site.api(f"POST monitors/{segment(name)}/test", {})
    return see_other("/alerts?" + urlencode({"tested": name}))
