"""`GET traces`, `GET sessions`: lists, filtered, sorted, in pages, with scores; the turns of one session in order."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.selection import filter_of, instant
from ragpulse_collector.api.models import MAX_OFFSET, ById, Range, SessionList, TraceChoice, TraceList
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.trace_answers import (
    COLUMNS,
    facets,
    has_outcome,
    lowest_scores,
    retrieved,
    session,
    session_scores,
    sessions,
    with_scores,
)
from ragpulse_collector.store.queries.traces import Filter, newest, newest_of_all, scores_of

_NEWEST_FIRST = "start_time DESC, trace_id DESC"
_TOKENS = "coalesce(input_tokens, 0) + coalesce(output_tokens, 0)"
_SORTS = {
    "time": _NEWEST_FIRST,
    "oldest": "start_time, trace_id",
    "slow": f"latency_ms DESC NULLS LAST, {_NEWEST_FIRST}",
    "fast": f"latency_ms ASC NULLS LAST, {_NEWEST_FIRST}",
    "expensive": f"cost_usd DESC NULLS LAST, {_NEWEST_FIRST}",
    "cheap": f"cost_usd ASC NULLS LAST, {_NEWEST_FIRST}",
    "long": f"{_TOKENS} DESC, {_NEWEST_FIRST}",
    "short": f"{_TOKENS} ASC, {_NEWEST_FIRST}",
    "worst": f"failing DESC NULLS LAST, score ASC NULLS LAST, {_NEWEST_FIRST}",
    "best": f"failing ASC NULLS LAST, score DESC NULLS LAST, {_NEWEST_FIRST}",
}


def trace_list(store: Store, params: TraceList) -> dict[str, Any]:
    """Answer `GET traces`; raises Invalid for an invalid cursor or condition."""
    limit, sort, store = params.limit, params.sort, params.limited(store)
    conditions, parameters = _conditions(params, utc_now())
    page = _page(params, parameters)
    offset = _decoded(params.cursor)[2] if params.cursor and sort != "time" else 0

    in_order = sort == "time" and not _needs_score(params)
    unfiltered = in_order and conditions[0] == "true" and parameters.keys() <= {"from_time"}
    if unfiltered:
        rows = newest_of_all(store, limit + 1, first=parameters.get("from_time"))
    elif in_order:
        first, last = _edges(params, parameters)
        where = " AND ".join(conditions) + page
        rows = newest(store, COLUMNS, where, parameters, limit + 1, first=first, last=last)
    else:
        order = f" ORDER BY {_SORTS[sort]} LIMIT {limit + 1} OFFSET {offset}"
        rows = store.read(_query(params, conditions) + page + order, parameters).dicts()
    more, rows = len(rows) > limit, rows[:limit]
    scores = scores_of(store, rows, among_others=not unfiltered)
    answer: dict[str, Any] = {
        "traces": [
            {key: value for key, value in row.items() if key != "score"} | {"scores": scores.get(row["trace_id"], {})}
            for row in rows
        ],
        "next": _cursor(rows[-1], sort, offset + limit) if more else None,
        "newest": _cursor(rows[0], "time", 0) if rows and sort == "time" else params.after,
    }
    matching = _from(params, conditions)
    common = {key: value for key, value in parameters.items() if not key.startswith("cursor_")}
    if params.facets:
        answer["facets"] = facets(store, matching, common)
    if params.total:
        answer["total"] = store.read(f"SELECT count(*) FROM {matching}", common).rows[0][0]
    return answer


def list_sql(params: TraceChoice, *, max_rows: int) -> tuple[str, dict[str, Any]]:
    """Return SQL and parameters for the first `max_rows` of the filtered list, in no order; raises Invalid.

    Only the ids are sorted: with the texts a sort would not fit into memory.
    """
    conditions, parameters = _conditions(params, utc_now())
    first = f"{_query(params, conditions)} ORDER BY {_SORTS[params.sort]} LIMIT {int(max_rows)}"
    return with_scores(f"SELECT trace_id FROM ({first})"), parameters


def _query(params: TraceChoice, conditions: Sequence[str]) -> str:
    return f"SELECT {COLUMNS}, {'score' if _needs_score(params) else 'NULL AS score'} FROM {_from(params, conditions)}"


def _from(params: TraceChoice, conditions: Sequence[str]) -> str:
    """Return the SQL after FROM: the traces that meet the conditions, with their scores where needed."""
    join = ""
    if _needs_score(params):
        kind = "LEFT JOIN" if params.outcome else "JOIN"
        join = f" {kind} ({lowest_scores(of_one=bool(params.evaluator))}) s ON s.scored_id = t.trace_id"
    return f"traces t{join} WHERE {' AND '.join(conditions)}"


def _conditions(params: TraceChoice, now: datetime) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions, that of the common filters first, and their parameters."""
    common: Filter = filter_of(params.values())
    times, parameters = time_range(params, now)
    conditions = [common.sql, *times]
    parameters |= common.parameters
    if params.evaluator:
        parameters["evaluator"] = params.evaluator.partition("@")[0]
    for name, score, sign in (("min_score", params.min_score, ">="), ("max_score", params.max_score, "<=")):
        if score is not None:
            conditions.append(f"score {sign} ${name}")
            parameters[name] = score
    if params.failing is not None:
        conditions.append("failing" if params.failing else "NOT failing")
    if params.outcome:
        since = instant(params.evaluated_from, now=now)
        parameters |= {} if since is None else {"evaluated_from": since}
        conditions.append(has_outcome(params.outcome, since=since is not None))
    if params.document:
        parameters["document"] = params.document
        conditions.append(retrieved(parameters))
    return conditions, parameters


