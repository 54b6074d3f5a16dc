"""OTLP protobuf to wire shapes. Walking attributes in Python is what receiving costs, so each is touched once.

Reading an unset member of the value's oneof gives its empty default, so a truthy read needs no question first: text,
nearly every attribute, costs one access, and `WhichOneof` is asked of empty values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragpulse_collector.otlp.wire import VECTOR_LENGTH, Attributes, Origin, Vector, WireEvent, WireLog, WireSpan
from ragpulse_collector.records import DecodeError


def spans(body: bytes) -> Iterator[WireSpan]:
    """Yield the spans of an ExportTraceServiceRequest; raises DecodeError before the first."""
    for resource_spans in _message(ExportTraceServiceRequest, body).resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            origin = Origin(resource, scope_spans.scope.name, scope_spans.scope.version)
            for span in scope_spans.spans:
                yield _span(span, origin)


def logs(body: bytes) -> Iterator[WireLog]:
    """Yield the records of an ExportLogsServiceRequest; raises DecodeError before the first."""
    for resource_logs in _message(ExportLogsServiceRequest, body).resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            origin = Origin(resource, scope_logs.scope.name, scope_logs.scope.version)
            for record in scope_logs.log_records:
                yield _log(record, origin)


def metrics(body: bytes) -> int:
    """Return the number of metrics in an ExportMetricsServiceRequest; raises DecodeError."""
    request = _message(ExportMetricsServiceRequest, body)
    return sum(len(scope.metrics) for resource in request.resource_metrics for scope in resource.scope_metrics)


def _message(request_type: Any, body: bytes) -> Any:
    try:
        return request_type.FromString(body)
    except ProtobufError as error:
        raise DecodeError(
            f"not a readable {request_type.__name__} ({error}): truncated, text that is not UTF-8, "
            "or values nested more than 100 levels deep"
        ) from error


def _span(span: Any, origin: Origin) -> WireSpan:
    status = span.status
    return WireSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        status.code,
        status.message,
        span.trace_state,
        _attributes(span.attributes),
        span.dropped_attributes_count,
        origin,
        [WireEvent(event.name, event.time_unix_nano, _attributes(event.attributes)) for event in span.events],
    )


def _log(record: Any, origin: Origin) -> WireLog:
    return WireLog(
        record.trace_id.hex(),
        record.span_id.hex(),
        record.time_unix_nano or record.observed_time_unix_nano,
        record.event_name,
        _value(record.body),
        _attributes(record.attributes),
        origin,
    )


def _attributes(pairs: Iterable[Any]) -> Attributes:
    out: Attributes = {}
    for pair in pairs:
        value = pair.value
        text = value.string_value
        out[pair.key] = text if text else _other(value)
    return out


def _value(value: Any) -> Any:
    return value.string_value or _other(value)


def _other(value: Any) -> Any:
    """Return a value that is not a non-empty text."""
    number = value.int_value or value.double_value
    if number:
        return number
    if value.bool_value:
        return True
    which = value.WhichOneof("value")
    if which is None:
        return None
    return _READ[which](value)


def _list(value: Any) -> Any:
    values = value.array_value.values
    if len(values) >= VECTOR_LENGTH and values[0].WhichOneof("value") in ("double_value", "int_value"):
        return Vector(len(values))
    return [item.string_value or _other(item) for item in values]


_READ: dict[str, Any] = {
    "string_value": lambda _: "",
    "bool_value": lambda _: False,
    "int_value": lambda _: 0,
    "double_value": lambda value: value.double_value,
    "bytes_value": lambda value: value.bytes_value,
    "array_value": _list,
    "kvlist_value": lambda value: _attributes(value.kvlist_value.values),
}
