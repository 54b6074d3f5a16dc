"""Hours of generated traffic: the application answers for real and now, its spans are moved to when they are to be.

visits (when, what, who, which prompt) ─▶ application, decorated ─▶ spans, feedback ─ moved back ─▶ OTLP bodies
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
from typing import Literal

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import ragpulse
from ragpulse_collector.analysis.overview import DEMO_SERVICE as SERVICE
from ragpulse_collector.demo.application import MADE_UP, QUESTIONS, Application, Generate
from ragpulse_collector.records import RawBody

VERSIONS = ("v1", "v2")
HOURS = 5.7
ROUNDS = 6
"""How often each question comes under each version."""
USERS = 40
TURNS = 3
"""Questions of a session."""
THUMBS_SHARE = 0.3
MS = 1_000_000
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One question of one user."""

    ago: timedelta
    question: str
    version: str
    user: str
    session: str


def visits(*, rounds: int = ROUNDS) -> list[Visit]:
    """Return every question `rounds` times under each version, in order of time, the second version from half way on.

    Spread over almost six hours with a rhythm of busier and quieter times, the last one a few seconds ago.
    """
    chance = random.Random(7)
    asked = [chance.sample(QUESTIONS, len(QUESTIONS)) for _ in range(rounds * len(VERSIONS))]
    questions = [question for one in asked for question in one]
    gaps = [chance.expovariate(1.0 + 0.6 * (number // 40 % 2)) for number in range(len(questions))]
    left, scale = sum(gaps), HOURS * 3600.0 / sum(gaps)
    found = []
    for number, (question, gap) in enumerate(zip(questions, gaps, strict=True)):
        left -= gap
        version = VERSIONS[number * len(VERSIONS) // len(questions)]
        ago = timedelta(seconds=max(0.0, left) * scale + 5.0)
        session = number // TURNS
        who = {"user": f"user-{session % USERS}", "session": f"session-{session}"}
        found.append(Visit(ago=ago, question=question, version=version, **who))
    return found


def traffic(planned: Sequence[Visit], *, generate: Generate | None = None) -> Iterator[RawBody]:
    """Answer every visit and yield spans and feedback as OTLP bodies, each as long before now as its visit was.

    Without a model to `generate` the durations are those of a service that asks one: drawn, not measured. Nothing goes
    to where the process else sends its spans; one traffic at a time. Raises RuntimeError where spans are missing.
    """
    with _one_at_a_time, _Receiver() as receiver:
        ragpulse.configure(SERVICE, endpoint=receiver.url, capture_content=True, isolated=True)
        try:
            _visit(Application(generate=generate), planned)
            ragpulse.flush(timeout=10)
        finally:
            ragpulse.shutdown()
    yield from _moved(receiver, planned, drawn=generate is None)


def _visit(application: Application, planned: Sequence[Visit]) -> None:
    """Ask every question; some users send a thumb, mostly up where the answer is not made up."""
    chance = random.Random(7)
    for visit in planned:
        with ragpulse.attributes(session_id=visit.session, user_id=visit.user):
            try:
                answer = application.answer(visit.question, prompt_version=visit.version)
            except TimeoutError:
                continue
        if chance.random() < THUMBS_SHARE:
            liked = chance.random() < (0.2 if answer.endswith(MADE_UP) else 0.92)
            ragpulse.feedback(application.trace_id, "thumbs", float(liked))


class _Receiver:
    """Takes what the SDK sends, over a socket on loopback, and keeps it."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        traces, logs = self.traces, self.logs

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                if self.path.endswith("/traces"):
                    traces.append(ExportTraceServiceRequest.FromString(body))
                else:
                    logs.append(ExportLogsServiceRequest.FromString(body))
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


def _moved(received: _Receiver, planned: Sequence[Visit], *, drawn: bool) -> Iterator[RawBody]:
    """Visits were answered one after the other: the n-th trace to begin is the n-th visit."""
    traces: dict[bytes, list[Span]] = {}
    for one in received.traces:
        for span in (span for part in one.resource_spans for scope in part.scope_spans for span in scope.spans):
            traces.setdefault(span.trace_id, []).append(span)
    order = sorted(traces.values(), key=lambda spans: min(span.start_time_unix_nano for span in spans))
    if len(order) != len(planned):
        raise RuntimeError(f"{len(order)} of {len(planned)} traces arrived")
    now, chance = time.time_ns(), random.Random(7)
    begun = {}
    for spans, visit in zip(order, planned, strict=True):
        begun[spans[0].trace_id] = begin = now - visit.ago // timedelta(microseconds=1) * 1000
        _move(spans, begin, chance if drawn else None)
    for body in received.logs:
        for record in (one for part in body.resource_logs for scope in part.scope_logs for one in scope.log_records):
            record.time_unix_nano = record.observed_time_unix_nano = begun[record.trace_id] + 30_000 * MS
    yield from (_body("traces", one) for one in received.traces)
    yield from (_body("logs", one) for one in received.logs)


def _move(spans: Sequence[Span], begin: int, chance: random.Random | None) -> None:
    """Let the trace begin then; with `chance` the root's steps follow one another and take as long as real ones."""
    root, *steps = sorted(spans, key=lambda span: span.start_time_unix_nano)
    back, at = root.start_time_unix_nano - begin, begin + 4 * MS
    for span in spans:
        span.start_time_unix_nano -= back
        span.end_time_unix_nano -= back
    if chance:
        for step in steps:
            step.start_time_unix_nano, at = at, at + int(_duration_ms(step, chance) * MS)
            step.end_time_unix_nano = at
    root.end_time_unix_nano = max(root.end_time_unix_nano, at + 2 * MS)
    for span in spans:
        for event in span.events:
            event.time_unix_nano = span.end_time_unix_nano


def _duration_ms(step: Span, chance: random.Random) -> float:
    if step.status.code == Status.STATUS_CODE_ERROR:
        return 20_000.0
    if step.name == "bm25":
        return chance.lognormvariate(4.4, 0.4)
    slow = 5.0 if chance.random() < 0.02 else 1.0
    return chance.lognormvariate(7.2, 0.35) * slow


def _body(signal: Literal["traces", "logs"], request: Message) -> RawBody:
    return RawBody(signal=signal, content_type="application/x-protobuf", body=request.SerializeToString())
