"""Frameworks with a vocabulary of their own: Vercel's AI SDK (`ai.*`), LangSmith, Haystack's tracer, Laminar."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_in_output, documents_of_retrieval, search_kind
from ragpulse_collector.conventions.rules import Read, SpanView, rules
from ragpulse_collector.conventions.texts import (
    last_user_text,
    query_of_input,
    response_of_output,
)
from ragpulse_collector.conventions.usage import usage_rules
from ragpulse_collector.conventions.values import (
    KINDS,
    always,
    amount,
    count,
    first_reason,
    gathered,
    of_kinds,
    one_of,
    parsed,
    reach,
    strings,
    text,
    unquoted,
)

_AI_OPERATIONS = {
    "ai.generatetext": "chain",
    "ai.streamtext": "chain",
    "ai.generateobject": "chain",
    "ai.streamobject": "chain",
    "ai.embed": "chain",
    "ai.embedmany": "chain",
    "ai.rerank": "chain",
    "ai.generatetext.dogenerate": "llm",
    "ai.streamtext.dostream": "llm",
    "ai.generateobject.dogenerate": "llm",
    "ai.streamobject.dostream": "llm",
    "ai.embed.doembed": "embedding",
    "ai.embedmany.doembed": "embedding",
    "ai.rerank.dorerank": "reranker",
    "ai.toolcall": "tool",
}
"""Vercel's `ai.operationId` in lower case → kind. Names with `do` are calls of a provider."""
_COMPONENTS = {
    "retrievers": "retriever",
    "rankers": "reranker",
    "embedders": "embedding",
    "generators": "llm",
    "tools": "tool",
    "agents": "agent",
    "evaluators": "evaluator",
}
"""Haystack's packages → kind."""
_METADATA = "ai.telemetry.metadata."


def _ai_provider(value: Any, span: SpanView) -> str | None:
    """Return the provider without its interface: `openai.chat` is openai."""
    name = text(value, span)
    return name.partition(".")[0] if name else None


def _component(value: Any, _: SpanView) -> str:
    """Return the kind of a Haystack component by the package of its class."""
    parts = str(value).split(".")
    return next((_COMPONENTS[part] for part in parts if part in _COMPONENTS), "chain")


def _reply(name: str, read: Read) -> Read:
    """Make a reader of the metadata in the first reply of a Haystack generator."""

    def read_reply(value: Any, span: SpanView) -> Any:
        output = parsed(value) if span.kind == "llm" else None
        first = (reach(output, ["replies"]) or [None])[0]
        meta = reach(first, ["meta"]) if isinstance(first, dict) else (reach(output, ["meta"]) or [None])[0]
        part = reach(meta, name.split("."))
        return None if part is None else read(part, span)

    return read_reply


_HAYSTACK_OUTPUT = "haystack.component.output"
_RULES = rules(
    kind={
        "ai.operationId": one_of(_AI_OPERATIONS),
        "langsmith.span.kind": one_of(KINDS | {"prompt": "other", "parser": "other"}),
        "haystack.component.fully_qualified_type": _component,
        "haystack.pipeline.input_data": always("chain"),
        "lmnr.span.output": search_kind("lmnr.span.type", "DEFAULT"),
        "lmnr.span.type": one_of(KINDS | {"human_evaluator": "evaluator"}),
    },
    query={
        "ai.prompt": query_of_input,
        "ai.prompt.messages": last_user_text,
        "ai.value": query_of_input,
        "ai.toolCall.args": query_of_input,
        "haystack.component.input": query_of_input,
        "haystack.pipeline.input_data": query_of_input,
        "lmnr.span.input": query_of_input,
    },
    contexts={
        "ai.toolCall.result": documents_in_output,
        _HAYSTACK_OUTPUT: documents_of_retrieval,
        "lmnr.span.output": (documents_of_retrieval, documents_in_output),
    },
    response={
        "ai.response.text": text,
        "ai.response.object": text,
        "ai.toolCall.result": response_of_output,
        _HAYSTACK_OUTPUT: response_of_output,
        "haystack.pipeline.output_data": response_of_output,
        "lmnr.span.output": response_of_output,
    },
    model={
        "ai.model.id": text,
        _HAYSTACK_OUTPUT: _reply("model", text),
    },
    provider={"ai.model.provider": _ai_provider},
    input_tokens={
        "ai.usage.tokens": of_kinds(("embedding",), count),
        _HAYSTACK_OUTPUT: _reply("usage.prompt_tokens", count),
    },
    finish_reason={
        "ai.response.finishReason": first_reason,
        _HAYSTACK_OUTPUT: _reply("finish_reason", first_reason),
    },
    ttft_ms={"ai.response.msToFirstChunk": amount},
    session_id={
        _METADATA + "sessionId": unquoted,
        "langsmith.metadata.session_id": unquoted,
        "langsmith.metadata.thread_id": unquoted,
        "lmnr.association.properties.session_id": unquoted,
    },
    index_version={
        _METADATA + "indexVersion": unquoted,
        "langsmith.metadata.index_version": unquoted,
    },
    user_id={
        _METADATA + "userId": unquoted,
        "langsmith.metadata.user_id": unquoted,
        "lmnr.association.properties.user_id": unquoted,
    },
    tags={
        _METADATA + "tags": strings,
        "langsmith.span.tags": strings,
        "lmnr.association.properties.tags": strings,
    },
    metadata={
        _METADATA: gathered,
        "langsmith.metadata.": gathered,
    },
    output_tokens={_HAYSTACK_OUTPUT: _reply("usage.completion_tokens", count)},
)
RULES = (
    *_RULES,
    *usage_rules("langsmith.metadata.usage_metadata"),
    *rules(
        "langsmith.span.kind",  # which has inputs and outputs under old GenAI names
        query={"gen_ai.prompt": query_of_input},
        contexts={"gen_ai.completion": documents_of_retrieval},
        response={"gen_ai.completion": response_of_output},
    ),
)
