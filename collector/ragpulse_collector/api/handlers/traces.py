"""`GET traces`: the list, filtered, sorted, in pages, each trace with its scores."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.selection import filter_of, instant
from ragpulse_collector.api.models import Range, TraceChoice, TraceList
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, newest, newest_of_all
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import FACT_COLUMNS, hex_trace

FACETS = ("service", "model", "prompt_version", "variant", "environment", "release", "user_id", "session_id")
MAX_FACET_VALUES = 20
MAX_FACET_KEYS = 8
_COLUMNS = ", ".join(("trace_id", *FACT_COLUMNS))
_DECIDED = "raw.decisions WHERE latest AND reason <> 'late'"
_CAPPED = "reason = 'budget' AND u < pi"
OUTCOMES = {
    "eligible": _DECIDED,
    "selected": f"{_DECIDED} AND (sampled OR ({_CAPPED}))",
    "dropped": f"{_DECIDED} AND NOT sampled AND {_CAPPED}",
    "uncovered": f"{_DECIDED} AND pi <= 0",
    "scored": "raw.scores WHERE source = 'online' AND status = 'ok'",
    **{name: f"raw.scores WHERE source = 'online' AND status = '{name}'" for name in ("skipped", "invalid", "error")},
}
"""What became of a trace with an evaluator, in the words of `GET coverage`, and where that is written."""
_NEWEST_FIRST = "start_time DESC, trace_id DESC"
_SORTS = {
    "time": _NEWEST_FIRST,
    "oldest": "start_time, trace_id",
    **{
        name: f"{column} {direction} NULLS LAST, {_NEWEST_FIRST}"
        for column, names in {
            "latency_ms": ("slow", "fast"),
            "score": ("best", "worst"),
            "cost_usd": ("expensive", "cheap"),
            "coalesce(input_tokens, 0) + coalesce(output_tokens, 0)": ("long", "short"),
        }.items()
        for name, direction in zip(names, ("DESC", "ASC"), strict=True)
    },
}


def trace_list(store: Store, params: TraceList, *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer the operation; raises ValueError for a cursor or a condition that is none."""
    limit, sort = params.limit, params.sort
    keep, parameters = _conditions(params, clock())
    page = _page(params, parameters)
    offset = 0 if sort == "time" else _offset(params)

    in_order = sort == "time" and not _needs_score(params)
    of_all = in_order and keep[0] == "true" and parameters.keys() <= {"from_time"}
    if of_all:
        rows = newest_of_all(store, limit + 1, first=parameters.get("from_time"))
    elif in_order:
        first, last = _edges(params, parameters)
        where = " AND ".join(keep) + page
        rows = newest(store, _COLUMNS, where, parameters, limit + 1, first=first, last=last)
    else:
        order = f" ORDER BY {_SORTS[sort]} LIMIT {limit + 1} OFFSET {offset}"
        rows = store.read(_query(params, keep) + page + order, parameters).dicts()
    more, rows = len(rows) > limit, rows[:limit]
    scores = scores_of_page(store, rows, among_others=not of_all)
    answer: dict[str, Any] = {
        "traces": [_shown(row) | {"scores": scores[row["trace_id"]]} for row in rows],
        "next": _cursor(rows[-1], sort, offset + limit) if more else None,
        "newest": _cursor(rows[0], "time", 0) if rows and sort == "time" else params.after,
    }
    if params.facets:
        answer["facets"] = _facets(store, keep, parameters, params)
    if params.total:
        matching = f"SELECT count(*) FROM traces t{_score_join(params)} WHERE {' AND '.join(keep)}"
        answer["total"] = store.read(matching, _of_all_pages(parameters)).rows[0][0]
    return answer


def _of_all_pages(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if not key.startswith("cursor_")}


def listed(
    store: Store, params: TraceChoice, *, max_rows: int, clock: Callable[[], datetime] = utc_now
) -> tuple[str, dict[str, Any]]:
    """Return the SQL and its parameters of the filtered list's first `max_rows`, in no order; raises ValueError.

    Only ids are put in order: with the texts that would not fit into memory.
    """
    keep, parameters = _conditions(params, clock())
    first = f"{_query(params, keep)} ORDER BY {_SORTS[params.sort]} LIMIT {int(max_rows)}"
    return _with_scores(f"SELECT trace_id FROM ({first})"), parameters


