"""RAG traces of four spans (root, retriever with 3 to 7 documents, embedding, llm) as OTLP bodies, in three dialects.

A tenth of the traces are unusual: an exception event and status error, a link, dropped attributes or a trace state.
Texts are drawn from 8,000 words by Zipf's law: a small vocabulary would flatter compression.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

START_NS = 1_795_000_000_000_000_000
WORDS = 8_000
UNUSUAL = 0.1
Attributes = dict[str, Any]


def body(spans: int = 512, *, seed: int = 0, start_ns: int = START_NS, dialect: str = "own") -> bytes:
    """Return a protobuf request of `spans` spans (a multiple of four), texts and ids unique to the seed.

    `dialect` is one of DIALECTS, or `mixed`: one trace after another in each of them, a scope for each.
    """
    rng = random.Random(seed)
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _set(resource.resource.attributes, {"service.name": "helpdesk", "service.version": "1.4.2"})
    names = list(DIALECTS) if dialect == "mixed" else [dialect]
    scopes = {name: resource.scope_spans.add() for name in names}
    for name, scope in scopes.items():
        scope.scope.name = name
    for number in range(spans // 4):
        name = names[number % len(names)]
        _trace(scopes[name].spans, rng, start_ns + number * 1_000_000, DIALECTS[name])
    return request.SerializeToString()


def huge_trace(spans: int, *, seed: int, start_ns: int) -> bytes:
    """Return a protobuf request of one trace: nested model calls, all with usage and no response ids."""
    rng, request = random.Random(seed), ExportTraceServiceRequest()
    out, trace_id, parent = request.resource_spans.add().scope_spans.add().spans, rng.randbytes(16), b""
    for _ in range(spans):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1}
        parent = _span(out, trace_id, parent, "chat", start_ns, rng, attributes).span_id
    return request.SerializeToString()


class Turn:
    """The values of one trace, which each dialect writes in its own attributes."""

    def __init__(self, rng: random.Random) -> None:
        self.query, self.answer = text(rng, 80), text(rng, 800)
        self.documents: list[dict[str, Any]] = [
            {"id": f"doc-{rng.randrange(10**6)}", "score": rng.random(), "content": text(rng, 500)}
            for _ in range(rng.randrange(3, 8))
        ]
        self.session, self.user = f"s-{rng.randrange(10**4)}", f"u-{rng.randrange(10**4)}"
        self.response_id = f"r-{rng.getrandbits(64):x}"
        self.embedded, self.input = rng.randrange(1, 90), rng.randrange(600, 900)
        self.output, self.first_chunk_s = rng.randrange(90, 300), rng.random()


def _own(turn: Turn) -> list[Attributes]:
    """Our SDK: OpenTelemetry GenAI and OpenInference names side by side."""
    documents = json.dumps(turn.documents, separators=(",", ":"))
    return [
        {
            "ragpulse.span.kind": "rag", "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "answer",
            "openinference.span.kind": "CHAIN", "input.value": turn.query, "input.mime_type": "text/plain",
            "output.value": turn.answer, "output.mime_type": "text/plain", "session.id": turn.session,
            "user.id": turn.user, "gen_ai.prompt.name": "qa", "gen_ai.prompt.version": "v7",
        },
        {
            "ragpulse.span.kind": "retriever", "gen_ai.operation.name": "retrieval",
            "openinference.span.kind": "RETRIEVER", "gen_ai.retrieval.query.text": turn.query,
            "gen_ai.retrieval.top_k": 5, "input.value": turn.query, "gen_ai.retrieval.documents": documents,
        },
        {
            "ragpulse.span.kind": "embedding", "gen_ai.operation.name": "embeddings",
            "gen_ai.provider.name": "openai", "openinference.span.kind": "EMBEDDING",
            "gen_ai.request.model": "text-embedding-3-small", "gen_ai.usage.input_tokens": turn.embedded,
        },
        {
            "ragpulse.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
            "openinference.span.kind": "LLM", "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini", "gen_ai.response.id": turn.response_id,
            "gen_ai.usage.input_tokens": turn.input, "gen_ai.usage.output_tokens": turn.output,
            "gen_ai.usage.cache_read.input_tokens": 128,
            "gen_ai.response.time_to_first_chunk": turn.first_chunk_s, "input.value": turn.query,
            "output.value": turn.answer,
        },
    ]  # fmt: skip


def _openinference(turn: Turn) -> list[Attributes]:
    """Phoenix's instrumentors: flattened documents and messages."""
    documents = {
        f"retrieval.documents.{index}.document.{name}": value
        for index, document in enumerate(turn.documents)
        for name, value in document.items()
    }
    prompt = "\n".join(document["content"] for document in turn.documents)
    return [
        {
            "openinference.span.kind": "CHAIN", "input.value": turn.query, "input.mime_type": "text/plain",
            "output.value": turn.answer, "output.mime_type": "text/plain", "session.id": turn.session,
            "user.id": turn.user,
        },
        {"openinference.span.kind": "RETRIEVER", "input.value": turn.query, **documents},
        {
            "openinference.span.kind": "EMBEDDING", "embedding.model_name": "text-embedding-3-small",
            "embedding.embeddings.0.embedding.text": turn.query, "llm.token_count.prompt": turn.embedded,
        },
        {
            "openinference.span.kind": "LLM", "llm.model_name": "gpt-5-mini", "llm.provider": "openai",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": f"Answer from these documents.\n{prompt}",
            "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": turn.query,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": turn.answer,
            "llm.token_count.prompt": turn.input, "llm.token_count.completion": turn.output,
            "llm.token_count.prompt_details.cache_read": 128, "output.value": turn.answer,
        },
    ]  # fmt: skip


