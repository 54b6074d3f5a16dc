"""Lists of traces and sessions: conditions on outcomes and documents, scores beside rows, the values of facets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.views import FACT_COLUMNS, SESSION_FIGURES, hex_trace

FACETS = ("service", "model", "prompt_version", "variant", "environment", "release", "user_id", "session_id")
MAX_FACET_VALUES = 20
MAX_FACET_KEYS = 8
COLUMNS = ", ".join(("trace_id", *FACT_COLUMNS))
"""The columns of a trace in a list."""
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


def came_to(outcome: str, *, since: bool) -> str:
    """Return the condition that a trace came to this with `$evaluator`, whenever or since `$evaluated_from`."""
    made = "decided_at" if OUTCOMES[outcome].startswith("raw.decisions") else "created_at"
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM {OUTCOMES[outcome]}"
        f" AND split_part(evaluator, '@', 1) = $evaluator{f' AND {made} >= $evaluated_from' if since else ''})"
    )


def retrieved(times: Collection[str]) -> str:
    """Return the condition that a span of the trace found `$document`, which is called as `GET documents` does."""
    early = " AND start_time >= $from_time" if "from_time" in times else ""
    late = " AND start_time < $to_time + INTERVAL 1 DAY" if "to_time" in times else ""
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM raw.contexts"
        f" WHERE coalesce(id, hash[1:16]) = $document{early}{late})"
    )


def lowest_scores(*, of_one: bool) -> str:
    """One row per scored trace: its hex id, its lowest score of `$evaluator` or of all, and whether one failed."""
    only = " AND evaluator = $evaluator" if of_one else ""
    return (
        "SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, min(normalized) AS score,"
        f" bool_or(NOT passing) AS failing FROM raw.scores WHERE status = 'ok'{only} GROUP BY trace_id"
    )


def with_scores(ids: str) -> str:
    """Return the traces with these ids (a relation of one column), each with its newest scores (0 to 1)."""
    return f"""
        WITH chosen AS ({ids}), latest AS (
            SELECT {hex_trace("trace_id")} AS scored_id, evaluator, arg_max(normalized, created_at) AS value
            FROM raw.scores WHERE status = 'ok' AND {hex_trace("trace_id")} IN (FROM chosen) GROUP BY ALL)
        SELECT {COLUMNS}, coalesce(scores, MAP {{}}) AS scores
        FROM traces LEFT JOIN (SELECT scored_id, map(list(evaluator), list(value)) AS scores FROM latest GROUP BY 1)
          ON scored_id = trace_id
        WHERE trace_id IN (FROM chosen)"""


def scores_of(store: Store, rows: Sequence[Mapping[str, Any]], *, among_others: bool) -> dict[str, dict[str, Any]]:
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


def facets(store: Store, chosen: str, parameters: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Count the values of every facet, the most frequent first; `chosen` follows FROM and ends in a condition."""
    of = "CASE " + " ".join(f"WHEN grouping({name}) = 0 THEN '{name}'" for name in FACETS) + " END"
    rows = store.read(
        f"SELECT {of} AS facet, coalesce({', '.join(FACETS)}) AS value, count(*) AS n"
        f" FROM {chosen} GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in FACETS)}) HAVING value IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}"
        " ORDER BY n DESC, value",
        parameters,
    ).rows
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in FACETS}
    for facet, value, n in (*rows, *store.read(_STATED.format(chosen=chosen), parameters).rows):
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
SESSION_SORTS = {
    "time": "end_time DESC, session_id",
    "cost": "cost_usd DESC NULLS LAST, end_time DESC, session_id",
    "worst": "worst_score ASC NULLS LAST, end_time DESC, session_id",
}
MAX_TURNS = 1_000


def sessions(keep: str, sort: str, *, of_one: bool) -> str:
    """Return the sessions of which a turn meets the condition, in order: the figures of all their turns.

    `worst_score` is the lowest of `$evaluator` or of all evaluators.
    """
    return (
        f"SELECT session_id, {SESSION_FIGURES}, min(score) AS worst_score, arg_min(query, start_time) AS query"
        f" FROM traces LEFT JOIN ({lowest_scores(of_one=of_one)}) s ON s.scored_id = traces.trace_id"
        f" WHERE session_id IN (SELECT session_id FROM traces t WHERE {keep}) GROUP BY session_id"
        f" ORDER BY {SESSION_SORTS[sort]}"
    )


def session(store: Store, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return the figures of a session and its last turns, the first one first."""
    given = {"session": name}
    found = store.read(f"SELECT {SESSION_FIGURES} FROM traces WHERE session_id = $session HAVING count(*) > 0", given)
    turns = store.read(
        f"SELECT {COLUMNS} FROM traces WHERE session_id = $session"
        f" ORDER BY start_time DESC, trace_id DESC LIMIT {MAX_TURNS}",
        given,
    ).dicts()[::-1]
    return (found.dicts()[0], turns) if found.rows else None
