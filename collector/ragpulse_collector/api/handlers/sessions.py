"""`GET sessions`, `GET sessions/{id}`: conversations, and the turns of one in order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.selection import filter_of
from ragpulse_collector.api.handlers.traces import scores_of_page, time_range
from ragpulse_collector.api.models import OneSession, SessionList
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import FACT_COLUMNS, SESSION_FIGURES, hex_trace

MAX_TURNS = 1_000
_SORTS = {
    "time": "end_time DESC, session_id",
    "cost": "cost_usd DESC NULLS LAST, end_time DESC, session_id",
    "worst": "worst_score ASC NULLS LAST, end_time DESC, session_id",
}
_SCORED = f"""
    SELECT {hex_trace("trace_id")} AS scored_id, min(normalized) AS lowest FROM raw.scores
    WHERE status = 'ok' {{only}} GROUP BY trace_id"""


def session_list(store: Store, params: SessionList, *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer the operation: sessions of which a turn passes the filters, with the figures of all their turns."""
    keep = filter_of(params.given())
    times, parameters = time_range(params, clock())
    parameters |= keep.parameters
    if params.evaluator:
        parameters["evaluator"] = params.evaluator.partition("@")[0]
    chosen = f"SELECT session_id FROM traces t WHERE {' AND '.join((keep.sql, *times))}"
    scored = _SCORED.format(only="AND evaluator = $evaluator" if params.evaluator else "")
    rows = store.read(
        f"SELECT session_id, {SESSION_FIGURES}, min(lowest) AS worst_score, arg_min(query, start_time) AS query"
        f" FROM traces LEFT JOIN ({scored}) s ON s.scored_id = traces.trace_id"
        f" WHERE session_id IN ({chosen}) GROUP BY session_id"
        f" ORDER BY {_SORTS[params.sort]} LIMIT {params.limit + 1} OFFSET {params.offset}",
        parameters,
    ).dicts()
    more = params.offset + params.limit if len(rows) > params.limit else None
    return {"sessions": rows[: params.limit], "next": more}


def session_detail(store: Store, params: OneSession) -> dict[str, Any]:
    """Answer the operation: the session and its turns in order, with answers, scores and feedback. Raises LookupError.

    Of a session with more than a thousand turns the last thousand are shown.
    """
    given = {"session": params.id}
    found = store.read(f"SELECT {SESSION_FIGURES} FROM traces WHERE session_id = $session HAVING count(*) > 0", given)
    if not found.rows:
        raise LookupError(f"no session {params.id!r}")
    turns = store.read(
        f"SELECT trace_id, {', '.join(FACT_COLUMNS)} FROM traces WHERE session_id = $session"
        f" ORDER BY start_time DESC, trace_id DESC LIMIT {MAX_TURNS}",
        given,
    ).dicts()[::-1]
    scores = scores_of_page(store, turns, among_others=True)
    return {
        "session": {"session_id": params.id} | found.dicts()[0],
        "turns": [turn | {"scores": scores[turn["trace_id"]]} for turn in turns],
    }
