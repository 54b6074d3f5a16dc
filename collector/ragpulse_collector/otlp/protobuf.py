"""OTLP protobuf to batches. Most of the cost of receiving is the walk over attributes, so each is read once.

The parser returns a span's attributes as bytes. Most repeat within a body and come from a cache; a plain text is cut
out of its bytes. OpenTelemetry's own message reads all others, one by one.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ragpulse_collector.otlp.wire import (
    VECTOR_LENGTH,
    Attributes,
    Scope,
    Shape,
    Vector,
    WireBatch,
    WireEvent,
    WireLink,
    WireLog,
    is_span_id,
    is_trace_id,
    service_name,
)
from ragpulse_collector.records import DecodeError

_CACHE_SIZE, _MAX_PAIR_BYTES = 8192, 96
"""How many attributes are cached by their bytes, and up to which size."""


def spans(body: bytes) -> tuple[list[WireBatch], int]:
    """Return the spans of an ExportTraceServiceRequest, one batch for each scope, and how many had invalid ids.

    Raises DecodeError.
    """
    batches = []
    rejected = 0
    try:
        for resource_spans in _message(_TRACES, body).resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                scope = Scope(resource, scope_spans.scope.name, scope_spans.scope.version)
                valid = list(filter(_has_ids, scope_spans.spans))
                rejected += len(scope_spans.spans) - len(valid)
                batches.append(_batch(valid, scope))
    except (ProtobufError, UnicodeDecodeError) as error:
        raise _unreadable(_TRACES, error) from error
    return batches, rejected


def logs(body: bytes) -> Iterator[WireLog]:
    """Yield the records of an ExportLogsServiceRequest; raises DecodeError before the first."""
    for resource_logs in _message(ExportLogsServiceRequest, body).resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            scope = Scope(resource, scope_logs.scope.name, scope_logs.scope.version)
            for record in scope_logs.log_records:
                yield _log(record, scope)


def metrics(body: bytes) -> dict[str, int]:
    """Return the number of metrics of each service in an ExportMetricsServiceRequest; raises DecodeError."""
    counts: Counter[str] = Counter()
    for resource in _message(ExportMetricsServiceRequest, body).resource_metrics:
        service = service_name(_attributes(resource.resource.attributes))
        counts[service] += sum(len(scope.metrics) for scope in resource.scope_metrics)
    return counts


def _message(request_type: Any, body: bytes) -> Any:
    try:
        return request_type.FromString(body)
    except ProtobufError as error:
        raise _unreadable(request_type, error) from error


def _unreadable(request_type: Any, error: Exception) -> DecodeError:
    return DecodeError(
        f"not a readable {request_type.__name__} ({error}): truncated, text that is not UTF-8, "
        "or values nested more than 100 levels deep"
    )


def _has_ids(span: Any) -> bool:
    return is_trace_id(span.trace_id) and is_span_id(span.span_id)


def _batch(spans: Sequence[Any], scope: Scope) -> WireBatch:
    """Return the spans of one scope by column."""
    trace_ids, span_ids, parents, names, starts, ends = (list(map(field, spans)) for field in _SPAN_FIELDS)
    batch = WireBatch(
        scope=scope, trace_ids=trace_ids, span_ids=span_ids,
        parent_span_ids=[parent if is_span_id(parent) else None for parent in parents],
        names=names, start_ns=starts, end_ns=ends, shapes=_shapes([span.attributes[:] for span in spans]),
    )  # fmt: skip
    for row, span in enumerate(spans):
        _add_sparse(batch, row, span)
    return batch


def _add_sparse(batch: WireBatch, row: int, span: Any) -> None:
    """Add the fields that few spans have."""
    if span.HasField("status"):
        batch.status_codes[row] = span.status.code
        if span.status.message:
            batch.status_messages[row] = span.status.message
    if span.trace_state:
        batch.trace_states[row] = span.trace_state
    if span.dropped_attributes_count:
        batch.dropped_attributes[row] = span.dropped_attributes_count
    if span.events:
        batch.events[row] = [
            WireEvent(event.name, event.time_unix_nano, dict(map(_PAIRS.__getitem__, event.attributes)))
            for event in span.events
        ]
    if span.links:
        batch.links[row] = [
            WireLink(link.trace_id.hex(), link.span_id.hex(), dict(map(_PAIRS.__getitem__, link.attributes)))
            for link in span.links
        ]


def _shapes(pairs: Sequence[Sequence[bytes]]) -> list[Shape]:
    """Group spans, given as the bytes of their attributes, by the names of these."""
    by_length: dict[int, list[int]] = {}
    for row, span_pairs in enumerate(pairs):
        by_length.setdefault(len(span_pairs), []).append(row)
    return [shape for rows in by_length.values() for shape in _shapes_of_one_length(rows, pairs)]


def _shapes_of_one_length(rows: list[int], pairs: Sequence[Sequence[bytes]]) -> Iterator[Shape]:
    """Usually the names are the same; only otherwise is each span's tuple of names compared."""
    by_names: dict[tuple[bytes | str, ...], list[int]] = {}
    if all(map(_have_one_key, zip(*[pairs[row] for row in rows], strict=True))):
        by_names[()] = rows
    else:
        for row in rows:
            by_names.setdefault(tuple(map(_key, pairs[row])), []).append(row)
    for alike in by_names.values():
        # Of a name that occurs twice the last value counts.
        yield Shape(alike, dict(map(_column, zip(*[pairs[row] for row in alike], strict=True))))


def _have_one_key(pairs: Sequence[bytes]) -> bool:
    """Return whether the bytes show that all these attributes have the same name, without decoding a value."""
    first = pairs[0]
    end = _end_of_key(first)
    return end < len(first) and all(map(bytes.startswith, pairs, repeat(first[:end])))


