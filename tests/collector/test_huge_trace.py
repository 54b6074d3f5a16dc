"""One huge trace, through a real process: other bodies are accepted meanwhile, and the process ends in time."""

from __future__ import annotations

import gzip
import itertools
import random
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from served import Served
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.client import connect

SPANS = 12_000
BODIES = 40


def huge_trace(seed: int) -> bytes:
    """A gzipped body: one trace of model calls, each inside the one before, all with usage and without response ids."""
    chance, request = random.Random(seed), ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    trace_id, parent, start = chance.randbytes(16), b"", time.time_ns()
    for number in range(SPANS):
        span = spans.add(trace_id=trace_id, span_id=chance.randbytes(8), parent_span_id=parent, name="chat")
        span.start_time_unix_nano, span.end_time_unix_nano = start + number, start + 10**9
        span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
        span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = 1
        parent = span.span_id
    return gzip.compress(request.SerializeToString(), 1)


def post(url: str, body: bytes) -> None:
    """Send a protobuf body; raises unless it is accepted."""
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/traces", body, headers), timeout=60) as answer:
        assert answer.status == 200


def seconds_to_send(url: str, numbers: Iterator[int]) -> float:
    """Send ordinary bodies one after another; return how long that took."""
    begun = time.monotonic()
    for number in itertools.islice(numbers, BODIES):
        send(url, rag_trace(number))
    return time.monotonic() - begun


def status(url: str) -> dict[str, Any]:
    """What `GET status` answers."""
    found = connect(url).call("GET status")
    assert isinstance(found, dict)
    return found


def test_a_huge_trace_holds_nothing_up(tmp_path: Path) -> None:
    """Bodies are accepted while it is decided; it is stored, decided and counted.

    It used to hold every acceptance up for 200 s, a thousand times as long as these bodies take alone.
    """
    numbers, huge = itertools.count(), huge_trace(1)
    with Served(tmp_path / "ragpulse.duckdb") as process:
        post(process.url, huge)
        beside = 0.0
        while status(process.url)["not_deduplicated"] == 0:
            beside = max(beside, seconds_to_send(process.url, numbers))
        assert beside < 60
        (row,) = connect(process.url).sql("select n_spans, input_tokens, cost_unknown_reason from traces "
                                          f"where n_spans >= {SPANS}").rows()  # fmt: skip
        assert (row["n_spans"], row["input_tokens"]) == (SPANS, SPANS)
        assert "more than 10000 spans" in row["cost_unknown_reason"]
        assert process.terminate() == 0


def test_a_stop_does_not_wait_for_huge_traces(tmp_path: Path) -> None:
    """Ended while several are decided: in time, and all that was acknowledged is stored and decided later.

    It used to take a minute for one of them; `terminate` waits for a minute.
    """
    db, traces = tmp_path / "ragpulse.duckdb", 4
    with Served(db) as process:
        for seed in range(traces):
            post(process.url, huge_trace(seed))
        assert process.terminate() == 0
    with Served(db) as process:
        stored = "select count(distinct (trace_id, span_id)) as n from spans"
        assert connect(process.url).sql(stored).rows() == [{"n": traces * SPANS}]
        eventually(lambda: status(process.url)["not_deduplicated"], lambda count: count == traces)
