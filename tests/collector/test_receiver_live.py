"""Clients that are not ours, over real sockets: exporters of three signals, OpenInference, raw and rude HTTP."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import wire_support
from google.rpc.status_pb2 import Status
from loopback import LoopbackModel
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context
from wire_support import PROTOBUF, MemoryStore, app_of, serving, span_body

from ragpulse_collector.otlp.intake import Counters, Limits
from ragpulse_collector.store import Busy


@pytest.fixture
def store() -> MemoryStore:
    """Return a store that starts empty."""
    return MemoryStore()


@pytest.fixture
def counters() -> Counters:
    """Return counters at zero."""
    return Counters()


@pytest.fixture
def url(store: MemoryStore, counters: Counters) -> Iterator[str]:
    """Serve the receiver with a small limit on a free port."""
    with serving(app_of(store, limits=Limits(max_body_bytes=1_000_000), counters=counters)) as address:
        yield address


def _tracer_provider(url: str, **options: Any) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=60, **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.mark.parametrize("compression", list(Compression))
def test_the_official_exporter_with_genai_spans(url: str, store: MemoryStore, compression: Compression) -> None:
    """Hand-made GenAI spans arrive as canonical records, however they are compressed."""
    provider = _tracer_provider(url, compression=compression)
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 3,
    }
    with provider.get_tracer("t").start_as_current_span("chat m", attributes=attributes):
        pass
    provider.shutdown()
    (span,) = store.spans
    assert (span.kind, span.model, span.input_tokens) == ("llm", "m", 3)


def test_structured_attributes_of_the_current_sdk(url: str, store: MemoryStore) -> None:
    """Mappings, lists of mappings, None and bytes on spans."""
    provider = _tracer_provider(url)
    attributes: dict[str, Any] = {"gen_ai.retrieval.documents": [{"id": "a", "content": "text"}], "n": None, "b": b"hi"}
    provider.get_tracer("t").start_span("retrieval", attributes=attributes).end()
    provider.shutdown()
    (span,) = store.spans
    assert [(c.id, c.text) for c in span.contexts or ()] == [("a", "text")]
    assert json.loads(span.attributes)["b"] == {"$bytes": "aGk="}


def test_a_client_repeats_what_met_a_full_queue(url: str, store: MemoryStore, counters: Counters) -> None:
    """503 with Retry-After: 1, then success: the exporter loses nothing."""
    accept, refused = store.submit, [Busy("queue full")]

    def submit(body: Any) -> Any:
        if refused:
            raise refused.pop()
        return accept(body)

    store.submit = submit  # type: ignore[method-assign]
    provider = _tracer_provider(url)
    provider.get_tracer("t").start_span("kept").end()
    provider.shutdown()
    assert [span.name for span in store.spans] == ["kept"]
    assert counters.requests == {("traces", 503): 1, ("traces", 200): 1}


def test_the_official_log_and_metric_exporters(url: str, store: MemoryStore, counters: Counters) -> None:
    """An evaluation result as a log event is a score; metrics are answered."""
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(endpoint=f"{url}/v1/logs")))
    event = LogRecord(
        event_name="gen_ai.evaluation.result",
        context=set_span_in_context(NonRecordingSpan(SpanContext(7, 9, is_remote=False))),
        attributes={"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 0.5},
    )
    provider.get_logger("t").emit(event)
    provider.shutdown()
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=f"{url}/v1/metrics"))
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    meters.get_meter("t").create_counter("c").add(1)
    meters.shutdown()
    (score,) = store.batches[0].scores
    assert (score.name, score.score, score.trace_id, score.span_id) == ("tone", 0.5, f"{7:032x}", f"{9:016x}")
    assert counters.requests["metrics", 200] == 1


def test_openinference_over_a_real_client(
    url: str, store: MemoryStore, loopback_model: Callable[..., LoopbackModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instrumented OpenAI client, against a loopback model, arrives as a canonical llm span."""
    openai = pytest.importorskip("openai")
    instrumentation = pytest.importorskip("openinference.instrumentation.openai")
    model = loopback_model(lambda prompt: "Paris.")
    provider = _tracer_provider(url)
    instrumentor = instrumentation.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        with openai.OpenAI(base_url=model.url, api_key="none") as client:
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?"}]
            client.chat.completions.create(model="gpt-5-mini", messages=messages)
    finally:
        instrumentor.uninstrument()
        provider.shutdown()
    (span,) = store.spans
    assert (span.kind, span.query, span.response, span.model) == ("llm", "Capital of France?", "Paris.", "gpt-5-mini")
    assert (span.input_tokens, span.output_tokens, span.provider) == (120, 5, "openai")


def test_chunked_bodies_without_a_length(url: str, store: MemoryStore) -> None:
    """As Node's exporter sends them."""
    body = gzip.compress(span_body({"a": 1}))
    pieces = (body[at : at + 50] for at in range(0, len(body), 50))
    answer = httpx.post(
        f"{url}/v1/traces", content=pieces, headers={"content-type": PROTOBUF, "content-encoding": "gzip"}, timeout=60
    )
    assert (answer.status_code, len(store.spans)) == (200, 1)


def test_a_refused_body_leaves_the_connection_usable(url: str, store: MemoryStore) -> None:
    """413 is answered in full, and the next request on the same connection succeeds."""
    with httpx.Client(base_url=url, headers={"content-type": PROTOBUF}, timeout=60) as client:
        assert client.post("/v1/traces", content=b"x" * 3_000_000).status_code == 413
        assert client.post("/v1/traces", content=span_body({"a": 1})).status_code == 200


def test_a_slow_body_is_cut_off(store: MemoryStore) -> None:
    """A sender that stalls gets 408 and is disconnected; nothing waits for it."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 100\r\n\r\n"
    with serving(app_of(store, limits=Limits(body_timeout_s=0.3))) as url:
        answer = _raw(url, head.encode() + b"abc")
    status, _, body = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 408")
    assert Status.FromString(body).code == 4


def test_a_sender_that_leaves_halfway_is_counted(url: str, counters: Counters) -> None:
    """Nothing of its body is taken."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 100\r\n\r\n"
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"abc")
    httpx.post(f"{url}/v1/traces", headers={"content-type": PROTOBUF}, timeout=60)
    assert counters.requests["traces", 200] == 1
    assert counters.body_bytes == 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of peak memory")
def test_many_bombs_at_once_cost_little_memory() -> None:
    """Twenty of a gigabyte at a time, then one of ten: all 413, and the next export is served."""
    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
    command = [sys.executable, wire_support.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        url = f"{server.stdout.readline().strip()}/v1/traces" if server.stdout else ""
        httpx.post(url, content=span_body({"a": 1}), headers={"content-type": PROTOBUF}, timeout=60)
        before = wire_support.peak_mb(server.pid)
        codes = {
            *_together(url, wire_support.bomb(1024), headers, times=20),
            *_together(url, wire_support.bomb(10 * 1024), headers, times=1),
        }
        grown = wire_support.peak_mb(server.pid) - before
        answer = httpx.post(url, content=span_body({"a": 1}), headers={"content-type": PROTOBUF}, timeout=60)
        server.communicate("")
    assert (codes, answer.status_code) == ({413}, 200)
    assert grown < 100


def _together(url: str, body: bytes, headers: dict[str, str], *, times: int) -> list[int]:
    def send(_: int) -> int:
        return httpx.post(url, content=body, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(send, range(times)))


def _raw(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer
