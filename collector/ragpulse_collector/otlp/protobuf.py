"""OTLP protobuf to wire shapes. Walking attributes in Python is what receiving costs, so each is touched once.

A span's attributes are taken from the parser as bytes: most repeat within a body, and one look into a dict answers
those; a plain text is cut out of its bytes. Everything else goes through OpenTelemetry's own message, one by one.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import Any, TypeAlias

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
    Origin,
    Vector,
    WireBlock,
    WireEvent,
    WireLink,
    WireLog,
    WireSpan,
)
from ragpulse_collector.records import DecodeError

_Row: TypeAlias = tuple[Any, ...]
"""What a usual span has: its position, itself, its attributes as bytes."""
_KNOWN_PAIRS, _LONGEST_PAIR = 8192, 96
"""How many short attributes are remembered by their bytes, and what is short."""


def spans(body: bytes, *, only: Container[int] | None = None) -> Iterator[WireSpan]:
    """Yield the spans of an ExportTraceServiceRequest; raises DecodeError, as late as at the faulty attribute.

    With `only`, those at these positions in the body.
    """
    positions = count()
    try:
        for origin, found in _scopes(_message(_TRACES, body)):
            for span, position in zip(found, positions, strict=False):
                if only is None or position in only:
                    yield _span(span, origin)
    except (ProtobufError, UnicodeDecodeError) as error:
        raise _unreadable(_TRACES, error) from error


def blocks(body: bytes) -> tuple[list[WireBlock], list[tuple[int, WireSpan]]]:
    """Return the spans of an ExportTraceServiceRequest in blocks of one shape; raises DecodeError.

    What no block takes (see WireBlock) comes beside them, each span with its position in the body.
    """
    found: list[WireBlock] = []
    unusual: list[int] = []
    positions = count()
    try:
        for origin, spans_of_scope in _scopes(_message(_USUAL_TRACES, body)):
            found += _blocks(zip(spans_of_scope, positions, strict=False), origin, unusual)
    except (ProtobufError, UnicodeDecodeError) as error:
        raise _unreadable(_TRACES, error) from error
    rest = spans(body, only=frozenset(unusual)) if unusual else ()
    return found, list(zip(unusual, rest, strict=True))


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


def _scopes(request: Any) -> Iterator[tuple[Origin, Any]]:
    """Yield where spans come from, and the spans, in the order of the body."""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            yield Origin(resource, scope_spans.scope.name, scope_spans.scope.version), scope_spans.spans


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


def _blocks(spans_: Iterable[tuple[Any, int]], origin: Origin, unusual: list[int]) -> Iterator[WireBlock]:
    shapes: dict[tuple[bytes, int], list[_Row]] = {}
    for span, position in spans_:
        status = span.status
        if span.WhichOneof(_UNUSUAL) is not None or status not in _STATUS_CODES:
            unusual.append(position)
            continue
        pairs = span.attributes[:]
        shapes.setdefault((status, len(pairs)), []).append((position, span, pairs))
    for (status, _), rows in shapes.items():
        for alike, attributes in _alike(rows):
            positions, found, _ = zip(*alike, strict=True)
            fields: list[Any] = [positions, *(list(map(field, found)) for field in _SPAN_FIELDS), attributes]
            yield WireBlock(origin, _STATUS_CODES[status], *fields)


def _alike(rows: list[_Row]) -> Iterator[tuple[list[_Row], dict[str, Sequence[Any]]]]:
    """Yield spans whose attributes have the same names in the same order, and those by column."""
    for group_by in (None, _key, _name):
        left: list[_Row] = []
        for alike in [rows] if group_by is None else _grouped(rows, group_by):
            attributes = _columns(alike, by_bytes=group_by is not _name)
            if attributes is None:
                left += alike
            else:
                yield alike, attributes
        rows = left


def _grouped(rows: list[_Row], by: Callable[[bytes], bytes | str]) -> Iterable[list[_Row]]:
    groups: dict[tuple[bytes | str, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(tuple(map(by, row[-1])), []).append(row)
    return groups.values()


def _key(pair: bytes) -> bytes | str:
    """Return the bytes that an attribute's name is usually in; the name itself where they are elsewhere."""
    end = _end_of_key(pair)
    return pair[:end] if end < len(pair) else _name(pair)


def _name(pair: bytes) -> str:
    return _KNOWN[pair][0]


def _columns(rows: list[_Row], *, by_bytes: bool) -> dict[str, Sequence[Any]] | None:
    """Return attributes by column, None where their names differ; a name that comes twice means its last value.

    With `by_bytes`, names are different where their bytes are: no value is decoded only to learn its name.
    """
    columns: dict[str, Sequence[Any]] = {}
    for pairs in zip(*[row[-1] for row in rows], strict=True):
        column = _column(pairs, by_bytes=by_bytes)
        if column is None:
            return None
        columns[column[0]] = column[1]
    return columns


