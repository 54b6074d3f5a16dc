"""OTLP JSON to wire shapes: orjson and a hand walker.

Protobuf's own JSON reader does not fit: it reads hex ids as base64 and is five times slower. Keys are lowerCamelCase
only, unknown fields are ignored, null means absent, 64-bit integers may be text or numbers, enums are integers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ragpulse_collector.otlp.bounds import Meter, check_json
from ragpulse_collector.otlp.wire import (
    MAX_DEPTH,
    VECTOR_LENGTH,
    Attributes,
    Vector,
    WireBatch,
    WireEvent,
    WireLink,
    WireLog,
    WireRows,
    WireScope,
    is_span_id,
    is_trace_id,
    service_name,
)
from ragpulse_collector.records import DecodeError

Message = dict[str, Any]
_SURROGATE = re.compile(
    rb"(\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""Half of a surrogate pair, which JavaScript writes where it cut a text. Group 1 matches what stays: other escapes
and whole pairs."""
_MAX_ESCAPES = 500_000
"""Each one is looked at in Python, and only in a body that cannot be read otherwise."""
_HEX = re.compile(r"[0-9a-fA-F]*")
_DIGITS = re.compile(r"-?[0-9]{1,20}")


def spans(body: bytes) -> tuple[list[WireBatch], int]:
    """Return the spans of a JSON ExportTraceServiceRequest, one batch for each scope, and how many had invalid ids.

    Raises DecodeError.
    """
    batches = []
    rejected = 0
    meter = Meter()
    for resource_spans in _messages(_load(body), "resourceSpans"):
        resource = _attributes(_message(resource_spans, "resource"))
        for scope_spans in _messages(resource_spans, "scopeSpans"):
            rows = WireRows(_scope(resource, scope_spans))
            messages = _messages(scope_spans, "spans")
            meter.add_rows(1 + len(messages))
            rejected += len(messages) - sum([_add_span(rows, span) for span in messages])
            batches.append(rows.batch())
            meter.add_columns(sum(len(shape.attributes) for shape in batches[-1].shapes))
    return batches, rejected


def logs(body: bytes) -> Iterator[WireLog]:
    """Yield the records of a JSON ExportLogsServiceRequest; raises DecodeError."""
    meter = Meter()
    for resource_logs in _messages(_load(body), "resourceLogs"):
        resource = _attributes(_message(resource_logs, "resource"))
        for scope_logs in _messages(resource_logs, "scopeLogs"):
            scope = _scope(resource, scope_logs)
            records = _messages(scope_logs, "logRecords")
            meter.add_rows(1 + len(records))
            for record in records:
                yield _log(record, scope)


def metrics(body: bytes) -> dict[str, int]:
    """Return the number of metrics of each service in a JSON ExportMetricsServiceRequest; raises DecodeError."""
    counts: Counter[str] = Counter()
    for resource in _messages(_load(body), "resourceMetrics"):
        service = service_name(_attributes(_message(resource, "resource")))
        counts[service] += sum(len(_messages(scope, "metrics")) for scope in _messages(resource, "scopeMetrics"))
    return counts


def _load(body: bytes) -> Message:
    check_json(body)
    try:
        request = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        if body.count(b"\\") > _MAX_ESCAPES:
            raise DecodeError(f"not JSON: {error}") from error
        try:
            request = orjson.loads(_SURROGATE.sub(_replaced_surrogate, body))
        except orjson.JSONDecodeError:
            raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise DecodeError("the request is not a JSON object")
    return request


def _replaced_surrogate(match: re.Match[bytes]) -> bytes:
    return match[1] or b"\\ufffd"


def _scope(resource: Attributes, envelope: Message) -> WireScope:
    scope = _message(envelope, "scope")
    return WireScope(resource, _text(scope, "name"), _text(scope, "version"))


