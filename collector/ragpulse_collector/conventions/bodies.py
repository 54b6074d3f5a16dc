"""Reads a request body into a batch of canonical columns. Pure.

Log records count if they are about a span: GenAI contents, exceptions and evaluation results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.conventions.mapper import (
    SCOPE_NAME,
    SCOPE_VERSION,
    TIME_FLAGS,
    Mapper,
    evaluation_result,
    rule_book,
    service_of,
)
from ragpulse_collector.conventions.redaction import Redactor
from ragpulse_collector.conventions.rules import BareSpan
from ragpulse_collector.conventions.values import text
from ragpulse_collector.instants import unix_ns
from ragpulse_collector.otlp import PARSERS
from ragpulse_collector.otlp.wire import (
    WireEvent,
    WireLog,
    WireRows,
    WireScope,
    is_span_id,
    is_trace_id,
    service_name,
)
from ragpulse_collector.records import Batch, ContentRecord, RawBody, SpanBatch
from ragpulse_collector.settings import Binding

_MAPPER = Mapper(rule_book())
_STATUS_CODES = {"ok": 1, "error": 2}
_TEXTS = ("query", "response")
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
MESSAGE_EVENTS = frozenset({"gen_ai.user.message", "gen_ai.choice"})
"""Pre-1.37: one record per message, its content in the body."""
EXCEPTION_EVENTS = frozenset({names.EXCEPTION_EVENT, "gen_ai.client.operation.exception"})
"""Exceptions as log records, which OpenTelemetry prefers to events of the span."""
_CONTENT = ("query", "response", "contexts")
_NOT_BOUND = "{of} outside what the key is bound to are rejected: services {services}, environments {environments}"


def batch_of(body: RawBody, redactor: Redactor | None) -> Batch:
    """Return the content of a body, its texts masked by the redactor; raises DecodeError.

    Spans without valid ids are rejected, and the others accepted. Metrics are only checked.
    """
    batch = Batch()
    if body.signal == "traces":
        _add_spans(batch, body)
    elif body.signal == "logs":
        _add_logs(batch, body)
    else:
        PARSERS[body.content_type].metrics(body.body)
    if redactor is not None:
        redactor.mask(batch)
    return batch


def derive(stored: SpanBatch) -> SpanBatch:
    """Return stored spans of one resource with their canonical columns derived again from their raw attributes.

    Texts from log events stay.
    """
    rows = WireRows(_scope(stored.values("resource")[0]))
    for row in range(len(stored)):
        _add_as_sent(rows, stored, row)
    derived = _MAPPER.spans(rows.batch()).spans
    mapped_from = list(map(orjson.loads, stored.values("mapped_from")))
    _keep_flags(derived, mapped_from)
    for name in _TEXTS:
        for row, value in enumerate(stored.values(name)):
            if value is not None and derived.value(name, row) is None and name not in mapped_from[row]:
                derived.set(name, row, value)
    for row in range(len(stored)):
        contexts = stored.contexts_of(row)
        if contexts is not None and derived.contexts_of(row) is None and "contexts" not in mapped_from[row]:
            derived.set_contexts(row, contexts)
    derived.columns |= {name: stored.column(name) for name in ("upstream_pi", "resource", "events", "links")}
    return derived


def _add_spans(batch: Batch, body: RawBody) -> None:
    wires, batch.rejected = PARSERS[body.content_type].spans(body.body)
    for wire in wires:
        if len(wire):
            mapped = _MAPPER.spans(wire)
            batch.spans.append(mapped.spans)
            batch.scores += mapped.scores
            batch.unmapped += mapped.unmapped
    if batch.rejected:
        batch.message = "spans need a trace_id of 16 bytes and a span_id of 8 bytes, not all zero"
    if body.binding is not None:
        _reject_unbound(batch, body.binding)


def _reject_unbound(batch: Batch, binding: Binding) -> None:
    """Reject spans of services and environments that the sender's key is not bound to, with their scores."""
    allowed, span_ids = [], set[tuple[str, str]]()
    for part in batch.spans:
        origins = zip(part.values("service"), part.values("environment"), strict=True)
        rows = [row for row, origin in enumerate(origins) if binding.allows(*origin)]
        if len(rows) < len(part):
            batch.rejected += len(part) - len(rows)
            batch.message = _NOT_BOUND.format(of="spans", **binding._asdict())
        if rows:
            allowed.append(part if len(rows) == len(part) else part.take(rows))
            span_ids |= set(allowed[-1].ids())
    batch.spans = allowed
    batch.scores = [score for score in batch.scores if score.written_on in span_ids]
    _bind(batch, binding)


def _bind(batch: Batch, binding: Binding) -> None:
    """Add what the sender may write to: whose trace an id names shows in the store, or later."""
    for score in batch.scores:
        score.binding = binding
    for event in batch.contents:
        event.binding = binding


