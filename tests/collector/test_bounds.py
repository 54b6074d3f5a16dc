"""What one body may hold: small bodies of very many messages are refused before objects are built from them."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from served import Served
from spans import spans_of
from wire_support import otlp_json, peak_mb, span_body

from ragpulse_collector.conventions import decode
from ragpulse_collector.otlp import bounds
from ragpulse_collector.otlp.intake import JSON, PROTOBUF
from ragpulse_collector.records import ContentType, RawBody, Signal, TooLarge

BYTES = 64 * 2**20 - 200


def field(number: int, content: bytes) -> bytes:
    """Return a field with a length: a text or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _fill(message: bytes) -> bytes:
    return message * (BYTES // len(message))


IDS = field(1, b"t" * 16) + field(2, b"s" * 8)


def _scope(rows: bytes) -> bytes:
    """Return a request of one resource and one scope: the numbers are the same in all signals."""
    return field(1, field(2, rows))


def _span(content: bytes) -> bytes:
    return _scope(field(2, IDS + content))


def _attribute(value: bytes) -> bytes:
    return field(9, field(1, b"k") + field(2, value))


def _names(first: int) -> bytes:
    return b"".join(field(9, field(1, f"{first}.{n}".encode())) for n in range(3000))


PROTOBUF_BODIES: Mapping[str, tuple[Signal, Callable[[], bytes]]] = {
    "resources": ("traces", lambda: _fill(b"\x0a\x00")),
    "scopes": ("traces", lambda: field(1, _fill(b"\x12\x00"))),
    "spans": ("traces", lambda: _scope(_fill(b"\x12\x00"))),
    "spans with a long tag": ("traces", lambda: _scope(_fill(b"\x92\x80\x00\x80\x00"))),
    "minimal spans": ("traces", lambda: _scope(_fill(field(2, IDS)))),
    "events of one span": ("traces", lambda: _span(_fill(b"\x5a\x00"))),
    "events of many spans": ("traces", lambda: _scope(_fill(field(2, IDS + b"\x5a\x00" * 9000)))),
    "links": ("traces", lambda: _span(_fill(b"\x6a\x00"))),
    "attributes of one span": ("traces", lambda: _span(_fill(b"\x4a\x00"))),
    "attributes of many spans": ("traces", lambda: _scope(_fill(field(2, IDS + b"\x4a\x00" * 900)))),
    "names of attributes": ("traces", lambda: _scope(b"".join(field(2, IDS + _names(n)) for n in range(70)))),
    "attributes of an event": ("traces", lambda: _span(field(11, _fill(b"\x1a\x00")))),
    "attributes of a link": ("traces", lambda: _span(field(13, _fill(b"\x22\x00")))),
    "attributes of a resource": ("traces", lambda: field(1, field(1, _fill(b"\x0a\x00")))),
    "ignored messages of a resource": ("traces", lambda: field(1, field(1, _fill(b"\x1a\x00")))),
    "ignored attributes of a scope": ("traces", lambda: _scope(field(1, _fill(b"\x1a\x00")))),
    "one long list": ("traces", lambda: _span(_attribute(field(5, _fill(b"\x0a\x00"))))),
    "one long list of numbers": ("traces", lambda: _span(_attribute(field(5, _fill(b"\x0a\x02\x18\x01"))))),
    "the same list in many spans": (
        "traces", lambda: _scope(_fill(field(2, IDS + _attribute(field(5, b"\x0a\x02\x2a\x00" * 9000))))),
    ),
    "lists in many attributes": (
        "traces", lambda: _scope(_fill(field(2, IDS + _attribute(field(5, b"\x0a\x00" * 900)) * 50))),
    ),
    "one long map": ("traces", lambda: _span(_attribute(field(6, _fill(b"\x0a\x00"))))),
    "unknown messages in the request": ("traces", lambda: _fill(b"\xfa\x01\x00")),
    "unknown numbers in a scope": ("traces", lambda: _scope(_fill(b"\x20\x00"))),
    "unknown messages in a span": ("traces", lambda: _span(_fill(b"\xfa\x01\x00"))),
    "groups": ("traces", lambda: _fill(b"\xfb\x01\xfc\x01")),
    "a group in a group": ("traces", lambda: _fill(b"\xfb\x01")),
    "numbers in a group": ("traces", lambda: b"\xfb\x01" + _fill(b"\x20\x00") + b"\xfc\x01"),
    "control characters": ("traces", lambda: _span(_attribute(field(1, _fill(b"\x01"))))),
    "log records": ("logs", lambda: _scope(_fill(b"\x12\x00"))),
    "scopes of log records": ("logs", lambda: field(1, _fill(b"\x12\x00"))),
    "attributes of one log record": ("logs", lambda: _scope(field(2, _fill(b"\x32\x00")))),
    "attributes of many log records": ("logs", lambda: _scope(_fill(field(2, b"\x32\x00" * 900)))),
    "the body of a log record": ("logs", lambda: _scope(field(2, field(5, field(5, _fill(b"\x0a\x00")))))),
    "resources with metrics": ("metrics", lambda: _fill(b"\x0a\x00")),
    "metrics": ("metrics", lambda: _scope(_fill(b"\x12\x00"))),
}  # fmt: skip


def _nested(path: str, item: str) -> bytes:
    """Return a JSON body with very many of an item in the list at a path."""
    names = path.split(".")
    head, tail = "".join(f'{{"{name}":[' for name in names), "]}" * len(names)
    return (head + item + f",{item}" * (BYTES // (len(item) + 1)) + tail).encode()


SPANS = "resourceSpans.scopeSpans.spans"
JSON_BODIES: Mapping[str, tuple[Signal, str, str]] = {
    "resources": ("traces", "resourceSpans", "{}"),
    "scopes": ("traces", "resourceSpans.scopeSpans", "{}"),
    "spans": ("traces", SPANS, "{}"),
    "minimal spans": ("traces", SPANS, '{"traceId":"00","spanId":"00"}'),
    "attributes": ("traces", f"{SPANS}.attributes", "{}"),
    "events": ("traces", f"{SPANS}.events", "{}"),
    "links": ("traces", f"{SPANS}.links", "{}"),
    "values": ("traces", f"{SPANS}.attributes.value.arrayValue.values", "{}"),
    "ignored lists": ("traces", "other", "[[[[]]]]"),
    "ignored numbers": ("traces", "other", "1"),
    "ignored texts": ("traces", "other", '""'),
    "ignored objects": ("traces", "other", '{"a":0}'),
    "log records": ("logs", "resourceLogs.scopeLogs.logRecords", "{}"),
    "metrics": ("metrics", "resourceMetrics.scopeMetrics.metrics", "{}"),
    "points": ("metrics", "resourceMetrics.scopeMetrics.metrics.gauge.dataPoints", "{}"),
}


def _decode(body: bytes, signal: Signal = "traces", content_type: ContentType = PROTOBUF) -> object:
    return decode(RawBody(signal=signal, content_type=content_type, body=body))


@pytest.mark.parametrize("name", PROTOBUF_BODIES)
def test_a_protobuf_body_of_very_many_messages_is_refused(name: str) -> None:
    """Whatever repeats: the limit is named, and the sender may send smaller batches."""
    signal, body = PROTOBUF_BODIES[name]
    with pytest.raises(TooLarge, match=r"the body holds more than [0-9]+ .*; send smaller batches"):
        _decode(body(), signal)


@pytest.mark.parametrize("name", JSON_BODIES)
def test_a_json_body_of_very_many_values_is_refused(name: str) -> None:
    """Before it is parsed, in fields that nobody reads too."""
    signal, path, item = JSON_BODIES[name]
    with pytest.raises(TooLarge, match=r"the body holds more than [0-9]+ .*; send smaller batches"):
        _decode(_nested(path, item), signal, JSON)


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
def test_rows_are_counted_in_short_bodies_too(content_type: ContentType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two spans where one is allowed."""
    monkeypatch.setattr(bounds, "MAX_ROWS", 6)
    one, ten = ({PROTOBUF: span_body(*[{}] * n), JSON: otlp_json(*[{}] * n)}[content_type] for n in (1, 10))
    _decode(one, content_type=content_type)
    with pytest.raises(TooLarge, match="more than 6 spans"):
        _decode(ten, content_type=content_type)


@pytest.mark.parametrize(
    "points",
    [
        lambda: field(5, _fill(b"\x0a\x00")),
        lambda: field(9, field(1, field(6, bytes(BYTES)))),
        lambda: field(5, field(1, _fill(b"\x2a\x00"))),
    ],
    ids=["points", "buckets", "exemplars"],
)
def test_what_is_not_read_of_metrics_is_skipped(points: Callable[[], bytes]) -> None:
    """One metric of very many points is counted, and no point is built."""
    _decode(_scope(field(2, points())), "metrics")


def test_the_largest_batch_of_a_collector_is_far_below_the_limits() -> None:
    """The batch processor of an OpenTelemetry Collector sends 8,192 spans; SDKs send 512."""
    spans = 8192
    texts = {f"gen_ai.attribute.{number}": "some text " * 5 for number in range(20)}
    request = ExportTraceServiceRequest.FromString(span_body(texts))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    request.resource_spans[0].scope_spans[0].spans.extend([span] * (spans - 1))
    meter = bounds.Meter()
    meter.add_rows(spans)
    meter.add_parts(spans * len(texts))
    assert (
        sum(map(len, decode(RawBody(signal="traces", content_type=PROTOBUF, body=request.SerializeToString())).spans))
        == spans
    )
    assert (meter.rows * 5 < bounds.MAX_ROWS, meter.parts * 5 < bounds.MAX_PARTS) == (True, True)


@pytest.mark.parametrize("whole_bytes", [0, 2**20])
def test_pieces_hold_what_the_whole_body_holds(whole_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of all sizes, unknown fields and groups between them, and a scope that comes last and in two parts."""
    monkeypatch.setattr(bounds, "WHOLE_BYTES", whole_bytes)
    monkeypatch.setattr(bounds, "PIECE_BYTES", 300)
    body = ExportTraceServiceRequest.FromString(span_body(*[{"text": "x" * size} for size in range(0, 20_000, 1000)]))
    scope = body.resource_spans[0].scope_spans[0]
    rows = b"".join(
        ScopeSpans(spans=[span]).SerializeToString() + b"\xf8\x01\x05\xfb\x01\x20\x07\xfc\x01" for span in scope.spans
    )
    parts = field(1, field(1, b"wire")) + field(1, field(2, b"1.0"))
    sent = decode(RawBody(signal="traces", content_type=PROTOBUF, body=_scope(rows + parts)))
    (batch,) = sent.spans
    assert [len(json.loads(span.attributes)["text"]) for span in spans_of(sent)] == list(range(0, 20_000, 1000))
    assert '"otel.scope.name":"wire","otel.scope.version":"1.0"' in batch.value("resource", 0)


def test_small_bodies_cost_the_collector_little_memory(tmp_path: Path) -> None:
    """65 kB of gzip each: 413, at most 100 MB more, and the next export is stored."""
    bodies = [gzip.compress(body(), 9) for name, (signal, body) in PROTOBUF_BODIES.items() if signal == "traces"][::4]
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    with (
        Served(tmp_path / "t.duckdb", python=sys.executable) as process,
        httpx.Client(base_url=process.url, timeout=60) as client,
    ):
        url = "/v1/traces"
        client.post(url, content=gzip.compress(span_body({"a": 1})), headers=headers)
        before = peak_mb(process.process.pid)
        answers = [client.post(url, content=body, headers=headers) for body in bodies]
        grown = peak_mb(process.process.pid) - before
        stored = client.post(url, content=gzip.compress(span_body({"a": 1})), headers=headers)
    assert {answer.status_code for answer in answers} == {413}
    assert stored.status_code == 200
    assert grown < 100
