"""Log records that carry something of a span: GenAI contents and evaluation results. Ordinary logs are not kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.mapper import Mapper
from ragpulse_collector.conventions.rules import Alone
from ragpulse_collector.conventions.values import number, text, unquoted
from ragpulse_collector.otlp import Scope, WireEvent, WireLog, WireRows, is_span_id, is_trace_id, service_name
from ragpulse_collector.records import Batch, ContentRecord, ScoreRecord

DETAILS_EVENT = "gen_ai.client.inference.operation.details"
MESSAGE_EVENTS = frozenset({"gen_ai.user.message", "gen_ai.choice"})
"""Pre-1.37: one record per message, its content in the body."""
EXCEPTION_EVENTS = frozenset({names.EXCEPTION_EVENT, "gen_ai.client.operation.exception"})
"""Exceptions as log records, which OpenTelemetry prefers to events of the span."""
_CONTENT = ("query", "response", "contexts")


def add_logs(batch: Batch, logs: Iterable[WireLog], mapper: Mapper) -> None:
    """Add what records hold to the batch; count those as rejected that name no trace to belong to."""
    contents: list[WireLog] = []
    for log in logs:
        event = log.event_name or log.attributes.get("event.name")
        if event == names.EVALUATION_EVENT:
            _add_score(batch, log)
        elif event == DETAILS_EVENT:
            contents.append(replace(log, event_name=""))
        elif event in MESSAGE_EVENTS:
            body = log.body if isinstance(log.body, dict) else {"content": log.body}
            contents.append(replace(log, event_name=str(event), attributes={**log.attributes, **body}))
        elif event in EXCEPTION_EVENTS and log.span_id:
            _add_exception(batch, log)
        else:
            service = service_name(log.scope.resource)
            batch.not_stored[service] = batch.not_stored.get(service, 0) + 1
    _add_contents(batch, contents, mapper)


def _add_score(batch: Batch, log: WireLog) -> None:
    record = _score(log)
    if not (_has_trace(log) or (record is not None and record.response_id)):
        _reject(batch)
    elif record is not None:
        batch.scores.append(record)


def _add_contents(batch: Batch, logs: Sequence[WireLog], mapper: Mapper) -> None:
    """Read records as if what they hold were on their spans; texts that hold nothing make no record."""
    rows = WireRows(Scope({}))
    kept = []
    for log in logs:
        if not _has_trace(log):
            _reject(batch)
        elif is_span_id(bytes.fromhex(log.span_id)):
            message = [WireEvent(log.event_name, log.time_ns, log.attributes)] if log.event_name else []
            ids = bytes.fromhex(log.trace_id), bytes.fromhex(log.span_id), None
            attributes = {} if message else log.attributes
            rows.add(*ids, "", log.time_ns, log.time_ns, attributes, events=message)
            kept.append(log)
    mapping = mapper.fields(rows.batch())
    for row, log in enumerate(kept):
        texts = {name: mapping.values[name][row] for name in _CONTENT if name in mapping.values}
        if any(value is not None for value in texts.values()):
            batch.contents.append(
                ContentRecord(trace_id=log.trace_id, span_id=log.span_id, time_ns=log.time_ns, **texts)
            )


def _add_exception(batch: Batch, log: WireLog) -> None:
    span = Alone()
    kind, message = (text(log.attributes.get(key), span) for key in (names.EXCEPTION_TYPE, names.EXCEPTION_MESSAGE))
    if _has_trace(log) and is_span_id(bytes.fromhex(log.span_id)) and (kind or message):
        batch.contents.append(
            ContentRecord(
                trace_id=log.trace_id,
                span_id=log.span_id,
                time_ns=log.time_ns,
                error_type=kind,
                status_message=message,
            )
        )


def _has_trace(log: WireLog) -> bool:
    return is_trace_id(bytes.fromhex(log.trace_id))


def _reject(batch: Batch) -> None:
    batch.rejected += 1
    batch.message = (
        "log records with GenAI content need the trace_id of the span they belong to, scores that or a response id"
    )


def _score(log: WireLog) -> ScoreRecord | None:
    span = Alone()
    attributes = log.attributes
    name = unquoted(attributes.get(names.EVALUATION_NAME), span)
    if name is None:
        return None
    human = attributes.get(names.SCORE_SOURCE) == names.SCORE_SOURCE_HUMAN
    known = _has_trace(log)
    return ScoreRecord(
        trace_id=log.trace_id if known else None,
        span_id=log.span_id if known and is_span_id(bytes.fromhex(log.span_id)) else None,
        time_ns=log.time_ns,
        name=name,
        score=number(attributes.get(names.EVALUATION_SCORE), span),
        label=unquoted(attributes.get(names.EVALUATION_LABEL), span),
        explanation=unquoted(attributes.get(names.EVALUATION_EXPLANATION), span),
        source="human" if human else "code",
        response_id=unquoted(attributes.get(names.RESPONSE_ID), span),
    )
