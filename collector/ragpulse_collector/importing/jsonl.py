"""JSON lines, one answered question each: `query`, `response`, `contexts`, `start_time`, and what else is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from ragpulse_collector.importing import Feedback, Page, annotate, attribute
from ragpulse_collector.instants import unix_ns

PAGE = 200
ATTRIBUTES = {
    "query": "input.value", "response": "output.value", "session_id": "session.id", "user_id": "user.id",
    "model": "gen_ai.request.model", "prompt_version": "gen_ai.prompt.version",
    "input_tokens": "gen_ai.usage.input_tokens", "output_tokens": "gen_ai.usage.output_tokens",
}  # fmt: skip


class ImportedScore(BaseModel):
    """A score of an answer."""

    model_config = ConfigDict(extra="forbid")
    name: str
    score: float | None = None
    label: str | None = None
    comment: str | None = None
    human: bool = True


class AnsweredQuestion(BaseModel):
    """One line. Without `trace_id` the id is a hash of the line, so the same line is stored once."""

    model_config = ConfigDict(extra="forbid")
    start_time: AwareDatetime
    query: str
    response: str | None = None
    contexts: list[str | dict[str, Any]] = []
    trace_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    service: str = "imported"
    latency_ms: Annotated[float, Field(ge=0)] = 0
    session_id: str | None = None
    user_id: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    scores: list[ImportedScore] = []


def pages(path: Path, since: datetime) -> Iterator[Page]:
    """Yield the answers of a file since then, in groups of one service; raises ValueError that names the line."""
    service, spans = "", list[Span]()
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            answer = _parsed_line(path, number, line)
            if answer.start_time < since:
                continue
            if spans and (answer.service != service or len(spans) >= PAGE):
                yield Page(service, spans)
                spans = []
            service = answer.service
            spans.append(_span(answer, hashlib.sha256(line.strip().encode()).digest()))
    if spans:
        yield Page(service, spans)


def _parsed_line(path: Path, number: int, line: str) -> AnsweredQuestion:
    try:
        return AnsweredQuestion.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path}:{number}: {f'{field}: ' if field else ''}{first['msg']}") from error


def _span(answer: AnsweredQuestion, digest: bytes) -> Span:
    start = unix_ns(answer.start_time)
    trace_id = bytes.fromhex(answer.trace_id) if answer.trace_id else digest[:16]
    span = Span(
        trace_id=trace_id,
        span_id=hashlib.sha256(trace_id).digest()[:8],
        name="answer",
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(timedelta(milliseconds=answer.latency_ms) / timedelta(microseconds=1)) * 1000,
    )
    values = {key: getattr(answer, name) for name, key in ATTRIBUTES.items()}
    contexts = [{"content": item} if isinstance(item, str) else item for item in answer.contexts]
    documents = {"gen_ai.retrieval.documents": json.dumps(contexts)} if contexts else {}
    for key, value in {"ragpulse.span.kind": "rag", **values, **documents}.items():
        if value is not None:
            span.attributes.append(attribute(key, value))
    annotate(span, (Feedback(item.name, item.score, item.label, item.comment, item.human) for item in answer.scores))
    return span
