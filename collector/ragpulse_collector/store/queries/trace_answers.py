"""One trace with all its parts; lists of traces and sessions, and the values of facets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.queries.traces import FACTS, IN_LISTS, SERIES, Filter, bound_to
from ragpulse_collector.store.views import FACT_COLUMNS, SESSION_FIGURES, SOURCE, VIEWS, hex_span, hex_trace, spans_of

AROUND = timedelta(hours=2)
"""With a known time only this much of the time around it is read, so that a look-up in a large file is cheap."""
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
        f"{VIEWS['scores'].replace('s.elapsed_ms', 's.elapsed_ms, s.calls', 1)}"
        f" WHERE s.trace_id = $id AND s.{IN_LISTS}",
        "s.request_time", "s.request_time",
    ),
    "decisions": (f"{VIEWS['decisions']} WHERE trace_id = $id", "request_time", "decided_at"),
    "unread": (_UNREAD, "s.start_time", "reason"),
}  # fmt: skip
"""Each part's relation, its column of time and its order."""


def part(
    store: Store, name: Literal["contexts", "scores", "decisions", "unread"], trace_id: UUID, time: datetime | None
) -> list[dict[str, Any]]:
    """Return the rows of a view that belong to the trace; `unread` lists why the SDK could not read results."""
    return _near(store, *_PARTS[name], trace_id, time)


def spans(store: Store, trace_id: UUID, time: datetime | None, selection: str | None) -> list[dict[str, Any]]:
    """Return the spans with all columns, with those of a waterfall (`brief`), or one span by its id (hex).

    A span that is stored twice is returned once.
    """
    select = (
        f"{_BRIEF if selection == 'brief' else VIEWS['spans']} WHERE {'s.trace_id = $id' if time else spans_of('$id')}"
    )
    if selection and selection != "brief":
        select += f" AND s.span_id = {int(selection, 16)}"
    rows = _near(store, select, "s.start_time", "s.start_time", trace_id, time)
    return list({row["span_id"]: row for row in reversed(rows)}.values())[::-1]


def _near(
    store: Store, select: str, column: str, order: str, trace_id: UUID, time: datetime | None
) -> list[dict[str, Any]]:
    parameters: dict[str, Any] = {"id": trace_id}
    if time is not None:
        select += f" AND {column} BETWEEN $first AND $last"
        parameters |= {"first": time - AROUND, "last": time + AROUND}
    return store.read(f"{select} ORDER BY {order}", parameters).dicts()


def facts(store: Store, trace_id: UUID) -> dict[str, Any] | None:
    """Return the trace's row of the view `traces` without its id, whether or not the trace is decided."""
    for read in (_decided, _undecided, _decided):  # again: it may be decided between the first two reads
        if rows := read(store, trace_id):
            return rows[0]
    return None


