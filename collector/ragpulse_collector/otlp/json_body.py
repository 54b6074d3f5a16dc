"""OTLP JSON to wire shapes: orjson and a hand walker.

Protobuf's own JSON reader is no use here: it takes hex ids for base64 and is five times slower. Keys are lowerCamelCase
only, unknown fields are ignored, null means absent, 64-bit integers may be text or numbers, enums are integers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ragpulse_collector.otlp.wire import (
    MAX_DEPTH,
    VECTOR_LENGTH,
    Attributes,
    Origin,
    Vector,
    WireEvent,
    WireLink,
    WireLog,
    WireSpan,
)
from ragpulse_collector.records import DecodeError

Message = dict[str, Any]
_SURROGATE = re.compile(
    rb"(\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""Half of an emoji, which JavaScript writes where a text was cut. Group 1 looks similar and stays: other escapes
and whole pairs."""
_HEX = re.compile(r"[0-9a-fA-F]*")
_DIGITS = re.compile(r"-?[0-9]{1,20}")


def spans(body: bytes) -> Iterator[WireSpan]:
    """Yield the spans of a JSON ExportTraceServiceRequest; raises DecodeError wherever the walk meets nonsense."""
    for resource_spans in _messages(_load(body), "resourceSpans"):
        resource = _attributes(_message(resource_spans, "resource"))
        for scope_spans in _messages(resource_spans, "scopeSpans"):
            origin = _origin(resource, scope_spans)
            for span in _messages(scope_spans, "spans"):
                yield _span(span, origin)


def logs(body: bytes) -> Iterator[WireLog]:
    """Yield the records of a JSON ExportLogsServiceRequest; raises DecodeError."""
    for resource_logs in _messages(_load(body), "resourceLogs"):
        resource = _attributes(_message(resource_logs, "resource"))
        for scope_logs in _messages(resource_logs, "scopeLogs"):
            origin = _origin(resource, scope_logs)
            for record in _messages(scope_logs, "logRecords"):
                yield _log(record, origin)


def metrics(body: bytes) -> int:
    """Return the number of metrics in a JSON ExportMetricsServiceRequest; raises DecodeError."""
    return sum(
        len(_messages(scope_metrics, "metrics"))
        for resource_metrics in _messages(_load(body), "resourceMetrics")
        for scope_metrics in _messages(resource_metrics, "scopeMetrics")
    )


def _load(body: bytes) -> Message:
    try:
        request = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        try:
            request = orjson.loads(_SURROGATE.sub(_replaced_surrogate, body))
        except orjson.JSONDecodeError:
            raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise DecodeError("the request is not a JSON object")
    return request


def _replaced_surrogate(match: re.Match[bytes]) -> bytes:
    return match[1] or b"\\ufffd"


def _origin(resource: Attributes, envelope: Message) -> Origin:
    scope = _message(envelope, "scope")
    return Origin(resource, _text(scope, "name"), _text(scope, "version"))


def _span(span: Message, origin: Origin) -> WireSpan:
    status = _message(span, "status")
    _integer(span, "kind", 2**31)
    return WireSpan(
        _id(span, "traceId"),
        _id(span, "spanId"),
        _id(span, "parentSpanId") or None,
        _text(span, "name"),
        _integer(span, "startTimeUnixNano"),
        _integer(span, "endTimeUnixNano"),
        _integer(status, "code", 2**31),
        _text(status, "message"),
        _text(span, "traceState"),
        _attributes(span),
        _integer(span, "droppedAttributesCount", 2**32),
        origin,
        [
            WireEvent(_text(event, "name"), _integer(event, "timeUnixNano"), _attributes(event))
            for event in _messages(span, "events")
        ],
        [WireLink(_id(link, "traceId"), _id(link, "spanId"), _attributes(link)) for link in _messages(span, "links")],
    )


def _log(record: Message, origin: Origin) -> WireLog:
    return WireLog(
        _id(record, "traceId"),
        _id(record, "spanId"),
        _integer(record, "timeUnixNano") or _integer(record, "observedTimeUnixNano"),
        _text(record, "eventName"),
        _value(_message(record, "body"), 1),
        _attributes(record),
        origin,
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


def _id(parent: Message, key: str) -> str:
    """Return an id in lower case; what is no hex is no id."""
    text = _text(parent, key)
    return text.lower() if _HEX.fullmatch(text) else "?" if text else ""


def _integer(parent: Message, key: str, limit: int = 2**64) -> int:
    """Return an unsigned integer below `limit`; enum names, which OTLP forbids, are no integers."""
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