def chosen() -> str:
    """Return the SQL that lists the traces of `$ids`."""
    return _with_scores("SELECT unnest($ids::VARCHAR[])")


def _with_scores(ids: str) -> str:
    """Return the SQL of the traces with these ids, each with its newest scores (0 to 1) by evaluator."""
    return f"""
        WITH chosen AS ({ids}), latest AS (
            SELECT {hex_trace("trace_id")} AS scored_id, evaluator, arg_max(normalized, created_at) AS value
            FROM raw.scores WHERE status = 'ok' AND {hex_trace("trace_id")} IN (FROM chosen) GROUP BY ALL)
        SELECT {_COLUMNS}, coalesce(scores, MAP {{}}) AS scores
        FROM traces LEFT JOIN (SELECT scored_id, map(list(evaluator), list(value)) AS scores FROM latest GROUP BY 1)
          ON scored_id = trace_id
        WHERE trace_id IN (FROM chosen)"""


def _query(params: TraceChoice, keep: Sequence[str]) -> str:
    return f"SELECT {_COLUMNS}{_score_column(params)} FROM traces t{_score_join(params)} WHERE {' AND '.join(keep)}"


def _conditions(params: TraceChoice, now: datetime) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions, that of the common filters first, and their parameters."""
    common: Filter = filter_of(params.given())
    times, parameters = time_range(params, now)
    keep = [common.sql, *times]
    parameters |= common.parameters
    if params.evaluator:
        parameters["evaluator"] = params.evaluator.partition("@")[0]
    for name, score, sign in (("min_score", params.min_score, ">="), ("max_score", params.max_score, "<=")):
        if score is not None:
            keep.append(f"score {sign} ${name}")
            parameters[name] = score
    if params.failing is not None:
        keep.append("failing" if params.failing else "NOT failing")
    if params.outcome:
        at = instant(params.evaluated_from, now=now)
        parameters |= {} if at is None else {"evaluated_from": at}
        keep.append(_outcome(params.outcome, since=at))
    if params.document:
        parameters["document"] = params.document
        keep.append(_found(parameters))
    return keep, parameters


def time_range(params: Range, now: datetime) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions of `from` and `to`, and their parameters."""
    keep, parameters = [], {}
    for name, time, sign in (("from", params.from_, ">="), ("to", params.to, "<")):
        at = instant(time, now=now)
        if at is not None:
            keep.append(f"start_time {sign} ${name}_time")
            parameters[f"{name}_time"] = at
    return keep, parameters


def _outcome(outcome: str, *, since: datetime | None) -> str:
    """Return the condition that a trace came to this with the evaluator, whenever or since a time."""
    made = "decided_at" if OUTCOMES[outcome].startswith("raw.decisions") else "created_at"
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM {OUTCOMES[outcome]}"
        f" AND split_part(evaluator, '@', 1) = $evaluator{f' AND {made} >= $evaluated_from' if since else ''})"
    )


def _found(times: Collection[str]) -> str:
    """Those of which a span found the document, which is called as `GET documents` does."""
    early = " AND start_time >= $from_time" if "from_time" in times else ""
    late = " AND start_time < $to_time + INTERVAL 1 DAY" if "to_time" in times else ""
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM raw.contexts"
        f" WHERE coalesce(id, hash[1:16]) = $document{early}{late})"
    )


def _needs_score(params: TraceChoice) -> bool:
    asked = (params.min_score, params.max_score, params.failing, params.evaluator)
    return params.sort in ("worst", "best") or any(one is not None for one in asked)


def _score_column(params: TraceChoice) -> str:
    return ", score" if _needs_score(params) else ", NULL AS score"


def _score_join(params: TraceChoice) -> str:
    """Join each trace's latest score of the chosen evaluator, or its lowest over all of them."""
    if not _needs_score(params):
        return ""
    only = " AND evaluator = $evaluator" if params.evaluator else ""
    join = "LEFT JOIN" if params.outcome else "JOIN"
    return (
        f" {join} (SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, min(normalized) AS score,"
        " bool_or(NOT passing) AS failing"
        f" FROM raw.scores WHERE status = 'ok'{only} GROUP BY trace_id) s ON s.scored_id = t.trace_id"
    )