def _column(pairs: Sequence[bytes], *, by_bytes: bool) -> tuple[str, Sequence[Any]] | None:
    """Return the name and the values of attributes, None where they have several names."""
    first = pairs[0]
    if pairs.count(first) == len(pairs):
        name, value = _KNOWN[first]
        return name, [value] * len(pairs)
    end = _end_of_key(first)
    if all(map(bytes.startswith, pairs, repeat(first[:end]))):
        headers = [_HEADERS[len(pair) - end] for pair in pairs]
        if all(map(bytes.startswith, pairs, headers, repeat(end))):
            texts = [pair[end + len(header) :].decode() for pair, header in zip(pairs, headers, strict=True)]
            return _NAMES[first[2:end]], texts
        doubles = all(map(bytes.startswith, pairs, repeat(_DOUBLE), repeat(end)))
        if doubles and set(map(len, pairs)) == {end + len(_DOUBLE) + 8}:
            numbers = b"".join([pair[-8:] for pair in pairs])
            return _NAMES[first[2:end]], struct.unpack(f"<{len(pairs)}d", numbers)
    elif by_bytes:
        return None
    names, values = zip(*map(_KNOWN.__getitem__, pairs), strict=True)
    return (names[0], values) if names.count(names[0]) == len(names) else None


def _traces_class(change: Callable[[DescriptorProto], None]) -> Any:
    """Return the class of traces requests with the description of a span changed: the same wire, read otherwise."""
    pool = DescriptorPool()
    (trace,) = trace_service_pb2.DESCRIPTOR.dependencies
    for file in (*_below(trace), trace, trace_service_pb2.DESCRIPTOR):
        proto = FileDescriptorProto.FromString(file.serialized_pb)
        if file is trace:
            (span,) = (message for message in proto.message_type if message.name == "Span")
            change(span)
        pool.Add(proto)
    return GetMessageClass(pool.FindMessageTypeByName(trace_service_pb2.ExportTraceServiceRequest.DESCRIPTOR.full_name))


def _below(file: Any) -> list[Any]:
    """Return the files a file needs, deepest first."""
    found: dict[str, Any] = {}
    for needed in file.dependencies:
        found |= {deeper.name: deeper for deeper in _below(needed)} | {needed.name: needed}
    return list(found.values())


def _attributes_as_bytes(span: DescriptorProto) -> None:
    """Spans, events and links keep each attribute as bytes."""
    for message in (span, *span.nested_type):
        for field in message.field:
            if field.name == "attributes":
                _take_as_bytes(field)


def _unusual_together(span: DescriptorProto) -> None:
    """What few spans have is one choice, so that one question tells whether a span has any of it."""
    _attributes_as_bytes(span)
    span.oneof_decl.add(name=_UNUSUAL)
    for field in span.field:
        if field.name in ("events", "links", "status"):
            _take_as_bytes(field)
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if field.name in ("events", "links", "trace_state", "dropped_attributes_count"):
            field.oneof_index = 0


def _take_as_bytes(field: FieldDescriptorProto) -> None:
    field.type = FieldDescriptorProto.TYPE_BYTES
    field.ClearField("type_name")


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
        dict(map(_KNOWN.__getitem__, span.attributes)),
        span.dropped_attributes_count,
        origin,
        [
            WireEvent(event.name, event.time_unix_nano, dict(map(_KNOWN.__getitem__, event.attributes)))
            for event in span.events
        ],
        [
            WireLink(link.trace_id.hex(), link.span_id.hex(), dict(map(_KNOWN.__getitem__, link.attributes)))
            for link in span.links
        ],
    )


class _Known(dict[bytes, tuple[str, Any]]):
    """Names and values by the bytes of an attribute; short ones are remembered, for most come again and again."""

    def __missing__(self, pair: bytes) -> tuple[str, Any]:
        size, end = len(pair), _end_of_key(pair)
        header = _HEADERS[size - end]
        if pair.startswith(header, end):
            found = _NAMES[pair[2:end]], pair[end + len(header) :].decode()
        else:
            message = KeyValue.FromString(pair)
            found = sys.intern(message.key), _value(message.value)
        if size <= _LONGEST_PAIR and not isinstance(found[1], (list, dict)):
            if len(self) >= _KNOWN_PAIRS:
                self.clear()
            self[pair] = found
        return found


def _end_of_key(pair: bytes) -> int:
    """Return where the key ends that an attribute begins with; all of it where that cannot be told at once."""
    usual = len(pair) > 2 and pair[0] == _KEY and pair[1] < 0x80  # most keys are that short
    return 2 + pair[1] if usual else len(pair)


class _Names(dict[bytes, str]):
    """Attribute names by their bytes."""

    def __missing__(self, key: bytes) -> str:
        name = sys.intern(key.decode())
        if len(self) < _KNOWN_PAIRS:
            self[key] = name
        return name


class _Headers(dict[int, bytes]):
    """What precedes a text in its `value` field when both together have this size."""

    def __missing__(self, size: int) -> bytes:
        header = _text_header(size)
        if len(self) < _KNOWN_PAIRS:
            self[size] = header
        return header


def _text_header(size: int) -> bytes:
    for length in range(max(0, size - 12), size):
        text = b"\n" + _varint(length)
        header = b"\x12" + _varint(len(text) + length) + text
        if len(header) + length == size:
            return header
    return b"\0"  # no field begins so


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


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
_KEY = ord("\n")
_DOUBLE = b"\x12\x09\x21"
"""What precedes a number of eight bytes."""
_KNOWN, _NAMES, _HEADERS = _Known(), _Names(), _Headers()
_UNUSUAL = "unusual"
_SPAN_FIELDS = tuple(
    map(attrgetter, ("trace_id", "span_id", "parent_span_id", "name", "start_time_unix_nano", "end_time_unix_nano"))
)
_STATUS_CODES = {b"": 0, b"\x18\x01": 1}
"""The statuses of usual spans, in bytes: none or unset, and ok."""
_TRACES = _traces_class(_attributes_as_bytes)
_USUAL_TRACES = _traces_class(_unusual_together)
