"""The OTLP/HTTP server checklist of the conventions document, line by line."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from typing import Any

import httpx
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from wire_support import JSON, PROTOBUF, MemoryStore, app_of, span_body

from ragpulse_collector.otlp import intake
from ragpulse_collector.otlp.intake import Counters, Limits
from ragpulse_collector.store import Busy

PATHS = ("/v1/traces", "/v1/logs", "/v1/metrics", "/api/public/otel/v1/traces")
SPAN = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "s"}


@pytest.fixture
def store() -> MemoryStore:
    """Return a store that starts empty."""
    return MemoryStore()


def _json_body(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


async def _post(
    store: MemoryStore,
    content: Any,
    *,
    path: str = "/v1/traces",
    limits: Limits | None = None,
    counters: Counters | None = None,
    method: str = "POST",
    **headers: str,
) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx.ASGITransport(app_of(store, limits=limits, counters=counters))
    async with httpx.AsyncClient(transport=transport, base_url="http://collector") as client:
        return await client.request(method, path, content=content, headers=sent)


@pytest.mark.parametrize("path", PATHS)
async def test_an_empty_request_succeeds_with_an_empty_answer(store: MemoryStore, path: str) -> None:
    """Zero bytes are an empty protobuf message; partial_success stays unset."""
    answer = await _post(store, b"", path=path, content_type=PROTOBUF)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", PROTOBUF)
    answer = await _post(store, b"{}", path=path, content_type=JSON)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"{}", JSON)


async def test_spans_of_both_encodings_are_stored(store: MemoryStore) -> None:
    """One port takes protobuf and JSON; content type parameters and letter case do not matter."""
    await _post(store, span_body({"a": 1}), content_type="Application/X-Protobuf")
    await _post(store, _json_body(SPAN), content_type="application/json; charset=utf-8")
    assert [span.name for span in store.spans] == ["span", "s"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_wrong_method_is_405(store: MemoryStore, path: str) -> None:
    """The answer names the method that is allowed, as google.rpc.Status."""
    answer = await _post(store, b"", path=path, method="GET")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "POST" in answer.json()["message"]


async def test_unknown_paths_are_404(store: MemoryStore) -> None:
    """Profiles are not received."""
    assert (await _post(store, b"", path="/v1development/profiles", content_type=PROTOBUF)).status_code == 404


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
async def test_other_content_types_are_415(store: MemoryStore, content_type: str) -> None:
    """What is not protobuf or JSON is refused before it is read."""
    assert (await _post(store, b"x", content_type=content_type)).status_code == 415


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body, wbits=-15)),
        ("identity", bytes),
        ("none", bytes),
        ("gzip", lambda body: gzip.compress(body[:7], mtime=0) + gzip.compress(body[7:])),
    ],
)
async def test_content_encodings(store: MemoryStore, encoding: str, compress: Any) -> None:
    """gzip (several members too), deflate with and without the zlib header, and none at all."""
    answer = await _post(store, compress(span_body({"a": 1})), content_type=PROTOBUF, content_encoding=encoding)
    assert (answer.status_code, len(store.spans)) == (200, 1)


@pytest.mark.parametrize(
    ("encoding", "body", "code"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("gzip", b"not gzip", 400),
        ("gzip", gzip.compress(b"x" * 5000, mtime=0)[:-9], 400),
        ("gzip", gzip.compress(b"", mtime=0) + b"garbage", 400),
        ("gzip", gzip.compress(b"", mtime=0) * 100, 400),
        ("gzip", b"", 400),
        ("deflate", zlib.compress(b"") + b"more", 400),
    ],
)
async def test_bad_encodings(store: MemoryStore, encoding: str, body: bytes, code: int) -> None:
    """Unknown encodings are 415; corrupt and truncated bodies 400; nothing is stored."""
    answer = await _post(store, body, content_type=PROTOBUF, content_encoding=encoding)
    assert (answer.status_code, store.batches) == (code, [])


async def test_errors_speak_the_encoding_of_the_request(store: MemoryStore) -> None:
    """400 carries google.rpc.Status with BadRequest details, in protobuf or JSON."""
    answer = await _post(store, b"\xff\xff", content_type=PROTOBUF)
    status, details = Status.FromString(answer.content), BadRequest()
    assert (answer.status_code, answer.headers["content-type"], status.code) == (400, PROTOBUF, 3)
    assert status.details[0].Unpack(details)
    assert "ExportTraceServiceRequest" in details.field_violations[0].description
    answer = await _post(store, b"{", content_type=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON)
    assert answer.json()["details"][0]["@type"].endswith("BadRequest")
    assert "not JSON" in answer.json()["message"]


async def test_a_body_limit_holds_before_and_after_inflating(store: MemoryStore) -> None:
    """413 by Content-Length, by the bytes that come in chunks, and by what gzip would become."""
    limits = Limits(max_body_bytes=1000)

    async def chunks() -> Any:
        for _ in range(11):
            yield b"x" * 100

    for content, encoding in [(b"x" * 1001, "none"), (chunks(), "none"), (gzip.compress(b"x" * 1001, mtime=0), "gzip")]:
        answer = await _post(store, content, limits=limits, content_type=PROTOBUF, content_encoding=encoding)
        assert (answer.status_code, Status.FromString(answer.content).code) == (413, 8)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_small_body_that_is_large_inflated_leaves_the_event_loop(
    encoding: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 KiB may hold 64 MiB: only one chunk is inflated on the loop."""
    threads = set[str]()
    whole = intake.inflate

    def noted(*arguments: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return whole(*arguments)

    monkeypatch.setattr(intake, "inflate", noted)
    compress = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    large = span_body({"a": "x" * 3_000_000})
    for body in (span_body({"a": 1}), large):
        answer = await _post(store, compress(body), content_type=PROTOBUF, content_encoding=encoding)
        assert answer.status_code == 200
    assert (len(threads), threading.current_thread().name in threads) == (1, False)


async def test_partial_success_counts_what_was_refused(store: MemoryStore) -> None:
    """Bad ids are refused one by one; the rest is stored and the sender is told why."""
    bad = [{**SPAN, "traceId": "0" * 32}, {**SPAN, "spanId": "abc"}]
    answer = await _post(store, _json_body(SPAN, *bad), content_type=JSON)
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert "trace_id" in answer.text
    assert (answer.status_code, len(store.spans)) == (200, 1)


async def test_partial_success_in_protobuf(store: MemoryStore) -> None:
    """The same in protobuf."""
    request = ExportTraceServiceRequest.FromString(span_body({"a": 1}))
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = bytes(16)
    answer = await _post(store, request.SerializeToString(), content_type=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (partial.rejected_spans, bool(partial.error_message)) == (1, True)


async def test_a_busy_store_is_503_with_a_short_retry_after(store: MemoryStore) -> None:
    """Python's exporters drop a batch that is to wait ten seconds."""
    store.failure = Busy("queue full")
    answer = await _post(store, b"", content_type=PROTOBUF)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert Status.FromString(answer.content).code == 14


async def test_an_unforeseen_failure_is_503_not_500(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """Clients drop a batch that met a 500; the reason is in our log, not in the answer."""
    store.failure = OSError("disk on fire")
    answer = await _post(store, b"", content_type=PROTOBUF)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert b"fire" not in answer.content
    assert "disk on fire" in caplog.text


async def test_bodies_in_flight_share_one_budget(store: MemoryStore) -> None:
    """What is beyond the budget of all bodies is to come again, and the budget is free afterwards."""
    limits = Limits(max_in_flight_bytes=1000)
    answer = await _post(store, b"x" * 1001, limits=limits, content_type=PROTOBUF)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    body = gzip.compress(span_body({"a": "x" * 2000}))
    answer = await _post(store, body, limits=limits, content_type=PROTOBUF, content_encoding="gzip")
    assert answer.status_code == 503


async def test_metrics_are_answered_and_not_stored(store: MemoryStore) -> None:
    """Well-formed metrics are a success, malformed ones 400."""
    assert (await _post(store, b'{"resourceMetrics": []}', path="/v1/metrics", content_type=JSON)).status_code == 200
    assert (await _post(store, b'{"resourceMetrics": 5}', path="/v1/metrics", content_type=JSON)).status_code == 400
    assert (await _post(store, b"\xff", path="/v1/metrics", content_type=PROTOBUF)).status_code == 400
    assert store.batches == []


async def test_every_answer_is_counted(store: MemoryStore) -> None:
    """By signal and code, with bytes and refused spans."""
    counters = Counters()
    body = _json_body(SPAN, {**SPAN, "spanId": ""})
    await _post(store, body, counters=counters, content_type=JSON)
    await _post(store, b"{", path="/v1/logs", counters=counters, content_type=JSON)
    assert counters.requests == {("logs", 400): 1, ("traces", 200): 1}
    assert (counters.body_bytes, counters.rejected, counters.duplicates) == (len(body), 1, 0)
