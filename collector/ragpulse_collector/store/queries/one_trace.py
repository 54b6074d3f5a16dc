"""One trace by its id: its facts, its neighbours in time, and the rows of its spans, contexts, scores and decisions.

The id is compared in its own type: a filter on the hex text of the views would read every row.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.queries.traces import FACTS, Filter, bound_to
from ragpulse_collector.store.views import FACT_COLUMNS, VIEWS, hex_span, spans_of

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
