"""RAG traces of four spans (root, retriever with 5 documents of 500 characters, embedding, llm) as OTLP bodies."""

from __future__ import annotations

import json
import random
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WORDS = (
    "window refund invoice delivery account password reset policy order status",
    "warranty return shipping address customer support ticket billing payment card",
    "transfer network cable device update version manual battery release calendar",
)
START_NS = 1_795_000_000_000_000_000


def body(spans: int = 512, *, seed: int = 0, start_ns: int = START_NS) -> bytes:
    """Return a protobuf request of `spans` spans (a multiple of four), texts and ids unique to the seed."""
    rng = random.Random(seed)
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _set(resource.resource.attributes, {"service.name": "helpdesk", "service.version": "1.4.2"})
    scope = resource.scope_spans.add()
    scope.scope.name = "ragpulse"
    for number in range(spans // 4):
        _trace(scope.spans, rng, start_ns + number * 1_000_000)
    return request.SerializeToString()


def huge_trace(spans: int, *, seed: int, start_ns: int) -> bytes:
    """Return a protobuf request of one trace: model calls inside one another, all with usage and no response ids."""
    rng, request = random.Random(seed), ExportTraceServiceRequest()
    made, trace_id, parent = request.resource_spans.add().scope_spans.add().spans, rng.randbytes(16), b""
    for _ in range(spans):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1}
        parent = _span(made, trace_id, parent, "chat", start_ns, rng, attributes)
    return request.SerializeToString()


def _trace(spans: Any, rng: random.Random, start_ns: int) -> None:
    trace_id = rng.randbytes(16)
    query, answer = _text(rng, 80), _text(rng, 800)
    documents = [
        {"id": f"doc-{rng.randrange(10**6)}", "score": rng.random(), "content": _text(rng, 500)} for _ in range(5)
    ]
    root = _span(spans, trace_id, b"", "invoke_workflow answer", start_ns, rng, {
        "ragpulse.span.kind": "rag", "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "answer",
        "openinference.span.kind": "CHAIN", "input.value": query, "input.mime_type": "text/plain",
        "output.value": answer, "output.mime_type": "text/plain", "session.id": f"s-{rng.randrange(10**4)}",
        "user.id": f"u-{rng.randrange(10**4)}", "gen_ai.prompt.name": "qa", "gen_ai.prompt.version": "v7",
    })  # fmt: skip
    _span(spans, trace_id, root, "retrieval kb", start_ns, rng, {
        "ragpulse.span.kind": "retriever", "gen_ai.operation.name": "retrieval", "openinference.span.kind": "RETRIEVER",
        "gen_ai.retrieval.query.text": query, "gen_ai.retrieval.top_k": 5, "input.value": query,
        "gen_ai.retrieval.documents": json.dumps(documents, separators=(",", ":")),
    })  # fmt: skip
    _span(spans, trace_id, root, "embeddings small", start_ns, rng, {
        "ragpulse.span.kind": "embedding", "gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "openai",
        "openinference.span.kind": "EMBEDDING", "gen_ai.request.model": "text-embedding-3-small",
        "gen_ai.usage.input_tokens": rng.randrange(1, 90),
    })  # fmt: skip
    _span(spans, trace_id, root, "chat gpt-5-mini", start_ns, rng, {
        "ragpulse.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "openinference.span.kind": "LLM", "gen_ai.request.model": "gpt-5-mini", "gen_ai.response.model": "gpt-5-mini",
        "gen_ai.response.id": f"r-{rng.getrandbits(64):x}", "gen_ai.usage.input_tokens": rng.randrange(600, 900),
        "gen_ai.usage.output_tokens": rng.randrange(90, 300), "gen_ai.usage.cache_read.input_tokens": 128,
        "gen_ai.response.time_to_first_chunk": rng.random(), "input.value": query, "output.value": answer,
    })  # fmt: skip


def _span(
    spans: Any, trace_id: bytes, parent: bytes, name: str, at: int, rng: random.Random, attributes: dict[str, Any]
) -> bytes:
    span = spans.add(
        trace_id=trace_id,
        span_id=rng.randbytes(8),
        parent_span_id=parent,
        name=name,
        start_time_unix_nano=at,
        end_time_unix_nano=at + rng.randrange(10**6, 10**9),
    )
    _set(span.attributes, attributes)
    return bytes(span.span_id)


def _set(pairs: Any, attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        pair = pairs.add(key=key)
        member = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(pair.value, member, value)


def _text(rng: random.Random, length: int) -> str:
    vocabulary = " ".join(WORDS).split()
    words: list[str] = []
    size = 0
    while size < length:
        words.append(rng.choice(vocabulary))
        size += len(words[-1]) + 1
    return " ".join(words)[:length]
