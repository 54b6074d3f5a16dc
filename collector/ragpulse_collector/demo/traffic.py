"""Hours of generated traffic: the application answers now, and its spans are moved into the past.

visits (time, question, user, prompt) ─▶ application, decorated ─▶ spans, feedback ─ moved back ─▶ OTLP bodies
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
from ragpulse_collector.demo.application import GAP, MADE_UP, NEW, QUESTIONS, Application, Generate
from ragpulse_collector.records import RawBody

VERSIONS = ("v1", "v2")
HOURS = 5.7
ROUNDS = 6
"""How often each question comes under each version."""
NEW_FROM = 0.58
"""The share of the rounds before users ask about something new."""
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
    """Return every question `rounds` times under each version, in order of time: first `v1`, then `v2`.

    In two of three rounds some questions have no answer in the guides; in the last ones they ask about something
    new. They spread over almost six hours, with busier and quieter times; the last is a few seconds ago.
    """
    chance = random.Random(7)
    versions = [version for version in VERSIONS for _ in range(rounds)]
    by_round = [_round(number, len(versions)) for number in range(len(versions))]
    asked = [(question, version) for version, one in zip(versions, by_round, strict=True)
             for question in chance.sample(one, len(one))]  # fmt: skip
    gaps = [chance.expovariate(1.0 + 0.6 * (number // 40 % 2)) for number in range(len(asked))]
    remaining, scale = sum(gaps), HOURS * 3600.0 / sum(gaps)
    planned = []
    for number, ((question, version), gap) in enumerate(zip(asked, gaps, strict=True)):
        remaining -= gap
        ago = timedelta(seconds=max(0.0, remaining) * scale + 5.0)
        session = number // TURNS
        user = {"user": f"user-{session % USERS}", "session": f"session-{session}"}
        planned.append(Visit(ago=ago, question=question, version=version, **user))
    return planned


def _round(number: int, rounds: int) -> list[str]:
    return [*QUESTIONS, *(GAP if number % 3 else ()), *(NEW if number >= rounds * NEW_FROM else ())]


def traffic(planned: Sequence[Visit], *, generate: Generate | None = None) -> Iterator[RawBody]:
    """Answer every visit and yield spans and feedback as OTLP bodies, with the times of the visits.

    Without a model to `generate` the durations are random, as those of a service with a model. The process's own
    exporter gets nothing; one traffic at a time. Raises RuntimeError where spans are missing.
    """
    with _one_at_a_time, _Receiver() as receiver:
        ragpulse.configure(SERVICE, endpoint=receiver.url, capture_content=True, isolated=True)
        try:
            _visit(Application(generate=generate), planned)
            ragpulse.flush(timeout=10)
        finally:
            ragpulse.shutdown()
    yield from _bodies(receiver, planned, random_durations=generate is None)


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
    """Collects the requests of the SDK, over a socket on loopback."""

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
                """Log nothing."""

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


def _bodies(received: _Receiver, planned: Sequence[Visit], *, random_durations: bool) -> Iterator[RawBody]:
    """Yield the requests with the times of the visits: these were answered in order, so the n-th trace is the n-th."""
    traces: dict[bytes, list[Span]] = {}
    for request in received.traces:
        for span in (span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans):
            traces.setdefault(span.trace_id, []).append(span)
    order = sorted(traces.values(), key=lambda spans: min(span.start_time_unix_nano for span in spans))
    if len(order) != len(planned):
        raise RuntimeError(f"{len(order)} of {len(planned)} traces arrived")
    now, chance = time.time_ns(), random.Random(7)
    starts = {}
    for spans, visit in zip(order, planned, strict=True):
        starts[spans[0].trace_id] = start = now - visit.ago // timedelta(microseconds=1) * 1000
        _move(spans, start, chance if random_durations else None)
    for body in received.logs:
        for record in (log for part in body.resource_logs for scope in part.scope_logs for log in scope.log_records):
            record.time_unix_nano = record.observed_time_unix_nano = starts[record.trace_id] + 30_000 * MS
    yield from (_body("traces", request) for request in received.traces)
    yield from (_body("logs", request) for request in received.logs)


def _move(spans: Sequence[Span], start: int, chance: random.Random | None) -> None:
    """Move the trace to its start; with `chance` its steps follow one another with random durations."""
    root, *steps = sorted(spans, key=lambda span: span.start_time_unix_nano)
    shift, time_ns = root.start_time_unix_nano - start, start + 4 * MS
    for span in spans:
        span.start_time_unix_nano -= shift
        span.end_time_unix_nano -= shift
    if chance:
        for step in steps:
            step.start_time_unix_nano, time_ns = time_ns, time_ns + int(_duration_ms(step, chance) * MS)
            step.end_time_unix_nano = time_ns
    root.end_time_unix_nano = max(root.end_time_unix_nano, time_ns + 2 * MS)
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
