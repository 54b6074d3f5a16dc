"""Hours of generated traffic: the application answers for real and now, its spans are moved to when they are to be.

visits (when, what, who, which prompt) ─▶ application, decorated ─▶ spans ─ moved back ─▶ OTLP bodies
"""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import ragpulse
from ragpulse_collector.analysis.overview import DEMO_SERVICE as SERVICE
from ragpulse_collector.demo.application import Application, Generate
from ragpulse_collector.demo.corpus import Index, guides, passages
from ragpulse_collector.demo.questions import QUESTIONS

__all__ = ["SERVICE", "VERSIONS", "Visit", "traffic", "visits"]

VERSIONS = ("v1", "v2")
HOURS = 6.0
ROUNDS = 6
"""How often each question comes under each version."""
USERS = 40
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One question of one user."""

    ago: timedelta
    question: str
    version: str
    user: str


def visits(*, rounds: int = ROUNDS, seed: int = 7) -> list[Visit]:
    """Return every question `rounds` times under each version, in order of time, the second version from half way on.

    Spread over six hours with a rhythm of busier and quieter times, the last one a few seconds ago.
    """
    chance = random.Random(seed)
    asked = [chance.sample(QUESTIONS, len(QUESTIONS)) for _ in range(rounds * len(VERSIONS))]
    questions = [question for one in asked for question in one]
    gaps = [chance.expovariate(1.0 + 0.6 * (number // 40 % 2)) for number in range(len(questions))]
    left, scale = sum(gaps), HOURS * 3600.0 / sum(gaps)
    found = []
    for number, (question, gap) in enumerate(zip(questions, gaps, strict=True)):
        left -= gap
        version = VERSIONS[number * len(VERSIONS) // len(questions)]
        ago = timedelta(seconds=max(0.0, left) * scale + 5.0)
        found.append(Visit(ago=ago, question=question, version=version, user=f"user-{number % USERS}"))
    return found


def traffic(planned: Sequence[Visit], *, generate: Generate | None = None) -> Iterator[bytes]:
    """Answer every visit and yield the spans as OTLP bodies (protobuf), each as long before now as its visit was.

    Durations are those measured. Nothing goes to where the process else sends its spans; one traffic at a time. Raises
    RuntimeError where spans are missing.
    """
    with _one_at_a_time, _Receiver() as receiver:
        ragpulse.configure(SERVICE, endpoint=receiver.url, capture_content=True, isolated=True)
        try:
            application = Application(Index(passages(guides())), generate=generate)
            for visit in planned:
                with ragpulse.attributes(session_id=f"{visit.user}-{visit.version}", user_id=visit.user):
                    application.answer(visit.question, prompt_version=visit.version)
            ragpulse.flush(timeout=10)
        finally:
            ragpulse.shutdown()
    yield from _moved(receiver.requests, planned)


class _Receiver:
    """Takes what the SDK sends, over a socket on loopback, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        kept = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                kept.append(ExportTraceServiceRequest.FromString(gzip.decompress(body) if packed else body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="ragpulse-demo", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> _Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _moved(requests: Sequence[ExportTraceServiceRequest], planned: Sequence[Visit]) -> Iterator[bytes]:
    """Visits were answered one after the other: the n-th trace to begin is the n-th visit."""
    spans = [
        span for one in requests for part in one.resource_spans for scope in part.scope_spans for span in scope.spans
    ]
    starts: dict[bytes, int] = {}
    for span in spans:
        starts[span.trace_id] = min(starts.get(span.trace_id, span.start_time_unix_nano), span.start_time_unix_nano)
    order = sorted(starts, key=starts.__getitem__)
    if len(order) != len(planned):
        raise RuntimeError(f"{len(order)} of {len(planned)} traces arrived")
    now = time.time_ns()
    back = {
        trace: starts[trace] - now + visit.ago // timedelta(microseconds=1) * 1000
        for trace, visit in zip(order, planned, strict=True)
    }
    for span in spans:
        span.start_time_unix_nano -= back[span.trace_id]
        span.end_time_unix_nano -= back[span.trace_id]
        for event in span.events:
            event.time_unix_nano -= back[span.trace_id]
    yield from (one.SerializeToString() for one in requests)
