"""`GET traces`: the list, filtered, sorted, in pages, each trace with its scores."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.window import instant
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import newest, newest_of_all
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import FACT_COLUMNS, hex_trace

DEFAULT_LIMIT, MAX_LIMIT = 50, 1000
FACETS = ("service", "model", "prompt_version", "variant", "environment")
MAX_FACET_VALUES = 20
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
_SORTS = {
    "time": "start_time DESC, trace_id DESC",
    "slow": "latency_ms DESC NULLS LAST, start_time DESC, trace_id DESC",
    "worst": "score ASC NULLS LAST, start_time DESC, trace_id DESC",
    "best": "score DESC NULLS LAST, start_time DESC, trace_id DESC",
}


def trace_list(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer the operation; raises ValueError naming a malformed parameter."""
    limit = _limit(params.get("limit"))
    sort = _sort(params)
    keep, parameters = _conditions(params, clock())
    page = _page(params, sort, parameters)
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
    scores = _scores(store, rows, among_others=not of_all)
    answer: dict[str, Any] = {
        "traces": [_shown(row) | {"scores": scores[row["trace_id"]]} for row in rows],
        "next": _cursor(rows[-1], sort, offset + limit) if more else None,
        "newest": _cursor(rows[0], "time", 0) if rows and sort == "time" else params.get("after"),
    }
    if str(params.get("facets", "")).lower() in ("true", "1"):
        answer["facets"] = _facets(store, keep, parameters, params)
    return answer


def listed(
    store: Store, params: Mapping[str, Any], *, max_rows: int, clock: Callable[[], datetime] = utc_now
) -> tuple[str, dict[str, Any]]:
    """Return the SQL and its parameters of the filtered list's first `max_rows`, in no order; raises ValueError.

    Only ids are put in order: with the texts that would not fit into memory.
    """
    keep, parameters = _conditions(params, clock())
    first = f"{_query(params, keep)} ORDER BY {_SORTS[_sort(params)]} LIMIT {int(max_rows)}"
    return f"SELECT {_COLUMNS} FROM traces WHERE trace_id IN (SELECT trace_id FROM ({first}))", parameters


def chosen() -> str:
    """Return the SQL that lists the traces of `$ids`."""
    return f"SELECT {_COLUMNS} FROM traces WHERE trace_id IN (SELECT unnest($ids::VARCHAR[]))"


def _sort(params: Mapping[str, Any]) -> str:
    sort = str(params.get("sort") or "time")
    if sort not in _SORTS:
        raise ValueError(f"sort {sort!r} is unknown; possible: {', '.join(_SORTS)}")
    return sort


def _query(params: Mapping[str, Any], keep: Sequence[str]) -> str:
    return f"SELECT {_COLUMNS}{_score_column(params)} FROM traces t{_score_join(params)} WHERE {' AND '.join(keep)}"


def _limit(value: Any) -> int:
    try:
        limit = int(value or DEFAULT_LIMIT)
    except ValueError:
        raise ValueError(f"limit must be a number, not {value!r}") from None
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must lie between 1 and {MAX_LIMIT}")
    return limit


def _conditions(params: Mapping[str, Any], now: datetime) -> tuple[list[str], dict[str, Any]]:
    """Return the SQL conditions, that of the common filters first, and their parameters."""
    common: Filter = filter_of(params)
    keep, parameters = [common.sql], dict(common.parameters)
    for name, sign in (("from", ">="), ("to", "<")):
        at = instant(params.get(name), now=now)
        if at is not None:
            keep.append(f"start_time {sign} ${name}_time")
            parameters[f"{name}_time"] = at
    if params.get("evaluator"):
        parameters["evaluator"] = str(params["evaluator"]).partition("@")[0]
    for name, sign in (("min_score", ">="), ("max_score", "<=")):
        if params.get(name) not in (None, ""):
            keep.append(f"score {sign} ${name}")
            parameters[name] = float(params[name])
    failing = str(params.get("failing", "")).lower()
    if failing in ("true", "1", "false", "0"):
        keep.append("failing" if failing in ("true", "1") else "NOT failing")
    if params.get("outcome"):
        keep.append(_outcome(params))
    if params.get("document"):
        parameters["document"] = str(params["document"])
        keep.append(_found(parameters))
    return keep, parameters


