"""A request body in, a batch of canonical columns out: the function that the store is handed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from ragpulse_collector.conventions.lifting import wire_attributes
from ragpulse_collector.conventions.logs import add_logs
from ragpulse_collector.conventions.mapper import SCOPE_NAME, SCOPE_VERSION, TIME_FLAGS, Mapper, rule_book, service_of
from ragpulse_collector.otlp import Scope, WireEvent, WireRows, count_metrics, parse_logs, parse_spans
from ragpulse_collector.records import Batch, Constant, RawBody, SpanBatch
from ragpulse_collector.settings import Binding

_MAPPER = Mapper(rule_book())
_STATUS_CODES = {"ok": 1, "error": 2}
_TEXTS = ("query", "response")
_NOT_BOUND = "{of} outside what the key is bound to are rejected: services {services}, environments {environments}"


def decode(body: RawBody) -> Batch:
    """Return everything a body holds in canonical columns; raises DecodeError, then nothing of it counts.

    Spans without valid ids are rejected one by one, the rest is taken. Metrics are checked and otherwise left alone.
    """
    batch = Batch()
    if body.signal == "traces":
        _add_spans(batch, body)
    elif body.signal == "logs":
        _add_logs(batch, body)
    else:
        count_metrics(body)
    return batch


def remap(stored: SpanBatch) -> SpanBatch:
    """Return stored spans of one resource with their canonical columns derived again from their raw attributes.

    Texts that came from a log event, not from an attribute, are kept.
    """
    rows = WireRows(_scope(stored.values("resource")[0]))
    for row in range(len(stored)):
        _add_as_sent(rows, stored, row)
    derived = _MAPPER.spans(rows.batch()).spans
    mapped_from = list(map(orjson.loads, stored.values("mapped_from")))
    _keep_flags(derived, mapped_from)
    for name in _TEXTS:
        for row, value in enumerate(stored.values(name)):
            if value is not None and derived.values(name)[row] is None and name not in mapped_from[row]:
                derived.set(name, row, value)
    for row in range(len(stored)):
        contexts = stored.contexts_of(row)
        if contexts is not None and derived.contexts_of(row) is None and "contexts" not in mapped_from[row]:
            derived.set_contexts(row, contexts)
    derived.columns |= {name: stored.column(name) for name in ("upstream_pi", "resource", "events", "links")}
    return derived


def _add_spans(batch: Batch, body: RawBody) -> None:
    wires, batch.rejected = parse_spans(body)
    for wire in wires:
        if len(wire):
            mapped = _MAPPER.spans(wire)
            batch.spans.append(mapped.spans)
            batch.scores += mapped.scores
            batch.unmapped += mapped.unmapped
    if batch.rejected:
        batch.message = "spans need a trace_id of 16 bytes and a span_id of 8 bytes, not all zero"
    if body.binding is not None:
        _reject_others(batch, body.binding)


def _reject_others(batch: Batch, binding: Binding) -> None:
    """Drop the spans of services and environments that the sender's key is not bound to, with their scores."""
    kept, spans = [], set()
    for part in batch.spans:
        places = zip(part.values("service"), part.values("environment"), strict=True)
        rows = [row for row, place in enumerate(places) if binding.allows(*place)]
        if len(rows) < len(part):
            batch.rejected += len(part) - len(rows)
            batch.message = _NOT_BOUND.format(of="spans", **binding._asdict())
        if rows:
            kept.append(part if len(rows) == len(part) else part.take(rows))
            spans |= {(kept[-1].trace_ids[row].hex(), kept[-1].span_ids[row].hex()) for row in range(len(rows))}
    batch.spans = kept
    batch.scores = [score for score in batch.scores if (score.trace_id, score.span_id) in spans]


def _add_logs(batch: Batch, body: RawBody) -> None:
    binding = body.binding
    if binding is None:
        add_logs(batch, parse_logs(body), _MAPPER)
        return
    logs = list(parse_logs(body))
    allowed = [log for log in logs if binding.allows(*service_of(log.scope.resource))]
    add_logs(batch, allowed, _MAPPER)
    if len(allowed) < len(logs):
        batch.rejected += len(logs) - len(allowed)
        batch.message = _NOT_BOUND.format(of="log records", **binding._asdict())


def _scope(resource_text: str) -> Scope:
    resource = orjson.loads(resource_text)
    return Scope(resource, resource.get(SCOPE_NAME, ""), resource.get(SCOPE_VERSION, ""))


def _add_as_sent(rows: WireRows, stored: SpanBatch, row: int) -> None:
    """Add a stored span as it came over the wire."""

    def value(name: str) -> Any:
        column = stored.column(name)
        return column.value if isinstance(column, Constant) else column[row]

    attributes = wire_attributes(value("attributes"), value("query"), value("response"), stored.contexts_of(row))
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
    """Flags of times stay: the stored times are already corrected."""
    for row, before in enumerate(stored):
        flags = before.get("flags", [])
        if any(flag in TIME_FLAGS for flag in flags):
            now = orjson.loads(derived.values("mapped_from")[row])
            derived.set("mapped_from", row, orjson.dumps({**now, "flags": flags}).decode())


def _event(row: dict[str, Any]) -> WireEvent:
    whole, _, fraction = row["time"].rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return WireEvent(row["name"], seconds * 10**9 + int(fraction), row["attributes"])
