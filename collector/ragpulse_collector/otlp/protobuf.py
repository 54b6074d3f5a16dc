"""OTLP protobuf to batches. Most of the cost of receiving is the walk over attributes, so each is read once.

The parser returns a span's attributes as bytes. Most repeat within a body and come from a cache; a plain text is cut
out of its bytes. OpenTelemetry's own message reads all others, one by one.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import compress, repeat
from operator import attrgetter, methodcaller
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from ragpulse_collector.otlp.bounds import Fields, Layout, Meter, check_controls
from ragpulse_collector.otlp.wire import (
    VECTOR_LENGTH,
    Attributes,
    Shape,
    Vector,
    WireBatch,
    WireEvent,
    WireLink,
    WireLog,
    WireScope,
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
    with _readable("ExportTraceServiceRequest"):
        for resource, pieces in _scopes(body, _SPAN):
            batch, pairs = WireBatch(scope=WireScope(resource)), list[Sequence[bytes]]()
            for piece in pieces:
                part = _SCOPE_SPANS.FromString(piece)
                _merge(batch.scope, part.scope)
                sent = list(part.spans)  # once: each look at the field makes new objects
                _METER.get().add_rows(len(sent))
                valid = _valid(sent)
                rejected += len(sent) - len(valid)
                _add_spans(batch, pairs, valid)
            batch.shapes = _shapes(pairs)
            batches.append(batch)
    return batches, rejected


def logs(body: bytes) -> Iterator[WireLog]:
    """Yield the records of an ExportLogsServiceRequest; raises DecodeError."""
    with _readable("ExportLogsServiceRequest"):
        for resource, pieces in _scopes(body, _RECORD):
            scope = WireScope(resource)
            for part in map(ScopeLogs.FromString, pieces):
                _merge(scope, part.scope)
                _METER.get().add_rows(len(part.log_records))
                for record in part.log_records:
                    yield _log(record, scope)


def metrics(body: bytes) -> dict[str, int]:
    """Return the number of metrics of each service in an ExportMetricsServiceRequest; raises DecodeError."""
    counts: Counter[str] = Counter()
    fields = _fields(body)
    with _readable("ExportMetricsServiceRequest"):
        for resource, scopes in _resources(fields):
            counts[service_name(resource)] += sum(len(fields.by_number(*scope).get(_ROWS, ())) for scope in scopes)
    return counts


def _fields(body: bytes) -> Fields:
    _METER.set(Meter())
    return Fields(body, _METER.get())


def _scopes(body: bytes, row: Layout) -> Iterator[tuple[Attributes, Iterator[bytes]]]:
    """Yield each scope of a body in pieces, with the attributes of its resource."""
    fields = _fields(body)
    resources = list(_resources(fields))
    check_controls(body)
    for resource, scopes in resources:
        for scope in scopes:
            yield resource, fields.pieces(*scope, _ROWS, {1: {3: _PAIR}, _ROWS: row})


def _resources(fields: Fields) -> Iterator[tuple[Attributes, list[tuple[int, int]]]]:
    """Yield each resource of a body with where its scopes are: the fields have the same numbers in all signals."""
    for content in fields.by_number(0, len(fields.body)).get(1, ()):
        found = fields.by_number(*content)
        resource = Resource.FromString(fields.merged(found.get(1, []), {1: _PAIR}))
        yield _attributes(resource.attributes), found.get(2, [])


def _merge(scope: WireScope, part: Any) -> None:
    """Add what a piece holds of a scope, which may come after its spans or in two parts."""
    scope.name, scope.version = part.name or scope.name, part.version or scope.version


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (ProtobufError, UnicodeDecodeError) as error:
        raise DecodeError(
            f"not a readable {name} ({error}): truncated, text that is not UTF-8, "
            "or values nested more than 100 levels deep"
        ) from error


def _valid(spans: Sequence[Any]) -> Sequence[Any]:
    """Return the spans with valid ids: usually all, which their ids show together."""
    ids = zip((list(map(field, spans)) for field in _SPAN_FIELDS[:2]), (16, 8), strict=True)
    if all(set(map(len, column)) == {size} and bytes(size) not in column for column, size in ids):
        return spans
    return [span for span in spans if is_trace_id(span.trace_id) and is_span_id(span.span_id)]


def _add_spans(batch: WireBatch, pairs: list[Sequence[bytes]], spans: Sequence[Any]) -> None:
    """Add spans to the columns of a batch, and the bytes of their attributes to `pairs`."""
    _add_sparse(batch, spans)
    columns: tuple[list[Any], ...] = (batch.trace_ids, batch.span_ids, batch.names, batch.start_ns, batch.end_ns)
    for column, field in zip(columns, _SPAN_FIELDS, strict=True):
        column.extend(map(field, spans))
    parents = [span.parent_span_id for span in spans]
    batch.parent_span_ids.extend([parent if parent and is_span_id(parent) else None for parent in parents])
    attributes = [span.attributes[:] for span in spans]
    _METER.get().add_parts(sum(map(len, attributes)))
    pairs.extend(attributes)


def _add_sparse(batch: WireBatch, spans: Sequence[Any]) -> None:
    """Add the fields that few spans have: one look at each field of all spans costs less than one at each span."""
    first = len(batch)
    for row, span in compress(enumerate(spans, first), map(_HAS_STATUS, spans)):
        batch.status_codes[row] = span.status.code
        if span.status.message:
            batch.status_messages[row] = span.status.message
    for values, field in ((batch.trace_states, "trace_state"), (batch.dropped_attributes, "dropped_attributes_count")):
        values.update((row, value) for row, value in enumerate(map(attrgetter(field), spans), first) if value)
    for row, span in compress(enumerate(spans, first), map(attrgetter("events"), spans)):
        events = _counted(span.events, _EVENT_PARTS)
        batch.events[row] = [WireEvent(event.name, event.time_unix_nano, _own(event)) for event in events]
    for row, span in compress(enumerate(spans, first), map(attrgetter("links"), spans)):
        links = _counted(span.links, _EVENT_PARTS)
        batch.links[row] = [WireLink(link.trace_id.hex(), link.span_id.hex(), _own(link)) for link in links]


def _own(part: Any) -> Attributes:
    """Return the attributes of an event or a link."""
    return dict(map(_PAIRS.__getitem__, _counted(part.attributes)))


def _counted(messages: Any, parts: int = 1) -> Any:
    """Return a repeated field after its messages were counted, each as so many parts."""
    _METER.get().add_parts(len(messages) * parts)
    return messages


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
        _METER.get().add_columns(len(pairs[alike[0]]))
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
    return pair[:end] if end <= len(pair) else _PAIRS[pair][0]


def _column(pairs: Sequence[bytes]) -> tuple[str, Sequence[Any]]:
    """Return the name and the values of attributes that have the same name."""
    first = pairs[0]
    if pairs.count(first) == len(pairs):
        meter = _METER.get()
        before = meter.parts
        name, value = _PAIRS[first]
        meter.add_parts((meter.parts - before) * (len(pairs) - 1))  # each span stores the value
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


def _scope_spans_class() -> Any:
    """Return the class of the spans of a scope that leaves attributes as bytes, for the same wire format."""
    pool = DescriptorPool()
    for file in (*_dependencies(trace_pb2.DESCRIPTOR), trace_pb2.DESCRIPTOR):
        proto = FileDescriptorProto.FromString(file.serialized_pb)
        if file is trace_pb2.DESCRIPTOR:
            (span,) = (message for message in proto.message_type if message.name == "Span")
            _attributes_as_bytes(span)
        pool.Add(proto)
    return GetMessageClass(pool.FindMessageTypeByName(trace_pb2.ScopeSpans.DESCRIPTOR.full_name))


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
    """Return the end of the key at the start of an attribute, or more than its length if it is elsewhere or long."""
    is_short_key = len(pair) > 2 and pair[0] == _KEY and pair[1] < 0x80  # most keys are that short
    return 2 + pair[1] if is_short_key else len(pair) + 1


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


def _log(record: Any, scope: WireScope) -> WireLog:
    return WireLog(
        record.trace_id,
        record.span_id,
        record.time_unix_nano or record.observed_time_unix_nano,
        record.event_name,
        _value(record.body),
        _attributes(record.attributes),
        scope,
    )


def _attributes(pairs: Any) -> Attributes:
    out: Attributes = {}
    for pair in _counted(pairs):
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
    return [item.string_value or _other(item) for item in _counted(values)]


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
_SPAN_FIELDS = tuple(map(attrgetter, ("trace_id", "span_id", "name", "start_time_unix_nano", "end_time_unix_nano")))
_HAS_STATUS = methodcaller("HasField", "status")
_SCOPE_SPANS = _scope_spans_class()
_METER: ContextVar[Meter] = ContextVar("meter")
"""Counts the body that this thread reads."""
_EVENT_PARTS = 4
"""An event or a link takes as much memory as four attributes."""
_ROWS = 2
"""The field of a scope with its spans, log records or metrics."""
_VALUE: dict[int, Any] = {}
_PAIR: Layout = {2: _VALUE}
_VALUE |= {5: {1: _VALUE}, 6: {1: _PAIR}}
_SPAN: Layout = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}}
_RECORD: Layout = {5: _VALUE, 6: _PAIR}
