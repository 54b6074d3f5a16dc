"""`/sessions`, `/sessions/{id}`, `/users/{id}`: conversations as people had them, the first turn first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.formats import as_judged
from ragpulse_dashboards.markdown import render_answer
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import read_view

__all__ = ["routes"]

SORTS: Final = (("time", "newest"), ("worst", "worst score"), ("cost", "most expensive"))
PAGE: Final = 50
EVER: Final = "-3650d"
"""The beginning of all that is stored."""


def routes(site: Site) -> list[BaseRoute]:
    """The list, one conversation, one user."""
    return [
        site.page("/sessions", sessions),
        site.page("/sessions/{session_id:path}", session),
        site.page("/users/{user_id:path}", user),
    ]


async def sessions(site: Site, request: Request) -> Response:
    """The sessions of a range: newest first, worst first or most expensive first."""
    view, query = read_view(request), request.query_params
    own = {name: query[name] for name in ("sort", "offset") if query.get(name)}
    answer = await site.api("GET sessions", {**view.params(), **own, "limit": PAGE})
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "rows": answer["sessions"],
        "next": answer.get("next"),
    }
    return site.render(request, "sessions.html", context)


async def session(site: Site, request: Request) -> Response:
    """One conversation; as a fragment, `here` marks the turn that is looked at already."""
    identity = request.path_params["session_id"]
    answer = await site.api(f"GET sessions/{identity}", {})
    turns = answer["turns"]
    context = {
        "title": identity,
        "kind": "Session",
        "whole": answer["session"],
        "turns": [_turn(one) for one in turns],
        "here": request.query_params.get("here", ""),
    }
    return site.render(request, "session.html", context)


async def user(site: Site, request: Request) -> Response:
    """What one user asked and was answered, over all sessions."""
    identity, query = request.path_params["user_id"], request.query_params
    params = {"user_id": identity, "from": EVER, "limit": PAGE, "total": "true"}
    page = {"cursor": query["cursor"]} if query.get("cursor") else {}
    answer = await site.api("GET traces", {**params, **page})
    turns = answer["traces"]
    if not turns:
        raise ApiError(404, "No trace has this user. It may be past the retention.")
    context = {
        "title": identity,
        "kind": "User",
        "whole": {"n_turns": answer.get("total"), **(_whole(turns) if answer.get("total") == len(turns) else {})},
        "turns": [_turn(one) for one in reversed(turns)],
        "older": answer.get("next"),
        "sessions": (await site.api("GET sessions", {"user_id": identity, "from": EVER})).get("sessions") or [],
    }
    return site.render(request, "session.html", context)


def _whole(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all turns; a cost that one turn does not know is unknown."""
    costs = [one.get("cost_usd") for one in turns]
    return {
        "start_time": turns[-1].get("start_time"),
        "end_time": turns[0].get("start_time"),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost),
    }


def _turn(row: Mapping[str, Any]) -> dict[str, Any]:
    scores = {name: as_judged(name, one) for name, one in row["scores"].items()}
    failing = sorted(name for name, one in scores.items() if one.get("passing") is False)
    return {
        "row": row,
        "answer": render_answer(str(row.get("response") or "")),
        "failing": [(name, scores[name]) for name in failing],
        "others": [(name, one) for name, one in sorted(scores.items()) if name not in failing],
    }