def time_range(params: Range, now: datetime) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions of `from` and `to`, and their parameters."""
    conditions, parameters = [], {}
    for name, value, sign in (("from", params.from_, ">="), ("to", params.to, "<")):
        time = instant(value, now=now)
        if time is not None:
            conditions.append(f"start_time {sign} ${name}_time")
            parameters[f"{name}_time"] = time
    return conditions, parameters


def _needs_score(params: TraceChoice) -> bool:
    filters = (params.min_score, params.max_score, params.failing, params.evaluator)
    return params.sort in ("worst", "best") or any(value is not None for value in filters)


def _page(params: TraceList, parameters: dict[str, Any]) -> str:
    """Return the condition of a page after a cursor, where rows are in order of time."""
    if params.after:
        parameters |= _key(params.after)
        return " AND (start_time, trace_id) > ($cursor_time, $cursor_id)"
    if params.cursor and params.sort == "time":
        parameters |= _key(params.cursor)
        return " AND (start_time, trace_id) < ($cursor_time, $cursor_id)"
    return ""


def _edges(params: TraceList, parameters: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return the earliest and the latest start of the page's traces, where the parameters limit them."""
    firsts, lasts = [parameters.get("from_time")], [parameters.get("to_time")]
    (firsts if params.after else lasts).append(parameters.get("cursor_time"))
    return max(filter(None, firsts), default=None), min(filter(None, lasts), default=None)


def _key(cursor: str) -> dict[str, Any]:
    time, trace_id, _ = _decoded(cursor)
    return {"cursor_time": datetime.fromisoformat(time), "cursor_id": trace_id}


def _cursor(row: Mapping[str, Any], sort: str, offset: int) -> str:
    content = [row["start_time"].isoformat(), row["trace_id"], offset if sort != "time" else 0]
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _decoded(cursor: str) -> tuple[str, str, int]:
    try:
        time, trace_id, offset = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        datetime.fromisoformat(time)
        if not 0 <= int(offset) < MAX_OFFSET:
            raise Invalid(offset)
        return time, str(trace_id), int(offset)
    except (ValueError, TypeError, OverflowError) as error:
        raise Invalid("this cursor is invalid: start again without it") from error


def session_list(store: Store, params: SessionList) -> dict[str, Any]:
    """Answer `GET sessions`: sessions with a turn that passes the filters, with the figures of all their turns."""
    common, store = filter_of(params.values()), params.limited(store)
    times, parameters = time_range(params, utc_now())
    parameters |= common.parameters
    if params.evaluator:
        parameters["evaluator"] = params.evaluator.partition("@")[0]
    chosen = sessions(" AND ".join((common.sql, *times)), params.sort, of_one=bool(params.evaluator))
    rows = store.read(f"{chosen} LIMIT {params.limit + 1} OFFSET {params.offset}", parameters).dicts()
    more = params.offset + params.limit if len(rows) > params.limit else None
    return {"sessions": rows[: params.limit], "next": more}


def session_detail(store: Store, params: ById) -> dict[str, Any]:
    """Answer `GET sessions/{id}`: the session and its turns in order, with scores. Raises NotFound.

    The answer holds the last thousand turns.
    """
    rows = session(store, params.id)
    if rows is None:
        raise NotFound(f"no session {params.id!r}")
    figures, turns = rows
    scores = scores_of(store, turns, among_others=True)
    return {
        "session": {"session_id": params.id} | figures,
        "turns": [turn | {"scores": scores.get(turn["trace_id"], {})} for turn in turns],
        "scores": session_scores(store, params.id),
    }
