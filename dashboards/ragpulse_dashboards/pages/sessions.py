"""`/sessions`, `/sessions/{id}`, `/users/{id}`: conversations, the first turn first."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.operations.traces import SessionPage, SessionTurns, TracePage
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, TraceScore
from ragpulse_collector.words.figures import metric_name
from ragpulse_dashboards.answer import render_answer
from ragpulse_dashboards.formats import as_judged
from ragpulse_dashboards.site import ALL_TIME, Site, read_view
from ragpulse_evaluators.case import CONVERSATIONS

MAX_CHARS: Final = 100_000
SORTS: Final = (("time", "newest"), ("worst", "worst score"), ("cost", "most expensive"))
PAGE: Final = 50
NO_CALL: Final = "no call with usage"
"""Why a turn without a model call has no cost: it adds none."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, one conversation, one user."""
    return [
        site.page("/sessions", sessions, reads=("offset", "sort")),
        site.page("/sessions/{session_id:path}", session, reads=("here",)),
        site.page("/users/{user_id:path}", user, reads=("cursor",)),
    ]


async def sessions(site: Site, request: Request) -> Response:
    """List the sessions of a range: newest, worst or most expensive first."""
    view, query = read_view(request), request.query_params
    own = {name: query[name] for name in ("sort", "offset") if query.get(name)}
    page: SessionPage = await site.api("GET sessions", {**view.params(), **own, "limit": PAGE})
    context = {
        "view": view,
        "own": own,
        "sorts": SORTS,
        "page": page,
    }
    return site.render(request, "sessions.html", context)


async def session(site: Site, request: Request) -> Response:
    """Show one conversation; in a fragment, `here` marks the turn of the page around it."""
    session_id = request.path_params["session_id"]
    found: SessionTurns = await site.api(f"GET sessions/{session_id}", {})
    context = {
        "title": session_id,
        "kind": "Session",
        "summary": found.session,
        "turns": _turns(found.turns),
        "scores": found.scores,
        "conversation": _of_conversation(found.turns),
        "here": request.query_params.get("here", ""),
    }
    return site.render(request, "session.html", context)


async def user(site: Site, request: Request) -> Response:
    """Show the questions and answers of one user over all sessions."""
    user_id, query = request.path_params["user_id"], request.query_params
    params = {"user_id": user_id, "from": ALL_TIME, "limit": PAGE, "total": "true"}
    page = {"cursor": query["cursor"]} if query.get("cursor") else {}
    listed: TracePage = await site.api("GET traces", {**params, **page})
    rows = listed.traces
    if not rows:
        raise NotFound("No trace has this user. It may be past the retention.")
    counted = {**params, "limit": 1}
    sessions: SessionPage
    failing: TracePage
    errors: TracePage
    sessions, failing, errors = await asyncio.gather(
        site.api("GET sessions", {"user_id": user_id, "from": ALL_TIME}),
        site.api("GET traces", {**counted, "failing": "true"}),
        site.api("GET traces", {**counted, "error": "true"}),
    )
    context = {
        "title": user_id,
        "kind": "User",
        "summary": _summary(rows) if listed.total == len(rows) else UserTurns(listed.total),
        "turns": _turns(rows[::-1]),
        "older": listed.next,
        "bad": [
            ("failing", f"fail {metric_name(failing.lead)}", failing.total),
            ("error", "ended in an error", errors.total),
        ],
        "sessions": sessions.sessions,
    }
    return site.render(request, "session.html", context)


class UserTurns(NamedTuple):
    """The figures of a user's turns; beyond one page only their number."""

    n_turns: int | None
    start_time: datetime | None = None
    end_time: datetime | None = None
    cost_usd: float | None = None


def _summary(rows: Sequence["ScoredTrace"]) -> UserTurns:
    """Return the figures of all turns; with one unknown cost the sum is unknown, as in a session."""
    unknown = (row for row in rows if row.cost_usd is None and row.cost_unknown_reason != NO_CALL)
    cost = None if any(unknown) else sum(row.cost_usd or 0.0 for row in rows)
    return UserTurns(len(rows), rows[-1].start_time, rows[0].start_time, cost)


class ShownTurn(NamedTuple):
    """A turn of a conversation."""

    row: "ScoredTrace"
    answer: str
    failing: Mapping[str, "TraceScore"]
    others: Mapping[str, "TraceScore"]


def _of_conversation(turns: Sequence["ScoredTrace"]) -> list[tuple[str, "TraceScore"]]:
    """Return the newest scores of the conversation as a whole, which stand at one of its turns."""
    newest = {name: score for turn in turns for name, score in turn.scores.items()}
    return [(name, as_judged(name, newest[name])) for name in CONVERSATIONS if name in newest]


def _turns(rows: Sequence["ScoredTrace"]) -> list[ShownTurn]:
    """Return the turns of a page; answers after the first `MAX_CHARS` signs are shown as text."""
    read = list(accumulate(len(row.response or "") for row in rows))
    return [_turn(row, as_text=chars > MAX_CHARS) for row, chars in zip(rows, read, strict=True)]


def _turn(row: "ScoredTrace", *, as_text: bool) -> ShownTurn:
    scores = {name: as_judged(name, score) for name, score in sorted(row.scores.items())}
    failing = {name: score for name, score in scores.items() if score.passing is False}
    others = {name: score for name, score in scores.items() if name not in failing}
    return ShownTurn(row, render_answer(row.response or "", as_text=as_text), failing, others)