def _outcome(params: Mapping[str, Any]) -> str:
    """Those with which the evaluator asked for came to this; raises ValueError."""
    if params["outcome"] not in OUTCOMES or not params.get("evaluator"):
        raise ValueError(f"outcome is one of {', '.join(OUTCOMES)}, and evaluator says with which evaluator")
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM {OUTCOMES[params['outcome']]}"
        " AND split_part(evaluator, '@', 1) = $evaluator)"
    )


def _found(times: Collection[str]) -> str:
    """Those of which a span found the document, which is called as `GET documents` does."""
    early = " AND start_time >= $from_time" if "from_time" in times else ""
    late = " AND start_time < $to_time + INTERVAL 1 DAY" if "to_time" in times else ""
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM raw.contexts"
        f" WHERE coalesce(id, hash[1:16]) = $document{early}{late})"
    )


def _needs_score(params: Mapping[str, Any]) -> bool:
    asked = ("min_score", "max_score", "failing", "evaluator")
    return params.get("sort") in ("worst", "best") or any(params.get(name) for name in asked)


def _score_column(params: Mapping[str, Any]) -> str:
    return ", score" if _needs_score(params) else ", NULL AS score"


def _score_join(params: Mapping[str, Any]) -> str:
    """Join each trace's latest score of the chosen evaluator, or its lowest over all of them."""
    if not _needs_score(params):
        return ""
    only = " AND evaluator = $evaluator" if params.get("evaluator") else ""
    join = "LEFT JOIN" if params.get("outcome") else "JOIN"
    return (
        f" {join} (SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, min(normalized) AS score,"
        " bool_or(coalesce(NOT passing, normalized < 0.5)) AS failing"
        f" FROM raw.scores WHERE status = 'ok'{only} GROUP BY trace_id) s ON s.scored_id = t.trace_id"
    )


def _page(params: Mapping[str, Any], sort: str, parameters: dict[str, Any]) -> str:
    """Continue after a cursor: by key where rows are in order of time, by offset elsewhere."""
    if params.get("after"):
        parameters |= _key(params["after"])
        return " AND (start_time, trace_id) > ($cursor_time, $cursor_id)"
    if not params.get("cursor"):
        return ""
    if sort == "time":
        parameters |= _key(params["cursor"])
        return " AND (start_time, trace_id) < ($cursor_time, $cursor_id)"
    return ""


def _edges(params: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Between which times the traces of the page start, as far as the question says."""
    firsts, lasts = [parameters.get("from_time")], [parameters.get("to_time")]
    (firsts if params.get("after") else lasts).append(parameters.get("cursor_time"))
    return max(filter(None, firsts), default=None), min(filter(None, lasts), default=None)


def _offset(params: Mapping[str, Any]) -> int:
    return int(_decoded(params["cursor"])[2]) if params.get("cursor") else 0


def _key(cursor: Any) -> dict[str, Any]:
    time, trace_id, _ = _decoded(cursor)
    return {"cursor_time": datetime.fromisoformat(time), "cursor_id": trace_id}


def _cursor(row: Mapping[str, Any], sort: str, offset: int) -> str:
    content = [row["start_time"].isoformat(), row["trace_id"], offset if sort != "time" else 0]
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _decoded(cursor: Any) -> tuple[str, str, int]:
    try:
        text = str(cursor)
        time, trace_id, offset = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        datetime.fromisoformat(time)
        return time, str(trace_id), int(offset)
    except (ValueError, TypeError) as error:
        raise ValueError("this cursor is not one of ours; start again without it") from error


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    row.pop("score", None)
    return row


def _scores(store: Store, rows: Sequence[Mapping[str, Any]], *, among_others: bool) -> dict[str, dict[str, Any]]:
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
    store: Store, keep: Sequence[str], parameters: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """Count the values of every facet in one pass, the most frequent first."""
    named = {key: value for key, value in parameters.items() if key != "bound" and not key.startswith("cursor_")}
    of = "CASE " + " ".join(f"WHEN grouping({name}) = 0 THEN '{name}'" for name in FACETS) + " END"
    rows = store.read(
        f"SELECT {of} AS facet, coalesce({', '.join(FACETS)}) AS value, count(*) AS n"
        f" FROM traces t{_score_join(params)} WHERE {' AND '.join(keep)}"
        f" GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in FACETS)}) HAVING value IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}"
        " ORDER BY n DESC, value",
        named,
    ).rows
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in FACETS}
    for facet, value, n in rows:
        found[facet].append({"value": value, "n": n})
    return found
