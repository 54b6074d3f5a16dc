"""LlamaIndex' own OpenTelemetry package: span events with the fields of its instrumentation, names joined by dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import Read, SpanView, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_output
from ragpulse_collector.conventions.usage import figures_below, usage_rules
from ragpulse_collector.conventions.values import always, text

_KINDS = {
    "Retrieval": "retriever", "ReRank": "reranker", "Embedding": "embedding", "LLMChat": "llm", "LLMCompletion": "llm",
    "Query": "chain", "Synthesize": "chain", "GetResponse": "chain", "LLMPredict": "chain", "StreamChat": "chain",
    "AgentChatWithStep": "agent", "AgentRunStep": "chain",
}  # fmt: skip
_QUESTIONS = {
    "Query": "query", "Retrieval": "str_or_query_bundle", "ReRank": "query", "Synthesize": "query",
    "GetResponse": "query_str", "AgentChatWithStep": "user_msg", "LLMChat": "messages", "LLMCompletion": "prompt",
}  # fmt: skip
_ANSWERS = ("response", "response.response", "response.message.blocks", "response.message.content", "response.text")


def _at(read: Read, *names: str) -> Read:
    """Make a reader of the last of some events: the first of these fields that it has."""

    def read_field(events: Any, span: SpanView) -> Any:
        attributes = events[-1].attributes
        name = next((name for name in names if attributes.get(name) not in (None, "null")), None)
        return None if name is None else read(attributes[name], span)

    return read_field


def _usage(events: Any, _: SpanView) -> Mapping[str, Any]:
    return figures_below(events[-1].attributes, "response.raw.usage.", "response.additional_kwargs.")


RULES = (
    *rules(
        kind={f"event:{name}StartEvent": always(kind) for name, kind in _KINDS.items()},
        query={
            f"event:{name}StartEvent": _at(query_of_input, field, f"{field}.query_str")
            for name, field in _QUESTIONS.items()
        },
        contexts={f"event:{name}EndEvent": _at(documents_of_retrieval, "nodes") for name in ("Retrieval", "ReRank")},
        response={
            f"event:{name}EndEvent": _at(response_of_output, *_ANSWERS, "output")
            for name in ("Query", "Synthesize", "AgentChatWithStep", "LLMChat", "LLMCompletion", "LLMPredict")
        },
        model={
            f"event:{name}{end}Event": _at(text, "response.raw.model", "model_dict.model_name")
            for end in ("End", "Start")
            for name in ("LLMChat", "LLMCompletion", "Embedding")
        },
    ),
    *usage_rules("event:LLMChatEndEvent", _usage),
    *usage_rules("event:LLMCompletionEndEvent", _usage),
)
