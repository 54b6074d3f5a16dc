"""What the wire's tests share: OTLP bodies made with the official SDK, a store in memory, a real server on loopback."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import uvicorn
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette

from ragpulse_collector import receiver
from ragpulse_collector.conventions import decode
from ragpulse_collector.otlp.answers import JSON, PROTOBUF
from ragpulse_collector.otlp.intake import Counters, Flight, Limits
from ragpulse_collector.records import Batch, RawBody, Receipt, SpanRecord
from ragpulse_collector.store import Rows, Transaction

T = TypeVar("T")
__all__ = ["JSON", "PROTOBUF", "MemoryStore", "app_of", "map_attributes", "mapped", "serving", "span_body"]


class MemoryStore:
    """Decodes at once and keeps batches in a list; `failure` is raised instead, when set."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.failure: Exception | None = None

    @property
    def spans(self) -> list[SpanRecord]:
        return [span for batch in self.batches for span in batch.spans]

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
    limits = limits or Limits()
    return Starlette(routes=receiver.routes(store, limits=limits, flight=Flight(limits), counters=counters))


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
    """Return one protobuf request with a span for each mapping of attributes, made by the official SDK."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource(dict(resource or {"service.name": "helpdesk"})), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("wire", "1.0")
    for attributes in spans:
        tracer.start_span("span", attributes=dict(attributes)).end()
    return encode_spans(exporter.get_finished_spans()).SerializeToString()


def mapped(**attributes: Any) -> SpanRecord:
    """Return the record of one span with these attributes; `__` in a keyword stands for a dot."""
    return map_attributes({name.replace("__", "."): value for name, value in attributes.items()})


def map_attributes(attributes: Mapping[str, Any]) -> SpanRecord:
    """Return the record of one span with these attributes."""
    body = RawBody(signal="traces", content_type=PROTOBUF, body=span_body(attributes))
    (record,) = decode(body).spans
    return record
