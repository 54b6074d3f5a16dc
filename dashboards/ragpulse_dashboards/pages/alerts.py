"""`/alerts`: what is watched, its state, its history, and a test delivery."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.formats import by_unit, unit_of
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
    shown = [{**one, "words": _words(one), "href": _href(str(one.get("metric")))} for one in monitors]
    return site.render(request, "alerts.html", {"monitors": shown, "tested": request.query_params.get("tested", "")})


def _words(monitor: Mapping[str, Any]) -> str:
    """The condition with the unit of its metric: `> 3000` of a latency is above 3.00 s."""
    condition, metric = str(monitor.get("condition")).strip(), str(monitor.get("metric"))
    side = {"<": "below", ">": "above"}.get(condition[:1])
    if side:
        return f"{side} {by_unit(condition[1:], unit_of(metric))}"
    return "it changes either way" if condition == "change" else condition


def _href(metric: str) -> str:
    """The chart of what is watched."""
    return "/figures?" + urlencode({"metric": metric}, errors="replace")


async def test(site: Site, request: Request) -> Response:
    """Send a test delivery, marked as one."""
    name = request.path_params["name"]
    await site.api(f"POST monitors/{segment(name)}/test", {})
    return see_other("/alerts?" + urlencode({"tested": name}))
