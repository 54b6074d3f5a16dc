"""`/sessions`, `/sessions/{id}`, `/users/{id}`: conversations, the first turn first."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards import ApiError
from ragpulse_dashboards.answer import render_answer
from ragpulse_dashboards.formats import as_judged
from ragpulse_dashboards.site import Site, read_view

__all__ = ["routes"]

MAX_CHARS: Final = 100_000
SORTS: Final = (("time", "newest"), ("worst", "worst score"), ("cost", "most expensive"))
PAGE: Final = 50
ALL_TIME: Final = "-3650d"


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, one conversation, one user."""
    return [
        site.page("/sessions", sessions),
        site.page("/sessions/{session_id:path}", session),
        site.page("/users/{user_id:path}", user),
    ]


async def sessions(site: Site, request: Request) -> Response:
    """List the sessions of a range: newest, worst or most expensive first."""
    view, query = read_view(request), request.query_params
    own = {name: query[name] for name in ("sort", "offset") if query.get(name)}
    answer = await site.api("GET sessions", {**view.params(), **own, "limit": PAGE})
    context = {"view": view, "own": own, "sorts": SORTS, "rows": answer["sessions"], "next": answer["next"]}
    return site.render(request, "sessions.html", context)


async def session(site: Site, request: Request) -> Response:
    """Show one conversation; in a fragment, `here` marks the turn of the page around it."""
    session_id = request.path_params["session_id"]
    answer = await site.api(f"GET sessions/{session_id}", {})
    context = {
        "title": session_id,
        "kind": "Session",
        "summary": answer["session"],
        "turns": _turns(answer["turns"]),
        "scores": answer.get("scores", ()),
        "here": request.query_params.get("here", ""),
    }
    return site.render(request, "session.html", context)


async def user(site: Site, request: Request) -> Response:
    """Show the questions and answers of one user over all sessions."""
    user_id, query = request.path_params["user_id"], request.query_params
    params = {"user_id": user_id, "from": ALL_TIME, "limit": PAGE, "total": "true"}
    page = {"cursor": query["cursor"]} if query.get("cursor") else {}
    answer = await site.api("GET traces", {**params, **page})
    rows, total = answer["traces"], answer["total"]
    if not rows:
        raise ApiError(404, "No trace has this user. It may be past the retention.")
    sessions = await site.api("GET sessions", {"user_id": user_id, "from": ALL_TIME})
    context = {
        "title": user_id,
        "kind": "User",
        "summary": {"n_turns": total, **(_summary(rows) if total == len(rows) else {})},
        "turns": _turns(rows[::-1]),
        "older": answer["next"],
        "sessions": sessions["sessions"],
    }
    return site.render(request, "session.html", context)


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of all turns; with one unknown cost the sum is unknown."""
    costs = [row["cost_usd"] for row in rows]
    return {
        "start_time": rows[-1]["start_time"],
        "end_time": rows[0]["start_time"],
        "cost_usd": None if None in costs else sum(costs),
    }


def _turns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns of a page; answers after the first `MAX_CHARS` signs are shown as text."""
    read = list(accumulate(len(row["response"] or "") for row in rows))
    return [_turn(row, as_text=chars > MAX_CHARS) for row, chars in zip(rows, read, strict=True)]


def _turn(row: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    scores = {name: as_judged(name, score) for name, score in sorted(row["scores"].items())}
    failing = {name: score for name, score in scores.items() if score.get("passing") is False}
    return {
        "row": row,
        "answer": render_answer(row["response"] or "", as_text=as_text),
        "failing": failing,
        "others": {name: score for name, score in scores.items() if name not in failing},
    }
