"""One trace with all its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

import orjson
from pydantic import JsonValue

from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.queries.traces import COLUMNS, FACTS, Filter, TraceRow, bound_to
from ragpulse_collector.store.views import COUNTED, IN_LISTS, VIEWS, hex_span, hex_trace, spans_of


@dataclass(frozen=True, slots=True)
class SpanBrief:
    """What a waterfall shows of a span."""

    span_id: str
    parent_span_id: str | None
    start_time: datetime
    latency_ms: float | None
    name: str | None
    kind: str | None
    status: str | None
    error_type: str | None
    contexts_state: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    ttft_ms: float | None
    status_message: str | None


@dataclass(frozen=True, slots=True)
class SpanStep(SpanBrief):
    """A row of a waterfall; of a tool and a search with the beginnings of what went in and came out."""

    arguments: str | None
    result: str | None


@dataclass(frozen=True, slots=True)
class SpanWhole(SpanBrief):
    """A row of the view `spans`."""

    trace_id: str
    service: str | None
    query: str | None
    response: str | None
    model: str | None
    provider: str | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    session_id: str | None
    user_id: str | None
    prompt_name: str | None
    prompt_version: str | None
    attributes: JsonValue
    """As JSON text where texts that became columns are references, else as the client sent them."""
    mapped_from: JsonValue
    environment: str | None
    service_version: str | None
    variant: str | None
    cost_source: str | None
    cost_unknown_reason: str | None
    cache_write_tokens: int | None
    response_id: str | None
    tags: JsonValue
    metadata: JsonValue
    resource: JsonValue
    events: JsonValue
    links: JsonValue
    upstream_pi: float | None
    received_at: datetime
    finish_reason: str | None
    agent: str | None
    data_source: str | None
    top_k: int | None
    response_missing_reason: str | None
    control_flow: str | None
    index_version: str | None


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A row of the view `contexts`."""

    trace_id: str
    span_id: str
    rank: int
    id: str | None
    score: float | None
    text: str | None
    metadata: JsonValue
    hash: str | None
    start_time: datetime
    source: str | None
    """The document that the passage was cut from, as its metadata name it."""
    superseded: bool = field(default=False, kw_only=True)
    """Whether the answer is not from it: a reranker replaced it, or it belongs to another part of the trace."""


@dataclass(frozen=True, slots=True)
class SpanScore:
    """A row of the view `scores`."""

    trace_id: str
    span_id: str | None
    request_time: datetime
    evaluator: str
    version: str | None
    judge: str | None
    source: str
    status: str
    score: float | None
    normalized: float | None
    passing: bool | None
    label: str | None
    explanation: str | None
    pi: float | None
    label_pi: float | None
    reason: str | None
    cost_usd: float | None
    created_at: datetime
    run_id: str | None
    sampled: bool | None
    u: float | None
    label_version: str | None
    parts: JsonValue
    elapsed_ms: float | None
    calls: JsonValue
    attempt: int | None
    score_key: str | None
    scope: str | None
    identifier: str | None
    session_id: str | None
    ci95: list[float | None] | None
    exploratory: bool
    """Whether only replays that are not in use have it: lists and charts leave it out."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row of the view `decisions`."""

    trace_id: str
    span_id: str
    evaluator: str
    rule: str | None
    policy: str | None
    pi: float | None
    sampled: bool
    reason: str | None
    decided_at: datetime
    request_time: datetime
    u: float | None
    revision: int | None
    latest: bool


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A person's label."""

    evaluator: str
    score: float | None
    passing: bool | None
    comment: str | None
    annotator: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The trace that started just before or after."""

    trace_id: str
    start_time: datetime


class FirstUnit(NamedTuple):
    """The unit that stands for a decided trace; a trace of evaluators' spans alone has none."""

    span_id: int | None
    request_time: datetime


AROUND = timedelta(hours=2)
"""With a known time only this much of the time around it is read, so that a look-up in a large file is cheap."""
BRIEF = "brief"
BEGINNING = 1000
"""Characters of the arguments and the result of a tool in a waterfall."""
_BRIEF = f"""
    SELECT {hex_span("s.span_id")} AS span_id, {hex_span("s.parent_span_id")} AS parent_span_id, s.start_time,
           s.duration_us / 1000.0 AS latency_ms, s.name, s.kind, s.status, s.error_type,
           s.contexts_state, s.input_tokens, s.output_tokens, s.cost_usd, s.ttft_ms, s.status_message,
           left(c.query, {BEGINNING}) AS arguments, left(c.response, {BEGINNING}) AS result
    FROM raw.spans s LEFT JOIN raw.contents c ON s.kind IN ('tool', 'retriever')
      AND c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time"""
_UNREAD_NAME = "ragpulse.result.unread"
_UNREAD = f"""
    SELECT DISTINCT json_extract_string(s.attributes, '$."{_UNREAD_NAME}"') AS reason FROM raw.spans s
    WHERE s.kind IN ('rag', 'retriever', 'reranker', 'llm', 'agent') AND contains(s.attributes, '{_UNREAD_NAME}')
      AND s.trace_id = $id"""
_OF_SCORES = "s.calls, CASE WHEN s.ci_lo IS NOT NULL THEN [s.ci_lo, s.ci_hi] END AS ci95"
_SCORES = VIEWS["scores"].replace("s.elapsed_ms", f"s.elapsed_ms, {_OF_SCORES}", 1)


