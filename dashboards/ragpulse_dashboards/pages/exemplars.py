"""`/exemplars`: the worst, median and best traces behind one point of a chart."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import read_view

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """A page of its own, and the drawer's content when a chart asks."""
    return [site.page("/exemplars", exemplars)]


async def exemplars(site: Site, request: Request) -> Response:
    """Three short lists; each row opens its trace."""
    view, query = read_view(request), request.query_params
    name = query.get("metric", "requests").replace("coverage:", "quality:")  # what was not scored has no worst
    point = {"name": name, "t": query.get("t", ""), "step": query.get("step", "")}
    answer = await site.api(
        "GET exemplars", {**view.params(), **{name: value for name, value in point.items() if value}}
    )
    groups = [(name, answer.get(name) or []) for name in ("worst", "median", "best")]
    return site.render(request, "exemplars.html", {"view": view, "point": point, "groups": groups})
