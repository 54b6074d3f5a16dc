"""Vendors with attributes of their own: Google ADK before schema 2, Mastra, Spring AI, Genkit, Claude Code, logfire."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.dialects.mlflow import model_after_slash, provider_before_slash
from ragpulse_collector.conventions.documents import documents_in_output, documents_of_retrieval, documents_result
from ragpulse_collector.conventions.rules import Read, Result, SpanView, rules
from ragpulse_collector.conventions.texts import last_user_text, query_in, query_of_input, response_of_output
from ragpulse_collector.conventions.usage import usage_rules
from ragpulse_collector.conventions.values import (
    always,
    amount,
    count,
    first_reason,
    gathered,
    member,
    of_kinds,
    one_of,
    parsed,
    small_count,
    strings,
    text,
    unquoted,
)

_CALLS = ("llm", "embedding", "reranker")
_ADK = "gcp.vertex.agent."
_CLAUDE = {"interaction": "agent", "llm_request": "llm", "tool": "tool"}
_GENKIT = {
    "model": "llm", "background-model": "llm", "embedder": "embedding", "indexer": "embedding",
    "retriever": "retriever", "reranker": "reranker", "tool": "tool", "flow": "chain", "prompt": "chain",
    "executable-prompt": "chain", "agent": "agent", "evaluator": "evaluator",
}  # fmt: skip
_MASTRA = {
    "agent_run": "agent", "workflow_run": "chain", "workflow_step": "chain", "model_generation": "chain",
    "llm_generation": "llm", "model_inference": "llm", "model_step": "chain", "tool_call": "tool",
    "mcp_tool_call": "tool", "rag_embedding": "embedding", "rag_ingestion": "embedding",
    "rag_vector_operation": "retriever", "scorer_run": "evaluator", "scorer_step": "evaluator",
    "classifier_evaluation": "evaluator",
}  # fmt: skip
_SPRING = {"chat_client": "chain", "advisor": "chain", "tool_call": "tool"}
_ANSWERED = frozenset({names.INPUT_TOKENS, names.OUTPUT_MESSAGES, "response_data"})
"""What logfire's span of a whole reply has, one of them at least."""
_SPRING_DOCUMENTS = "db.vector.query.response.documents"


def _mastra(side: str, read: Read) -> Read:
    """Make a reader of the input or output of a span of Mastra, whose type is in the name: `agent_run.input`."""

    def read_side(members: Any, span: SpanView) -> Any:
        name = f"{str(members.get('span.type')).lower()}.{side}"
        result = read(members[name], span) if name in members else None
        if isinstance(result, Result):
            result.templates = {f"{name}{suffix}": template for suffix, template in result.templates.items()}
        return result

    return read_side


def _stream_request(_: Any, span: SpanView) -> str | None:
    """Return `chain` for the request of a stream: logfire has the answer with its usage on a second span beside it."""
    return None if span.failed or not _ANSWERED.isdisjoint(span.attributes) else "chain"


def spring_texts(value: Any) -> list[str] | None:
    """Return the texts of a list as Spring AI writes it: each in quotation marks, nothing escaped."""
    content = parsed(value)
    if isinstance(content, list):
        return content if content and all(type(item) is str for item in content) else None
    if type(value) is str and value.startswith('["') and value.endswith('"]'):
        return value[2:-2].split('", "')
    return None


def _spring_documents(value: Any, _: SpanView) -> Result | None:
    texts = spring_texts(value)
    return documents_result(value, texts) if texts else None


_RULES = rules(
    kind={
        "request_data": _stream_request,
        "genkit:metadata:subtype": one_of(_GENKIT),
        "genkit:type": always("chain"),
        "spring.ai.kind": one_of(_SPRING),
        _SPRING_DOCUMENTS: always("retriever"),
        "db.vector.query.content": always("retriever"),
    },
    query={
        "genkit:input": query_of_input,
        "db.vector.query.content": text,
        "spring.ai.chat.client.input": query_of_input,
        "spring.ai.chat.client.user.text": text,
        "spring.ai.model.request.messages": last_user_text,
        "spring.ai.tool.call.arguments": query_of_input,
        "mastra.": _mastra("input", query_of_input),
        _ADK + "llm_request": query_in,
        _ADK + "tool_call_args": query_of_input,
    },
    contexts={
        "genkit:output": documents_of_retrieval,
        _SPRING_DOCUMENTS: _spring_documents,
        "spring.ai.tool.call.result": documents_in_output,
        "mastra.": _mastra("output", documents_in_output),
        _ADK + "tool_response": documents_in_output,
    },
    response={
        "genkit:output": response_of_output,
        "spring.ai.chat.client.output": response_of_output,
        "spring.ai.model.response.messages": response_of_output,
        "spring.ai.tool.call.result": response_of_output,
        "mastra.": _mastra("output", response_of_output),
        _ADK + "llm_response": of_kinds(("llm",), response_of_output),
        _ADK + "tool_response": response_of_output,
    },
    model={"genkit:name": of_kinds(_CALLS, model_after_slash)},
    provider={"genkit:name": of_kinds(_CALLS, provider_before_slash)},
    finish_reason={"genkit:output": member("finishReason", first_reason)},
    top_k={"db.vector.query.top_k": small_count},
    session_id={
        _ADK + "session_id": text,
        "genkit:sessionId": unquoted,
        "spring.ai.chat.client.conversation.id": unquoted,
        "mastra.metadata.threadId": unquoted,
        "mastra.metadata.sessionId": unquoted,
    },
    index_version={"mastra.metadata.indexVersion": unquoted},
    user_id={
        "mastra.metadata.resourceId": unquoted,
        "mastra.metadata.userId": unquoted,
    },
    tags={"mastra.tags": strings},
    metadata={"mastra.metadata.": gathered},
)
RULES = (
    *_RULES,
    *usage_rules("genkit:output", name="usage"),
    *usage_rules(_ADK + "llm_response", name="usage_metadata"),
    *rules(
        "span.type",  # of Claude Code; other senders have other values
        kind={"span.type": one_of(_CLAUDE)},
        query={"user_prompt": text},
        response={"response.model_output": text},
        model={"model": text},
        input_tokens={"input_tokens": count},
        output_tokens={"output_tokens": count},
        cached_tokens={"cache_read_tokens": count},
        cache_write_tokens={"cache_creation_tokens": count},
        apart_tokens={"cache_read_tokens": lambda *_: True, "cache_creation_tokens": lambda *_: True},
        finish_reason={"stop_reason": text},
        ttft_ms={"ttft_ms": amount},
    ),
    *rules(
        "mastra.span.type",  # before its version 1
        query={"input": query_of_input},
        contexts={"output": documents_in_output},
        response={"output": response_of_output},
    ),
)
LAST = rules(kind={"mastra.span.type": one_of(_MASTRA)})
