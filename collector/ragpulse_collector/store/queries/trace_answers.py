"""One trace with all its parts; lists of traces and sessions with their scores, and the values of facets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.queries.traces import FACTS, Filter, bound_to
from ragpulse_collector.store.views import FACT_COLUMNS, SESSION_FIGURES, VIEWS, hex_span, hex_trace, spans_of

AROUND = timedelta(hours=2)
"""Where a time is known only this much of the time around it is read: a look-up stays cheap in a large file."""
_COLUMNS = ", ".join(FACT_COLUMNS)
_BRIEF = f"""
    SELECT {hex_span("s.span_id")} AS span_id, {hex_span("s.parent_span_id")} AS parent_span_id, s.start_time,
           s.duration_us / 1000.0 AS latency_ms, s.name, s.kind, s.status, s.error_type,
           s.contexts_state, s.input_tokens, s.output_tokens, s.cost_usd, s.ttft_ms, s.status_message
    FROM raw.spans s"""
_UNREAD_NAME = "ragpulse.result.unread"
_UNREAD = f"""
    SELECT DISTINCT json_extract_string(s.attributes, '$."{_UNREAD_NAME}"') AS reason FROM raw.spans s
    WHERE s.kind IN ('rag', 'retriever', 'reranker', 'llm', 'agent') AND contains(s.attributes, '{_UNREAD_NAME}')
      AND s.trace_id = $id"""
_PARTS = {
    "contexts": (f"{VIEWS['contexts']} WHERE trace_id = $id", "start_time", "span_id, rank"),
    "scores": (
        f"{VIEWS['scores'].replace('s.elapsed_ms', 's.elapsed_ms, s.calls', 1)} WHERE s.trace_id = $id",
        "s.request_time", "s.request_time",
    ),
    "decisions": (f"{VIEWS['decisions']} WHERE trace_id = $id", "request_time", "decided_at"),
    "unread": (_UNREAD, "s.start_time", "reason"),
}  # fmt: skip
"""Each part's relation, its column of time and its order."""


def part(
    store: Store, name: Literal["contexts", "scores", "decisions", "unread"], trace_id: UUID, at: datetime | None
) -> list[dict[str, Any]]:
    """Return the rows of a view that belong to the trace; `unread` says why results of the SDK were not understood."""
    return _near(store, *_PARTS[name], trace_id, at)


def spans(store: Store, trace_id: UUID, at: datetime | None, which: str | None) -> list[dict[str, Any]]:
    """Return the spans with all columns, what a waterfall shows of each (`brief`), or one span by its id (hex).

    A span that was sent again across a restart is there once.
    """
    select = f"{_BRIEF if which == 'brief' else VIEWS['spans']} WHERE {'s.trace_id = $id' if at else spans_of('$id')}"
    if which and which != "brief":
        select += f" AND s.span_id = {int(which, 16)}"
    rows = _near(store, select, "s.start_time", "s.start_time", trace_id, at)
    return list({row["span_id"]: row for row in reversed(rows)}.values())[::-1]


def _near(
    store: Store, select: str, column: str, order: str, trace_id: UUID, at: datetime | None
) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"id": trace_id}
    if at is not None:
        select += f" AND {column} BETWEEN $first AND $last"
        given |= {"first": at - AROUND, "last": at + AROUND}
    return store.read(f"{select} ORDER BY {order}", given).dicts()


def facts(store: Store, trace_id: UUID) -> dict[str, Any] | None:
    """Return the trace's row of the view `traces` without its id, whether or not the trace is decided."""
    for read in (_decided, _undecided, _decided):  # again: it may be decided while the undecided ones are read
        if found := read(store, trace_id):
            return found[0]
    return None


def _decided(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    return store.read(f"SELECT {_COLUMNS} FROM ({FACTS}) WHERE trace_id = $id", {"id": trace_id}).dicts()


def _undecided(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    one = {"id": trace_id}
    begun = store.read("SELECT min(start_time) FROM raw.spans WHERE trace_id = $id", one).rows[0][0]
    asked = f"SELECT {_COLUMNS} FROM undecided_since($begun) WHERE trace_id = $id"
    return store.read(asked, one | {"begun": begun}).dicts() if begun else []


def unit_of(store: Store, trace_id: UUID) -> tuple[int | None, datetime] | None:
    """Return the first unit's span and the request time of a decided trace."""
    asked = f"SELECT unit_span_id, start_time FROM ({FACTS}) WHERE trace_id = $id"
    rows = store.read(asked, {"id": trace_id}).rows
    return (rows[0][0], rows[0][1]) if rows else None


def neighbours(store: Store, start: datetime, binding: Binding | None) -> dict[str, Any]:
    """Return the traces that began just before and just after, of those that the binding allows."""
    keep = bound_to(binding) if binding else Filter()
    one = f"SELECT {{}} AS side, trace_id, start_time FROM ({FACTS}) WHERE start_time {{}} $start AND {keep.sql}"
    first = " ORDER BY start_time {} LIMIT 1"
    before = one.format("'previous'", "<") + first.format("DESC")
    after = one.format("'next'", ">") + first.format("ASC")
    rows = store.read(f"({before}) UNION ALL ({after})", {"start": start, **keep.parameters}).rows
    found = {side: {"trace_id": trace_id.hex, "start_time": begun} for side, trace_id, begun in rows}
    return {"previous": found.get("previous"), "next": found.get("next")}


def labels(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    """Return people's verdicts on the trace, oldest first."""
    return store.read(
        "SELECT evaluator, score, passing, comment, annotator, created_at FROM raw.labels WHERE trace_id = $id"
        " ORDER BY created_at",
        {"id": trace_id},
    ).dicts()


def scored_by(store: Store, trace_id: UUID) -> list[str]:
    """Return the evaluators that have scored the trace, by name."""
    asked = "SELECT DISTINCT evaluator FROM raw.scores WHERE trace_id = $id AND status = 'ok' ORDER BY 1"
    return [name for (name,) in store.read(asked, {"id": trace_id}).rows]


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


def _lowest(score: str, failing: str) -> str:
    """The lowest score of those that fail, else of those that pass, else of those that are not judged."""
    return (
        f"bool_or({failing}) AS failing, coalesce(min({score}) FILTER ({failing}), min({score}) FILTER (NOT {failing}),"
        f" min({score}))"
    )


def lowest_scores(*, of_one: bool) -> str:
    """One row per scored trace: its hex id, whether a check failed, its lowest score of `$evaluator` or of all.

    Where failing ones come first, a low score that nobody judges by does not lead.
    """
    only = " AND evaluator = $evaluator" if of_one else ""
    return (
        f"SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, {_lowest('normalized', 'NOT passing')} AS score"
        f" FROM raw.scores WHERE status = 'ok'{only} GROUP BY trace_id"
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
    "worst": "failing DESC NULLS LAST, worst_score ASC NULLS LAST, end_time DESC, session_id",
}
MAX_TURNS = 1_000


def sessions(keep: str, sort: str, *, of_one: bool) -> str:
    """Return the sessions of which a turn meets the condition, in order: the figures of all their turns.

    `failing` and `worst_score` are those of the worst turn, by `$evaluator` or by all evaluators.
    """
    return (
        f"SELECT session_id, {SESSION_FIGURES}, {_lowest('score', 'failing')} AS worst_score,"
        " arg_min(query, start_time) AS query"
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