def _decided(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    return store.read(f"SELECT {_COLUMNS} FROM ({FACTS}) WHERE trace_id = $id", {"id": trace_id}).dicts()


def _undecided(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    parameters = {"id": trace_id}
    start = store.read("SELECT min(start_time) FROM raw.spans WHERE trace_id = $id", parameters).rows[0][0]
    sql = f"SELECT {_COLUMNS} FROM undecided_since($begun) WHERE trace_id = $id"
    return store.read(sql, parameters | {"begun": start}).dicts() if start else []


def unit_of(store: Store, trace_id: UUID) -> tuple[int | None, datetime] | None:
    """Return the first unit's span and the request time of a decided trace."""
    sql = f"SELECT unit_span_id, start_time FROM ({FACTS}) WHERE trace_id = $id"
    rows = store.read(sql, {"id": trace_id}).rows
    return (rows[0][0], rows[0][1]) if rows else None


def neighbours(store: Store, start: datetime, binding: Binding | None) -> dict[str, Any]:
    """Return the traces that began just before and just after, of those that the binding allows."""
    allowed = bound_to(binding) if binding else Filter()
    select = f"SELECT {{}} AS side, trace_id, start_time FROM ({FACTS}) WHERE start_time {{}} $start AND {allowed.sql}"
    order = " ORDER BY start_time {} LIMIT 1"
    previous = select.format("'previous'", "<") + order.format("DESC")
    following = select.format("'next'", ">") + order.format("ASC")
    rows = store.read(f"({previous}) UNION ALL ({following})", {"start": start, **allowed.parameters}).rows
    sides = {side: {"trace_id": trace_id.hex, "start_time": start_time} for side, trace_id, start_time in rows}
    return {"previous": sides.get("previous"), "next": sides.get("next")}


def labels(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    """Return people's verdicts on the trace, oldest first."""
    return store.read(
        "SELECT evaluator, score, passing, comment, annotator, created_at FROM raw.labels WHERE trace_id = $id"
        " ORDER BY created_at",
        {"id": trace_id},
    ).dicts()


def scored_by(store: Store, trace_id: UUID) -> list[str]:
    """Return the evaluators that have scored the trace, by name."""
    sql = "SELECT DISTINCT evaluator FROM raw.scores WHERE trace_id = $id AND status = 'ok' ORDER BY 1"
    return [name for (name,) in store.read(sql, {"id": trace_id}).rows]


FACETS = (
    "service", "model", "prompt_version", "variant", "environment", "release", "user_id", "session_id", "finish_reason",
    "agent", "data_source", "top_k", "answer",
)  # fmt: skip
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
"""The outcomes of a trace with an evaluator, as in `GET coverage`, and their relations."""


def has_outcome(outcome: str, *, since: bool) -> str:
    """Return the condition that a trace has this outcome with `$evaluator`, at any time or since `$evaluated_from`."""
    column = "decided_at" if OUTCOMES[outcome].startswith("raw.decisions") else "created_at"
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM {OUTCOMES[outcome]}"
        f" AND split_part(evaluator, '@', 1) = $evaluator{f' AND {column} >= $evaluated_from' if since else ''})"
    )


def retrieved(times: Collection[str]) -> str:
    """Return the condition that a span retrieved `$document`: a name in `GET documents`, or a source."""
    since = " AND start_time >= $from_time" if "from_time" in times else ""
    until = " AND start_time < $to_time + INTERVAL 1 DAY" if "to_time" in times else ""
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM raw.contexts"
        f" WHERE (coalesce(id, hash[1:16]) = $document OR (contains(metadata, $document) AND {SOURCE} = $document))"
        f"{since}{until})"
    )


def _lowest(score: str, failing: str) -> str:
    """Return SQL for the lowest score of failing results, else of passing ones, else of all others."""
    return (
        f"bool_or({failing}) AS failing, coalesce(min({score}) FILTER ({failing}), min({score}) FILTER (NOT {failing}),"
        f" min({score}))"
    )


def lowest_scores(*, of_one: bool) -> str:
    """One row per scored trace: its hex id, whether a check failed, its lowest score of `$evaluator` or of all.

    Failing results come first, so a low score without a threshold does not lead the list.
    """
    # One evaluator's scores have one scale, which may reach beyond 0..1.
    value = "coalesce(normalized, score)" if of_one else "normalized"
    only = f" AND $evaluator IN (evaluator, {SERIES})" if of_one else ""
    return (
        f"SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, {_lowest(value, 'NOT passing')} AS score"
        f" FROM raw.scores WHERE status = 'ok' AND {IN_LISTS}{only} GROUP BY trace_id"
    )


def with_scores(ids: str) -> str:
    """Return the traces with these ids (a relation of one column), each with its newest scores."""
    return f"""
        WITH chosen AS ({ids}), latest AS (
            SELECT {hex_trace("trace_id")} AS scored_id, {SERIES} AS evaluator,
                   arg_max(coalesce(normalized, score), created_at) AS value
            FROM raw.scores WHERE status = 'ok' AND {IN_LISTS} AND {hex_trace("trace_id")} IN (FROM chosen)
            GROUP BY ALL)
        SELECT {COLUMNS}, coalesce(scores, MAP {{}}) AS scores
        FROM traces LEFT JOIN (SELECT scored_id, map(list(evaluator), list(value)) AS scores FROM latest GROUP BY 1)
          ON scored_id = trace_id
        WHERE trace_id IN (FROM chosen)"""


def facets(store: Store, chosen: str, parameters: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Count the values of each facet, the most frequent first; `chosen` stands after FROM and ends in a condition."""
    facet_sql = "CASE " + " ".join(f"WHEN grouping({name}) = 0 THEN '{name}'" for name in FACETS) + " END"
    texts = ", ".join(f"{name}::VARCHAR" for name in FACETS)
    rows = store.read(
        f"SELECT {facet_sql} AS facet, coalesce({texts}) AS value, count(*) AS n"
        f" FROM {chosen} GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in FACETS)}) HAVING value IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}"
        " ORDER BY n DESC, value",
        parameters,
    ).rows
    by_facet: dict[str, list[dict[str, Any]]] = {name: [] for name in FACETS}
    for facet, value, n in (*rows, *store.read(_STATED.format(chosen=chosen), parameters).rows):
        by_facet.setdefault(facet, []).append({"value": value, "n": n})
    return by_facet


_STATED = f"""
    WITH stated AS (SELECT tags, metadata FROM {{chosen}} AND (tags IS NOT NULL OR metadata IS NOT NULL)),
    counted AS (
        SELECT 'tag' AS facet, value, count(*) AS n FROM (SELECT unnest(tags) AS value FROM stated) GROUP BY ALL
        UNION ALL
        SELECT 'metadata.' || entry.key, entry.value, count(*)
        FROM (SELECT unnest(map_entries(metadata)) AS entry FROM stated)
        WHERE entry.value IS NOT NULL GROUP BY ALL),
    ranked AS (
        SELECT *, row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) AS number,
               sum(n) OVER (PARTITION BY facet) AS total FROM counted)
    SELECT facet, value, n FROM ranked WHERE number <= {MAX_FACET_VALUES}
    QUALIFY facet = 'tag' OR dense_rank() OVER (ORDER BY facet = 'tag', total DESC, facet) <= {MAX_FACET_KEYS}
    ORDER BY facet <> 'tag', total DESC, facet, n DESC, value"""
"""The values of the tags, and of the most frequent keys of the metadata."""
SESSION_SORTS = {
    "time": "end_time DESC, session_id",
    "cost": "cost_usd DESC NULLS LAST, end_time DESC, session_id",
    "worst": "failing DESC NULLS LAST, worst_score ASC NULLS LAST, end_time DESC, session_id",
}
MAX_TURNS = 1_000


def sessions(condition: str, sort: str, *, of_one: bool) -> str:
    """Return the sessions with a turn that meets the condition, in order: the figures of all their turns.

    `failing` and `worst_score` are those of the worst turn, by `$evaluator` or by all evaluators.
    """
    return (
        f"SELECT session_id, {SESSION_FIGURES}, {_lowest('score', 'failing')} AS worst_score,"
        " arg_min(query, (start_time, trace_id)) AS query"
        f" FROM traces LEFT JOIN ({lowest_scores(of_one=of_one)}) s ON s.scored_id = traces.trace_id"
        f" WHERE session_id IN (SELECT session_id FROM traces t WHERE {condition}) GROUP BY session_id"
        f" ORDER BY {SESSION_SORTS[sort]}"
    )


def session(store: Store, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return the figures of a session and its last turns, the first one first."""
    parameters = {"session": name}
    figures = store.read(
        f"SELECT {SESSION_FIGURES} FROM traces WHERE session_id = $session HAVING count(*) > 0", parameters
    )
    turns = store.read(
        f"SELECT {COLUMNS} FROM traces WHERE session_id = $session"
        f" ORDER BY start_time DESC, trace_id DESC LIMIT {MAX_TURNS}",
        parameters,
    ).dicts()[::-1]
    return (figures.dicts()[0], turns) if figures.rows else None


def session_scores(store: Store, name: str) -> list[dict[str, Any]]:
    """Return the scores about a session as a whole, oldest first."""
    return store.read(
        f"SELECT {SERIES} AS evaluator, identifier, source, normalized, score, label, explanation, created_at"
        " FROM raw.scores WHERE scope = 'session' AND session_id = $session ORDER BY created_at",
        {"session": name},
    ).dicts()