def _page(params: TraceList, parameters: dict[str, Any]) -> str:
    """Continue after a cursor: by key where rows are in order of time, by offset elsewhere."""
    if params.after:
        parameters |= _key(params.after)
        return " AND (start_time, trace_id) > ($cursor_time, $cursor_id)"
    if params.cursor and params.sort == "time":
        parameters |= _key(params.cursor)
        return " AND (start_time, trace_id) < ($cursor_time, $cursor_id)"
    return ""


def _edges(params: TraceList, parameters: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Between which times the traces of the page start, as far as the question says."""
    firsts, lasts = [parameters.get("from_time")], [parameters.get("to_time")]
    (firsts if params.after else lasts).append(parameters.get("cursor_time"))
    return max(filter(None, firsts), default=None), min(filter(None, lasts), default=None)


def _offset(params: TraceList) -> int:
    return _decoded(params.cursor)[2] if params.cursor else 0


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
        return time, str(trace_id), int(offset)
    except (ValueError, TypeError) as error:
        raise ValueError("this cursor is not one of ours; start again without it") from error


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    row.pop("score", None)
    return row


def scores_of_page(store: Store, rows: Sequence[Mapping[str, Any]], *, among_others: bool) -> dict[str, dict[str, Any]]:
    """Read the newest score of each evaluator for the traces of one page.

    Where no others start as late as these, asking by time alone takes half as long.
    """
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    if not rows:
        return found
    times = [row["start_time"] for row in rows]
    of_page, given = "request_time >= $first", {"first": min(times)}
    if among_others:
        of_page = f"{of_page} AND request_time <= $last + INTERVAL 1 DAY AND trace_id IN (SELECT unnest($ids::UUID[]))"
        given |= {"ids": [row["trace_id"] for row in rows], "last": max(times)}
    read = store.read(
        "SELECT replace(trace_id::VARCHAR, '-', ''), evaluator, normalized, status, passing, label FROM raw.scores"
        f" WHERE {of_page} ORDER BY created_at",
        given,
    )
    for trace_id, evaluator, normalized, status, passing, label in read.rows:
        found[trace_id][evaluator] = {"normalized": normalized, "status": status, "passing": passing, "label": label}
    return found


def _facets(
    store: Store, keep: Sequence[str], parameters: Mapping[str, Any], params: TraceList
) -> dict[str, list[dict[str, Any]]]:
    """Count the values of every facet, the most frequent first."""
    chosen = f"traces t{_score_join(params)} WHERE {' AND '.join(keep)}"
    named = _of_all_pages(parameters)
    of = "CASE " + " ".join(f"WHEN grouping({name}) = 0 THEN '{name}'" for name in FACETS) + " END"
    rows = store.read(
        f"SELECT {of} AS facet, coalesce({', '.join(FACETS)}) AS value, count(*) AS n"
        f" FROM {chosen} GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in FACETS)}) HAVING value IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}"
        " ORDER BY n DESC, value",
        named,
    ).rows
    more = store.read(_STATED.format(chosen=chosen), named).rows
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in FACETS}
    for facet, value, n in (*rows, *more):
        found.setdefault(facet, []).append({"value": value, "n": n})
    return found


_STATED = f"""
    WITH stated AS (SELECT tags, metadata FROM {{chosen}} AND (tags IS NOT NULL OR metadata IS NOT NULL)),
    counted AS (
        SELECT 'tag' AS facet, value, count(*) AS n FROM (SELECT unnest(tags) AS value FROM stated) GROUP BY ALL
        UNION ALL
        SELECT 'metadata.' || entry.key, entry.value, count(*)
        FROM (SELECT unnest(map_entries(metadata)) AS entry FROM stated)
        WHERE entry.value IS NOT NULL GROUP BY ALL),
    placed AS (
        SELECT *, row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) AS place,
               sum(n) OVER (PARTITION BY facet) AS total FROM counted)
    SELECT facet, value, n FROM placed WHERE place <= {MAX_FACET_VALUES}
    QUALIFY facet = 'tag' OR dense_rank() OVER (ORDER BY facet = 'tag', total DESC, facet) <= {MAX_FACET_KEYS}
    ORDER BY facet <> 'tag', total DESC, facet, n DESC, value"""
"""The values of the tags, and of the most frequent keys of the metadata."""