def _add_logs(batch: Batch, body: RawBody) -> None:
    binding, records = body.binding, PARSERS[body.content_type].logs(body.body)
    if binding is None:
        _add_records(batch, records)
        return
    logs = list(records)
    allowed = [log for log in logs if binding.allows(*service_of(log.scope.resource))]
    _add_records(batch, allowed)
    _bind(batch, binding)
    if len(allowed) < len(logs):
        batch.rejected += len(logs) - len(allowed)
        batch.message = _NOT_BOUND.format(of="log records", **binding._asdict())


def _add_records(batch: Batch, logs: Iterable[WireLog]) -> None:
    """Add the content of log records to the batch; those without the trace they need are rejected."""
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
    _add_contents(batch, contents)


def _add_score(batch: Batch, log: WireLog) -> None:
    record = evaluation_result(log.attributes, log.time_ns)
    has_trace = is_trace_id(log.trace_id)
    if not (has_trace or (record is not None and record.response_id)):
        _reject(batch)
    elif record is not None:
        record.trace_id = log.trace_id.hex() if has_trace else None
        record.span_id = log.span_id.hex() if has_trace and is_span_id(log.span_id) else None
        batch.scores.append(record)


def _add_contents(batch: Batch, logs: Sequence[WireLog]) -> None:
    """Read log records by the rules for spans; a record without any text is left out."""
    rows = WireRows(WireScope({}))
    accepted = []
    for log in logs:
        if not is_trace_id(log.trace_id):
            _reject(batch)
        elif is_span_id(log.span_id):
            message = [WireEvent(log.event_name, log.time_ns, log.attributes)] if log.event_name else []
            attributes = {} if message else log.attributes
            rows.add(log.trace_id, log.span_id, None, "", log.time_ns, log.time_ns, attributes, events=message)
            accepted.append(log)
    mapping = _MAPPER.fields(rows.batch())
    for row, log in enumerate(accepted):
        texts = {name: mapping.values[name][row] for name in _CONTENT if name in mapping.values}
        if any(value is not None for value in texts.values()):
            batch.contents.append(_content(log, **texts))


def _add_exception(batch: Batch, log: WireLog) -> None:
    span = BareSpan()
    kind, message = (text(log.attributes.get(key), span) for key in (names.EXCEPTION_TYPE, names.EXCEPTION_MESSAGE))
    if is_trace_id(log.trace_id) and is_span_id(log.span_id) and (kind or message):
        batch.contents.append(_content(log, error_type=kind, status_message=message))


def _content(log: WireLog, **fields: Any) -> ContentRecord:
    return ContentRecord(trace_id=log.trace_id.hex(), span_id=log.span_id.hex(), time_ns=log.time_ns, **fields)


def _reject(batch: Batch) -> None:
    batch.rejected += 1
    batch.message = (
        "log records with GenAI content need the trace_id of the span they belong to, scores that or a response id"
    )


def _scope(resource_text: str) -> WireScope:
    resource = orjson.loads(resource_text)
    return WireScope(resource, resource.get(SCOPE_NAME, ""), resource.get(SCOPE_VERSION, ""))


def _add_as_sent(rows: WireRows, stored: SpanBatch, row: int) -> None:
    """Add a stored span as it was sent."""
    value = partial(stored.value, row=row)
    attributes = restore_attributes(
        value("attributes"), value("query"), value("response"), stored.contexts_of(row), with_bytes=True
    )
    rows.add(
        stored.trace_ids[row],
        stored.span_ids[row],
        stored.parent_span_ids[row],
        name=value("name"),
        start_ns=value("start_ns"),
        end_ns=value("end_ns"),
        attributes=attributes,
        status_codes=_STATUS_CODES.get(value("status"), 0),
        status_messages=value("status_message") or "",
        dropped_attributes=value("dropped_attributes"),
        events=[_event(event) for event in orjson.loads(value("events") or "[]")],
    )


def _keep_flags(derived: SpanBatch, stored: list[Mapping[str, Any]]) -> None:
    """Restore the flags of times: the stored times are corrected already."""
    for row, mapped_from in enumerate(stored):
        flags = mapped_from.get("flags", [])
        if any(flag in TIME_FLAGS for flag in flags):
            derived_from = orjson.loads(derived.value("mapped_from", row))
            derived.set("mapped_from", row, orjson.dumps({**derived_from, "flags": flags}).decode())


def _event(row: dict[str, Any]) -> WireEvent:
    date, _, fraction = row["time"].rstrip("Z").partition(".")
    time_ns = unix_ns(datetime.fromisoformat(date)) + int(fraction)
    return WireEvent(row["name"], time_ns, row["attributes"])
