"""`/exemplars`: the worst, median and best traces behind one point of a chart."""

from collections.abc import Mapping
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.formats import iso, parse_time
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View, read_view

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
    context = {"view": view, "point": point, "groups": groups, "all_url": _all_url(view, point)}
    return site.render(request, "exemplars.html", context)


def _all_url(view: View, point: Mapping[str, str]) -> str:
    """The list of every trace of the bucket, in the order that the figure is about; empty where it has no end."""
    start = parse_time(point["t"])
    if start is None or not point["step"].isdecimal():
        return ""
    family, _, evaluator = point["name"].partition(":")
    order = {"evaluator": evaluator, "sort": "worst"} if evaluator else {"sort": "slow"} if "latency" in family else {}
    error = {"error": "true"} if family == "error_rate" else {}
    end = iso(start + timedelta(seconds=int(point["step"])))
    return view.url("/traces", from_=iso(start), to=end, group_by=None, back=None, **order, **error)
