"""Imports traces and feedback from another tool, and sends them to the collector as OTLP.

    phoenix | mlflow | jsonl | langfuse  ─▶ pages of OTLP spans ─▶ POST /v1/traces ─▶ the dialects map them as usual

A score becomes attributes of its span (`annotations.N.annotation.*` of OpenInference). The collector stores a span
once, so an import that was killed can start again and stores nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragpulse_collector.client import Client

PROTOBUF = "application/x-protobuf"


class Page(NamedTuple):
    """Spans of one service that are sent together."""

    service: str
    spans: list[Span]


class Feedback(NamedTuple):
    """A score of a span or a trace, from a person or a program."""

    name: str
    score: float | None = None
    label: str | None = None
    explanation: str | None = None
    human: bool = False


@dataclass
class ImportCounts:
    """The counts of an import."""

    spans: int = 0
    scores: int = 0
    rejected: int = 0
    known: int = 0
    """Spans that the collector had already."""
    sessions: set[str] = field(default_factory=set)
    traces: set[bytes] = field(default_factory=set)


def move(client: Client, pages: Iterable[Page]) -> Iterator[ImportCounts]:
    """Send each page and yield the counts so far; raises ClientError if the collector refuses."""
    totals = ImportCounts()
    for page in pages:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.attributes.append(attribute("service.name", page.service))
        resource.scope_spans.add().spans.extend(page.spans)
        known = _known(client, page.spans)
        answer = client.request(
            "POST", "/v1/traces", body=request.SerializeToString(), content_type=PROTOBUF, accept=PROTOBUF
        )
        totals.known += known
        totals.rejected += ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
        totals.spans += len(page.spans)
        for span in page.spans:
            totals.traces.add(span.trace_id)
            for pair in span.attributes:
                totals.scores += pair.key.endswith(".annotation.name")
                if pair.key == "session.id":
                    totals.sessions.add(pair.value.string_value)
        yield totals


def _known(client: Client, spans: Sequence[Span]) -> int:
    """Return how many of these spans are stored."""
    times = [datetime.fromtimestamp(span.start_time_unix_nano // 10**9, UTC).isoformat() for span in spans]
    ids = [f"{span.trace_id.hex()}{span.span_id.hex()}" for span in spans]
    near = "start_time BETWEEN ?::TIMESTAMPTZ - INTERVAL 1 DAY AND ?::TIMESTAMPTZ + INTERVAL 1 DAY"
    query = f"SELECT count(*) AS n FROM spans WHERE list_contains(?::VARCHAR[], trace_id || span_id) AND {near}"
    return int(client.sql(query, [ids, min(times), max(times)]).rows()[0]["n"]) if spans else 0


def attribute(key: str, value: float | str | bool) -> KeyValue:
    """Return an attribute of a span."""
    kinds: dict[type, Callable[[], AnyValue]] = {
        bool: lambda: AnyValue(bool_value=bool(value)),
        int: lambda: AnyValue(int_value=int(value)),
        float: lambda: AnyValue(double_value=float(value)),
    }
    return KeyValue(key=key, value=kinds.get(type(value), lambda: AnyValue(string_value=str(value)))())


def annotate(span: Span, feedback: Iterable[Feedback], *, of_trace: bool = False) -> None:
    """Write scores onto a span; with `of_trace` they belong to the whole trace."""
    for number, score in enumerate(feedback):
        values = {"name": score.name, "score": score.score, "label": score.label, "explanation": score.explanation}
        prefix = f"{'trace.' if of_trace else ''}annotations.{number}.annotation."
        span.attributes.extend(
            attribute(prefix + key, value)
            for key, value in {**values, "annotator_kind": "HUMAN" if score.human else "CODE"}.items()
            if value is not None
        )