def _add_span(rows: WireRows, span: Message) -> bool:
    """Add a span; returns False if its ids are invalid."""
    status = _message(span, "status")
    _integer(span, "kind", 2**31)
    trace_id, span_id, parent = (_id(span, key) for key in ("traceId", "spanId", "parentSpanId"))
    fields: dict[str, Any] = {
        "name": _text(span, "name"),
        "start_ns": _integer(span, "startTimeUnixNano"),
        "end_ns": _integer(span, "endTimeUnixNano"),
        "attributes": _attributes(span),
        "status_codes": _integer(status, "code", 2**31),
        "status_messages": _text(status, "message"),
        "trace_states": _text(span, "traceState"),
        "dropped_attributes": _integer(span, "droppedAttributesCount", 2**32),
        "events": [
            WireEvent(_text(event, "name"), _integer(event, "timeUnixNano"), _attributes(event))
            for event in _messages(span, "events")
        ],
        "links": [
            WireLink(_id(link, "traceId").hex(), _id(link, "spanId").hex(), _attributes(link))
            for link in _messages(span, "links")
        ],
    }
    if not (is_trace_id(trace_id) and is_span_id(span_id)):
        return False
    rows.add(trace_id, span_id, parent if is_span_id(parent) else None, **fields)
    return True


def _log(record: Message, scope: WireScope) -> WireLog:
    return WireLog(
        _id(record, "traceId"),
        _id(record, "spanId"),
        _integer(record, "timeUnixNano") or _integer(record, "observedTimeUnixNano"),
        _text(record, "eventName"),
        _value(_message(record, "body"), 1),
        _attributes(record),
        scope,
    )


def _message(parent: Message, key: str) -> Message:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{key} is not an object")
    return value


def _messages(parent: Message, key: str) -> list[Message]:
    values = parent.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DecodeError(f"{key} is not a list of objects")
    return values


def _text(parent: Message, key: str) -> str:
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(f"{key} is not a string")
    return value


def _id(parent: Message, key: str) -> bytes:
    """Return an id, empty if it is not hex."""
    text = _text(parent, key)
    return bytes.fromhex(text) if len(text) % 2 == 0 and _HEX.fullmatch(text) else b""


def _integer(parent: Message, key: str, limit: int = 2**64) -> int:
    """Return an unsigned integer below `limit`; OTLP forbids the names of enums."""
    value = parent.get(key)
    if value is None:
        return 0
    number = _int(value, key)
    if not 0 <= number < limit:
        raise DecodeError(f"{key} is out of range")
    return number


def _int(value: Any, key: str) -> int:
    if type(value) is int:
        return value
    if type(value) is str and _DIGITS.fullmatch(value):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    raise DecodeError(f"{key} is not an integer")


def _attributes(parent: Message, depth: int = 1, key: str = "attributes") -> Attributes:
    out: Attributes = {}
    for pair in _messages(parent, key):
        value = pair.get("value")
        text = value.get("stringValue") if isinstance(value, dict) else None
        out[_text(pair, "key")] = text if type(text) is str else _value(_message(pair, "value"), depth)
    return out


def _value(value: Message, depth: int) -> Any:
    """Return an AnyValue; an empty one is None."""
    if depth > MAX_DEPTH:
        raise DecodeError(f"an attribute value is nested more than {MAX_DEPTH} levels deep")
    for member, content in value.items():
        read = _READ.get(member)
        if read is not None and content is not None:
            return read(content, depth)
    return None


def _string(content: Any, _: int) -> str:
    if not isinstance(content, str):
        raise DecodeError("stringValue is not a string")
    return content


def _bool(content: Any, _: int) -> bool:
    if not isinstance(content, bool):
        raise DecodeError("boolValue is not true or false")
    return content


def _signed(content: Any, _: int) -> int:
    number = _int(content, "intValue")
    if not -(2**63) <= number < 2**63:
        raise DecodeError("intValue does not fit in 64 bits")
    return number


def _double(content: Any, _: int) -> float:
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return float(content)
    try:
        return float(_string(content, 0))
    except ValueError as error:
        raise DecodeError("doubleValue is not a number") from error


def _bytes(content: Any, _: int) -> bytes:
    text = _string(content, 0).replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise DecodeError("bytesValue is not base64") from error


def _list(content: Any, depth: int) -> Any:
    values = _messages(_message({"arrayValue": content}, "arrayValue"), "values")
    if len(values) >= VECTOR_LENGTH and ("doubleValue" in values[0] or "intValue" in values[0]):
        return Vector(len(values))
    return [_value(value, depth + 1) for value in values]


def _kvlist(content: Any, depth: int) -> Attributes:
    return _attributes(_message({"kvlistValue": content}, "kvlistValue"), depth + 1, "values")


_READ: dict[str, Callable[[Any, int], Any]] = {
    "stringValue": _string,
    "boolValue": _bool,
    "intValue": _signed,
    "doubleValue": _double,
    "bytesValue": _bytes,
    "arrayValue": _list,
    "kvlistValue": _kvlist,
}