@dataclass(frozen=True, slots=True)
class OfTrace:
    """A trace to read the rows of, with a time that its spans are near, if one is known."""

    id: UUID
    time: datetime | None

    def spans(self, store: Store, selection: str | None) -> Sequence[SpanWhole | SpanStep]:
        """Return the spans with all columns, with those of a waterfall (`brief`), or one span by its id (hex).

        A span that is stored twice is returned once.
        """
        select = VIEWS["spans"] if selection != BRIEF else _BRIEF
        select += f" WHERE {'s.trace_id = $id' if self.time else spans_of('$id')}"
        if selection and selection != BRIEF:
            select += f" AND s.span_id = {int(selection, 16)}"
        rows = self._rows(store, select, "s.start_time", "s.start_time")
        found: Sequence[SpanWhole | SpanStep] = rows.of(SpanStep) if selection == BRIEF else _whole(rows)
        return list({span.span_id: span for span in reversed(found)}.values())[::-1]

    def contexts(self, store: Store) -> list[ContextRow]:
        """Return the retrieved contexts; their metadata are text."""
        select = f"{VIEWS['contexts']} WHERE trace_id = $id"
        return self._rows(store, select, "start_time", "span_id, rank").of(ContextRow)

    def scores(self, store: Store) -> list[SpanScore]:
        """Return the scores about the trace, not those about its session."""
        select = f"{_SCORES} WHERE s.trace_id = $id AND s.{IN_LISTS}"
        rows = self._rows(store, select, "s.request_time", "s.request_time")
        return rows.of(SpanScore, parts=parsed, calls=parsed)

    def decisions(self, store: Store) -> list[DecisionRow]:
        """Return the decisions, the first one first."""
        select = f"{VIEWS['decisions']} WHERE trace_id = $id"
        return self._rows(store, select, "request_time", "decided_at").of(DecisionRow)

    def unread(self, store: Store) -> list[str]:
        """Return why the SDK could not read results."""
        return self._rows(store, _UNREAD, "s.start_time", "reason").values

    def _rows(self, store: Store, select: str, column: str, order: str) -> Rows:
        """Return the rows that a query finds near the time in a column, in order."""
        parameters: dict[str, UUID | datetime] = {"id": self.id}
        if self.time is not None:
            select += f" AND {column} BETWEEN $first AND $last"
            parameters |= {"first": self.time - AROUND, "last": self.time + AROUND}
        return store.read(f"{select} ORDER BY {order}", parameters)


def _whole(rows: Rows) -> list[SpanWhole]:
    once = cache(parsed)  # a text that many spans share
    return rows.of(SpanWhole, mapped_from=once, tags=once, metadata=once, resource=once, events=once, links=once)


def parsed(value: JsonValue) -> JsonValue:
    """Return the value of a JSON text; a client's own text instead of JSON stays as it is."""
    try:
        return orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError:
        return value


def facts(store: Store, trace_id: UUID) -> TraceRow | None:
    """Return the trace's row of the view `traces`, whether or not the trace is decided."""
    for read in (_decided, _undecided, _decided):  # again: it may be decided between the first two reads
        if rows := read(store, trace_id):
            return rows[0]
    return None


_FACTS = COLUMNS.replace("trace_id", f"{hex_trace('trace_id')} AS trace_id", 1)


def _decided(store: Store, trace_id: UUID) -> list[TraceRow]:
    return store.read(f"SELECT {_FACTS} FROM ({FACTS}) WHERE trace_id = $id", {"id": trace_id}).of(TraceRow)


def _undecided(store: Store, trace_id: UUID) -> list[TraceRow]:
    parameters = {"id": trace_id}
    start = store.read("SELECT min(start_time) FROM raw.spans WHERE trace_id = $id", parameters).value
    sql = f"SELECT {_FACTS} FROM undecided_since($begun) WHERE trace_id = $id"
    return store.read(sql, parameters | {"begun": start}).of(TraceRow) if start else []


def unit_of(store: Store, trace_id: UUID) -> FirstUnit | None:
    """Return the first unit of a decided trace."""
    sql = f"SELECT unit_span_id, start_time FROM ({FACTS}) WHERE trace_id = $id"
    rows = store.read(sql, {"id": trace_id}).rows
    return FirstUnit(*rows[0]) if rows else None


def neighbours(store: Store, start: datetime, binding: Binding | None) -> tuple[Neighbour | None, Neighbour | None]:
    """Return the traces that began just before and just after, of those that the binding allows."""
    allowed = bound_to(binding) if binding else Filter()
    select = f"SELECT {{}} AS side, trace_id, start_time FROM ({FACTS}) WHERE start_time {{}} $start AND {allowed.sql}"
    order = " ORDER BY start_time {} LIMIT 1"
    previous = select.format("'previous'", "<") + order.format("DESC")
    following = select.format("'next'", ">") + order.format("ASC")
    rows = store.read(f"({previous}) UNION ALL ({following})", {"start": start, **allowed.parameters}).rows
    sides = {side: Neighbour(trace_id.hex, start_time) for side, trace_id, start_time in rows}
    return sides.get("previous"), sides.get("next")


def labels(store: Store, trace_id: UUID) -> list[LabelRow]:
    """Return people's verdicts on the trace, oldest first."""
    return store.read(
        "SELECT evaluator, score, passing, comment, annotator, created_at FROM raw.labels WHERE trace_id = $id"
        " ORDER BY created_at",
        {"id": trace_id},
    ).of(LabelRow)


def scored_by(store: Store, trace_id: UUID) -> list[str]:
    """Return the evaluators that have scored the trace, by name."""
    sql = f"SELECT DISTINCT evaluator FROM {COUNTED} WHERE trace_id = $id AND status = 'ok' ORDER BY 1"
    return store.read(sql, {"id": trace_id}).values
