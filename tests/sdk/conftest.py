"""A collector for tests: a real server on a loopback port that keeps what it was sent, parsed by the stock protobuf."""

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import ragpulse
from ragpulse._guard import GUARD, Limiter


def plain(value: Any) -> Any:
    """An AnyValue as a Python value."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: plain(item.value) for item in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)


def as_dict(attributes: Any) -> dict[str, Any]:
    """Repeated KeyValue as a dict; a doubled key is an error."""
    found = {item.key: plain(item.value) for item in attributes}
    assert len(found) == len(attributes), "an attribute was sent twice"
    return found


@dataclass
class Received:
    """One span as it arrived."""

    message: Any
    resource: dict[str, Any]

    def __post_init__(self) -> None:
        self.name: str = self.message.name
        self.attributes = as_dict(self.message.attributes)
        self.id: str = self.message.span_id.hex()
        self.parent: str = self.message.parent_span_id.hex()
        self.trace: str = self.message.trace_id.hex()
        self.events = [(event.name, as_dict(event.attributes)) for event in self.message.events]


@dataclass
class Collector:
    """What arrived, and how to answer."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    respond: Callable[[Any], bool] = lambda handler: False
    """Answers a request by itself and returns True, or returns False to let it be accepted."""

    def take(self, path: str, body: bytes) -> None:
        """Parse and keep a request's body."""
        if path.endswith("/v1/traces"):
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = as_dict(part.resource.attributes)
                self.spans += [Received(span, resource) for scope in part.scope_spans for span in scope.spans]
        else:
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.logs += [record for scope in logs.scope_logs for record in scope.log_records]

    def one(self, name: str) -> Received:
        """The only span whose name ends so."""
        found = [span for span in self.spans if span.name.endswith(name)]
        assert len(found) == 1, f"{len(found)} spans named {name} of {[span.name for span in self.spans]}"
        return found[0]


def serve(
    collector: Collector, place: socket.socket | None = None, tls: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    """Start answering on a loopback port, or on a socket that is bound to one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests.append({"path": self.path, **dict(self.headers.items())})
            self.sent = body
            if collector.respond(self):
                return
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=place is None)
    server.daemon_threads = True
    if place is not None:
        server.socket.close()
        server.socket = place
        server.server_address = place.getsockname()
        server.server_activate()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    collector.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
def _collections_are_quick(small_heap: None) -> None:
    """Only what the tests of a module make is looked through for garbage; with all loaded frameworks it takes 0.5 s."""


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an earlier test of this process warned of is logged again."""
    monkeypatch.setattr(GUARD, "limiter", Limiter())


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    received = Collector()
    server = serve(received)
    yield received
    server.shutdown()
    server.server_close()


@pytest.fixture
def pulse(collector: Collector) -> Iterator[Collector]:
    """A running collector that ragpulse is configured to send to."""
    ragpulse.configure(service_name="tests", endpoint=collector.url)
    yield collector
    ragpulse.shutdown(timeout=1)