def _genai(turn: Turn) -> list[Attributes]:
    """OpenTelemetry GenAI: messages and documents as JSON text."""
    prompt = "\n".join(document["content"] for document in turn.documents)
    messages = [
        {"role": "system", "parts": [{"type": "text", "content": f"Answer from these documents.\n{prompt}"}]},
        {"role": "user", "parts": [{"type": "text", "content": turn.query}]},
    ]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": turn.answer}], "finish_reason": "stop"}]
    return [
        {
            "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "answer",
            "gen_ai.conversation.id": turn.session,
            "gen_ai.input.messages": json.dumps(messages[1:]), "gen_ai.output.messages": json.dumps(answer),
        },
        {
            "gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": turn.query,
            "gen_ai.retrieval.documents": json.dumps(turn.documents), "gen_ai.data_source.id": "kb",
        },
        {
            "gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "text-embedding-3-small", "gen_ai.usage.input_tokens": turn.embedded,
        },
        {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini", "gen_ai.response.id": turn.response_id,
            "gen_ai.usage.input_tokens": turn.input, "gen_ai.usage.output_tokens": turn.output,
            "gen_ai.input.messages": json.dumps(messages), "gen_ai.output.messages": json.dumps(answer),
        },
    ]  # fmt: skip


DIALECTS: dict[str, Callable[[Turn], list[Attributes]]] = {
    "own": _own,
    "openinference": _openinference,
    "genai": _genai,
}
_NAMES = ("answer", "retrieval kb", "embeddings small", "chat gpt-5-mini")


def _trace(spans: Any, rng: random.Random, start_ns: int, dialect: Callable[[Turn], list[Attributes]]) -> None:
    trace_id, root = rng.randbytes(16), b""
    unusual = rng.random() < UNUSUAL
    for name, attributes in zip(_NAMES, dialect(Turn(rng)), strict=True):
        span = _span(spans, trace_id, root, name, start_ns, rng, attributes)
        root = root or span.span_id
        if unusual:
            _make_unusual(span, rng)


def _span(
    spans: Any, trace_id: bytes, parent: bytes, name: str, start_ns: int, rng: random.Random, attributes: Attributes
) -> Any:
    span = spans.add(
        trace_id=trace_id,
        span_id=rng.randbytes(8),
        parent_span_id=parent,
        name=name,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + rng.randrange(10**6, 10**9),
    )
    _set(span.attributes, attributes)
    return span


def _make_unusual(span: Any, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        event = span.events.add(name="exception", time_unix_nano=span.end_time_unix_nano)
        _set(event.attributes, {"exception.type": "TimeoutError", "exception.message": text(rng, 60)})
        span.status.code, span.status.message = 2, "timed out"
    elif kind == 1:
        span.links.add(trace_id=rng.randbytes(16), span_id=rng.randbytes(8))
    elif kind == 2:
        span.dropped_attributes_count = 1
    else:
        span.trace_state = "ot=th:8"


def _set(pairs: Any, attributes: Attributes) -> None:
    for key, value in attributes.items():
        pair = pairs.add(key=key)
        member = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(pair.value, member, value)


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return words and their cumulative weights."""
    rng = random.Random(8_000)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "on")]
    words = list(dict.fromkeys("".join(rng.choices(syllables, k=rng.randrange(1, 5))) for _ in range(4 * WORDS)))[
        :WORDS
    ]
    total, weights = 0.0, []
    for rank in range(1, len(words) + 1):
        total += 1 / rank
        weights.append(total)
    return words, weights


def text(rng: random.Random, length: int) -> str:
    """Return a text of so many characters."""
    words, weights = _vocabulary()
    result = ""
    while len(result) < length:
        result += " ".join(rng.choices(words, cum_weights=weights, k=length // 5)) + ". "
    return result[:length]
