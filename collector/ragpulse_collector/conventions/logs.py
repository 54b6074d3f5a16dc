"""Log records that carry something of a span: GenAI contents and evaluation results. Ordinary logs are not kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.identity import valid_span_id, valid_trace_id
from ragpulse_collector.conventions.lifting import attributes_text
from ragpulse_collector.conventions.record import Mapper
from ragpulse_collector.conventions.rules import Carrier
from ragpulse_collector.conventions.values import number, unquoted
from ragpulse_collector.otlp import WireEvent, WireLog, WireSpan
from ragpulse_collector.records import Batch, ContentRecord, ScoreRecord

DETAILS_EVENT = "gen_ai.client.inference.operation.details"
MESSAGE_EVENTS = frozenset({"gen_ai.user.message", "gen_ai.choice"})
"""Pre-1.37: one record per message, its content in the body."""


def add_log(batch: Batch, log: WireLog, mapper: Mapper) -> None:
    """Add what a record holds to the batch; count it as rejected where it names no trace to belong to."""
    event = log.event_name or log.attributes.get("event.name")
    if event == names.EVALUATION_EVENT:
        _add(batch, log, _score(log), batch.scores)
    elif event == DETAILS_EVENT:
        _add(batch, log, _content(log, mapper), batch.contents)
    elif event in MESSAGE_EVENTS:
        body = log.body if isinstance(log.body, dict) else {"content": log.body}
        message = WireEvent(str(event), log.time_ns, {**log.attributes, **body})
        _add(batch, log, _content(replace(log, attributes={}), mapper, [message]), batch.contents)


def _add(batch: Batch, log: WireLog, record: Any, target: list[Any]) -> None:
    if not (valid_trace_id(log.trace_id) or (isinstance(record, ScoreRecord) and record.response_id)):
        batch.rejected += 1
        batch.message = (
            "log records with GenAI content need the trace_id of the span they belong to, scores that or a response id"
        )
    elif record is not None:
        target.append(record)


def _score(log: WireLog) -> ScoreRecord | None:
    carrier = Carrier({})
    attributes = log.attributes
    name = unquoted(attributes.get(names.EVALUATION_NAME), carrier)
    if name is None:
        return None
    human = attributes.get(names.SCORE_SOURCE) == names.SCORE_SOURCE_HUMAN
    known = valid_trace_id(log.trace_id)
    return ScoreRecord(
        trace_id=log.trace_id if known else None,
        span_id=log.span_id if known and valid_span_id(log.span_id) else None,
        time_ns=log.time_ns,
        name=name,
        score=number(attributes.get(names.EVALUATION_SCORE), carrier),
        label=unquoted(attributes.get(names.EVALUATION_LABEL), carrier),
        explanation=unquoted(attributes.get(names.EVALUATION_EXPLANATION), carrier),
        source="human" if human else "code",
        response_id=unquoted(attributes.get(names.RESPONSE_ID), carrier),
    )


def _content(log: WireLog, mapper: Mapper, events: list[WireEvent] | None = None) -> ContentRecord | None:
    """Read a record as if its attributes were on the span; texts that say nothing make no record."""
    if not valid_span_id(log.span_id):
        return None
    span = WireSpan(
        log.trace_id, log.span_id, None, "", log.time_ns, log.time_ns, 0, "", "", log.attributes, 0, log.origin,
        events or [],
    )  # fmt: skip
    mapping = mapper.resolve(span)
    texts = {key: mapping.values.get(key) for key in ("query", "response", "contexts")}
    if not any(value is not None for value in texts.values()):
        return None
    attributes = attributes_text(log.attributes, mapping.replaced)
    return ContentRecord(
        trace_id=log.trace_id, span_id=log.span_id, time_ns=log.time_ns, attributes=attributes, **texts
    )