def _key(pair: bytes) -> bytes | str:
    """Return the bytes of an attribute's name at their usual position, else the name itself."""
    end = _end_of_key(pair)
    return pair[:end] if end < len(pair) else _PAIRS[pair][0]


def _column(pairs: Sequence[bytes]) -> tuple[str, Sequence[Any]]:
    """Return the name and the values of attributes that have the same name."""
    first = pairs[0]
    if pairs.count(first) == len(pairs):
        name, value = _PAIRS[first]
        return name, [value] * len(pairs)
    end = _end_of_key(first)
    if end < len(first):
        headers = [_HEADERS[len(pair) - end] for pair in pairs]
        if all(map(bytes.startswith, pairs, headers, repeat(end))):
            texts = [pair[end + len(header) :].decode() for pair, header in zip(pairs, headers, strict=True)]
            return _NAMES[first[2:end]], texts
        doubles = all(map(bytes.startswith, pairs, repeat(_DOUBLE), repeat(end)))
        if doubles and set(map(len, pairs)) == {end + len(_DOUBLE) + 8}:
            numbers = b"".join([pair[-8:] for pair in pairs])
            return _NAMES[first[2:end]], struct.unpack(f"<{len(pairs)}d", numbers)
    return _PAIRS[first][0], [_PAIRS[pair][1] for pair in pairs]


def _traces_class(change: Callable[[DescriptorProto], None]) -> Any:
    """Return the class of traces requests with another descriptor of a span, for the same wire format."""
    pool = DescriptorPool()
    (trace,) = trace_service_pb2.DESCRIPTOR.dependencies
    for file in (*_dependencies(trace), trace, trace_service_pb2.DESCRIPTOR):
        proto = FileDescriptorProto.FromString(file.serialized_pb)
        if file is trace:
            (span,) = (message for message in proto.message_type if message.name == "Span")
            change(span)
        pool.Add(proto)
    return GetMessageClass(pool.FindMessageTypeByName(trace_service_pb2.ExportTraceServiceRequest.DESCRIPTOR.full_name))


def _dependencies(file: Any) -> list[Any]:
    """Return the dependencies of a file, deepest first."""
    files: dict[str, Any] = {}
    for dependency in file.dependencies:
        files |= {deeper.name: deeper for deeper in _dependencies(dependency)} | {dependency.name: dependency}
    return list(files.values())


def _attributes_as_bytes(span: DescriptorProto) -> None:
    """Declare the attributes of spans, events and links as bytes."""
    for message in (span, *span.nested_type):
        for field in message.field:
            if field.name == "attributes":
                _take_as_bytes(field)


def _take_as_bytes(field: FieldDescriptorProto) -> None:
    field.type = FieldDescriptorProto.TYPE_BYTES
    field.ClearField("type_name")


class _Pairs(dict[bytes, tuple[str, Any]]):
    """A cache of names and values by the bytes of an attribute, for short ones, which mostly repeat."""

    def __missing__(self, pair: bytes) -> tuple[str, Any]:
        size, end = len(pair), _end_of_key(pair)
        header = _HEADERS[size - end]
        if pair.startswith(header, end):
            item = _NAMES[pair[2:end]], pair[end + len(header) :].decode()
        else:
            message = KeyValue.FromString(pair)
            item = sys.intern(message.key), _value(message.value)
        if size <= _MAX_PAIR_BYTES and not isinstance(item[1], (list, dict)):
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[pair] = item
        return item


def _end_of_key(pair: bytes) -> int:
    """Return the end of the key at the start of an attribute, or its length if the key is elsewhere or long."""
    is_short_key = len(pair) > 2 and pair[0] == _KEY and pair[1] < 0x80  # most keys are that short
    return 2 + pair[1] if is_short_key else len(pair)


class _Names(dict[bytes, str]):
    """A cache of attribute names by their bytes."""

    def __missing__(self, key: bytes) -> str:
        if len(self) >= _CACHE_SIZE:
            self.clear()
        name = self[key] = sys.intern(key.decode())
        return name


class _Headers(dict[int, bytes]):
    """A cache of the bytes before a text in its `value` field, by the size of both together."""

    def __missing__(self, size: int) -> bytes:
        header = _text_header(size)
        if len(self) < _CACHE_SIZE:
            self[size] = header
        return header


def _text_header(size: int) -> bytes:
    for length in range(max(0, size - 12), size):
        text = b"\n" + _varint(length)
        header = b"\x12" + _varint(len(text) + length) + text
        if len(header) + length == size:
            return header
    return b"\0"  # no field begins with this


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _log(record: Any, scope: Scope) -> WireLog:
    return WireLog(
        record.trace_id.hex(),
        record.span_id.hex(),
        record.time_unix_nano or record.observed_time_unix_nano,
        record.event_name,
        _value(record.body),
        _attributes(record.attributes),
        scope,
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
    """Return a value that is no text, or the empty one."""
    number = value.int_value or value.double_value
    if number:
        return number
    if value.bool_value:
        return True
    member = value.WhichOneof("value")
    if member is None:
        return None
    return _READ[member](value)


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
_KEY = ord("\n")
_DOUBLE = b"\x12\x09\x21"
"""The bytes before a number of eight bytes."""
_PAIRS, _NAMES, _HEADERS = _Pairs(), _Names(), _Headers()
_SPAN_FIELDS = tuple(
    map(attrgetter, ("trace_id", "span_id", "parent_span_id", "name", "start_time_unix_nano", "end_time_unix_nano"))
)
_TRACES = _traces_class(_attributes_as_bytes)
