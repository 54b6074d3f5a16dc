"""A request body in, a batch of records out: the function the store is handed. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from ragpulse_collector.conventions.identity import valid_span_id, valid_trace_id
from ragpulse_collector.conventions.lifting import wire_attributes
from ragpulse_collector.conventions.logs import add_log
from ragpulse_collector.conventions.record import SCOPE_NAME, SCOPE_VERSION, TIME_FLAGS, Mapper, rule_book
from ragpulse_collector.otlp import Origin, WireEvent, WireSpan, check_metrics, parse_blocks, parse_logs
from ragpulse_collector.records import Batch, RawBody, SpanRecord

_BOOK = rule_book()


def decode(body: RawBody) -> Batch:
    """Return everything a body holds in canonical records; raises DecodeError, then nothing of it counts.

    Spans without valid ids are refused one by one, the rest is taken. Metrics are checked and otherwise left alone.
    """
    batch = Batch()
    mapper = Mapper(_BOOK)
    if body.signal == "traces":
        _add_spans(batch, body, mapper)
    elif body.signal == "logs":
        for log in parse_logs(body):
            add_log(batch, log, mapper)
    else:
        check_metrics(body)
    return batch


def remap(record: SpanRecord) -> SpanRecord:
    """Return a stored span with its canonical columns derived anew from its raw attributes.

    Give the record as stored, with its texts. Texts that came from a log event, not from an attribute, are kept.
    """
    attributes = wire_attributes(record.attributes, record.query, record.response, record.contexts)
    batch = Batch()
    Mapper(_BOOK).add(_as_sent(record, attributes), batch)
    (fresh,) = batch.records
    flags = orjson.loads(record.mapped_from).get("flags", [])
    if any(flag in TIME_FLAGS for flag in flags):
        fresh.mapped_from = orjson.dumps({**orjson.loads(fresh.mapped_from), "flags": flags}).decode()
    kept: dict[str, Any] = {
        name: getattr(record, name)
        for name in ("query", "response", "contexts")
        if getattr(fresh, name) is None and name not in orjson.loads(record.mapped_from)
    }
    stored: dict[str, Any] = {"upstream_pi": record.upstream_pi, "resource": record.resource, "events": record.events}
    stored["links"] = record.links
    return replace(fresh, **{**stored, **kept})


def _add_spans(batch: Batch, body: RawBody, mapper: Mapper) -> None:
    blocks, spans = parse_blocks(body)
    for block in blocks:
        mapped = mapper.block(block)
        if mapped is None:
            spans += block.spans()
        else:
            batch.blocks.append(mapped)
    batch.failed_blocks = mapper.failed_blocks
    for span in spans:
        if not (valid_trace_id(span.trace_id) and valid_span_id(span.span_id)):
            batch.rejected += 1
            continue
        if span.parent_span_id is not None and not valid_span_id(span.parent_span_id):
            span.parent_span_id = None
        mapper.add(span, batch)
    if batch.rejected:
        batch.message = "spans need a trace_id of 16 bytes and a span_id of 8 bytes, not all zero"


def _as_sent(record: SpanRecord, attributes: dict[str, Any]) -> WireSpan:
    resource = orjson.loads(record.resource)
    scope = (resource.get(SCOPE_NAME, ""), resource.get(SCOPE_VERSION, ""))
    return WireSpan(
        record.trace_id,
        record.span_id,
        record.parent_span_id,
        record.name,
        record.start_ns,
        record.end_ns,
        {"ok": 1, "error": 2}.get(record.status, 0),
        record.status_message or "",
        "",
        attributes,
        record.dropped_attributes,
        Origin(resource, *scope),
        [_event(row) for row in orjson.loads(record.events or "[]")],
    )


def _event(row: dict[str, Any]) -> WireEvent:
    whole, _, fraction = row["time"].rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return WireEvent(row["name"], seconds * 10**9 + int(fraction), row["attributes"])
