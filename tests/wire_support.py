"""Support for tests of the wire: OTLP bodies of the official SDK, a store in memory, a real server on loopback."""

from __future__ import annotations

import base64
import contextlib
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import orjson
import uvicorn
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from spans import Span, spans_of
from starlette.applications import Starlette

from ragpulse_collector import receiver
from ragpulse_collector.conventions import decode
from ragpulse_collector.otlp.intake import JSON, PROTOBUF, Counters, Flight, Limits
from ragpulse_collector.records import Batch, RawBody, Receipt
from ragpulse_collector.store import Rows, Transaction

T = TypeVar("T")
SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "spanId": "b7ad6b7169203331",
    "name": "span",
    "startTimeUnixNano": "1783468800000000000",
    "endTimeUnixNano": "1783468801000000000",
}
"""2026-07-08T00:00:00Z, one second long."""
__all__ = [
    "JSON",
    "PROTOBUF",
    "MemoryStore",
    "app_of",
    "as_protobuf",
    "bomb",
    "both_ways",
    "decode_json",
    "otlp_json",
    "peak_mb",
    "serving",
    "span_body",
]


class MemoryStore:
    """Decodes at once and collects batches in a list; raises `failure` if that is set."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.failure: Exception | None = None

    @property
    def spans(self) -> list[Span]:
        return [span for batch in self.batches for span in spans_of(batch)]

    def submit(self, body: RawBody) -> Future[Receipt]:
        if self.failure is not None:
            raise self.failure
        future: Future[Receipt] = Future()
        try:
            batch = decode(body)
        except ValueError as error:
            future.set_exception(error)
        else:
            self.batches.append(batch)
            future.set_result(Receipt(rejected=batch.rejected, message=batch.message))
        return future

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        raise AssertionError("receiving only submits")

    def read(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), *, timeout_s: float | None = None
    ) -> Rows:
        raise AssertionError("receiving only submits")

    def run_user_sql(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("receiving only submits")

    def close(self) -> None:
        """Nothing to close."""


def app_of(store: Any, *, limits: Limits | None = None, counters: Counters | None = None) -> Starlette:
    """Return an application with nothing but the OTLP routes."""
    return Starlette(routes=receiver.routes(store, flight=Flight(limits), counters=counters or Counters()))


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application on a free loopback port; yields its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port: int = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def span_body(*spans: Mapping[str, Any], resource: Mapping[str, Any] | None = None) -> bytes:
    """Return one protobuf request of the official SDK, with a span for each mapping of attributes."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource(dict(resource or {"service.name": "helpdesk"})), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("wire", "1.0")
    for attributes in spans:
        tracer.start_span("span", attributes=dict(attributes)).end()
    return encode_spans(exporter.get_finished_spans()).SerializeToString()


def otlp_json(*spans: Mapping[str, Any], resource: Mapping[str, Any] | None = None) -> bytes:
    """Return one OTLP/JSON request; attributes of spans and events are plain values, bytes {"$bytes": base64}."""
    rows = [{**SPAN, **span, "attributes": attribute_pairs(span.get("attributes", {}))} for span in spans]
    for span in rows:
        span["events"] = [
            {**event, "attributes": attribute_pairs(event["attributes"])} for event in span.get("events", ())
        ]
    scope = {"scope": {"name": "wire"}, "spans": rows}
    envelope = {"resource": {"attributes": attribute_pairs(resource or {})}, "scopeSpans": [scope]}
    return orjson.dumps({"resourceSpans": [envelope]})


def as_protobuf(body: bytes) -> bytes:
    """Return an OTLP/JSON traces request in protobuf, converted by the protobuf library except for the ids."""
    request = orjson.loads(body)
    for envelope in request["resourceSpans"]:
        for span in (span for scope in envelope["scopeSpans"] for span in scope["spans"]):
            for item in (span, *span.get("links", ())):
                ids = {key: item[key] for key in ("traceId", "spanId", "parentSpanId") if key in item}
                item |= {key: base64.b64encode(bytes.fromhex(value)).decode() for key, value in ids.items()}
    request.pop("client", None)  # recorded bodies name their client
    return json_format.ParseDict(request, ExportTraceServiceRequest()).SerializeToString()


def decode_json(*spans: Mapping[str, Any], resource: Mapping[str, Any] | None = None) -> Batch:
    """Return the batch of spans in JSON."""
    return decode(RawBody(signal="traces", content_type=JSON, body=otlp_json(*spans, resource=resource)))


def both_ways(body: bytes) -> Batch:
    """Decode a JSON body and its protobuf form; return their common result."""
    plain = decode(RawBody(signal="traces", content_type=JSON, body=body))
    packed = decode(RawBody(signal="traces", content_type=PROTOBUF, body=as_protobuf(body)))
    assert spans_of(packed) == spans_of(plain)
    assert packed.scores == plain.scores
    assert (packed.rejected, packed.message) == (plain.rejected, plain.message)
    return plain


def attribute_pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return plain values as OTLP/JSON key-value pairs."""
    return [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return (
            {"bytesValue": value["$bytes"]}
            if "$bytes" in value
            else {"kvlistValue": {"values": attribute_pairs(value)}}
        )
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    members = {str: "stringValue", bool: "boolValue", float: "doubleValue"}
    if type(value) is int or value != value:
        value = str(value)
        return {"intValue": value} if value != "nan" else {"doubleValue": "NaN"}
    return {} if value is None else {members[type(value)]: value}


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process in MiB (Linux)."""
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def bomb(megabytes: int) -> bytes:
    """Return a gzip body of so many MiB of zeros, built from one compressed MiB."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(1024 * 1024)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes + b"\x03\0"


if __name__ == "__main__":
    with serving(app_of(MemoryStore())) as address:
        print(address, flush=True)
        sys.stdin.read()
