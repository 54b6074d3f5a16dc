"""LlamaIndex' own OpenTelemetry package: span events with the fields of its instrumentation, names joined by dots."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import FieldRule, Read, SpanView, rules
from ragpulse_collector.conventions.texts import last_user_text, query_of_input, response_of_output
from ragpulse_collector.conventions.usage import usage_rules
from ragpulse_collector.conventions.values import always, parsed, text

_KINDS = {
    "Retrieval": "retriever", "ReRank": "reranker", "Embedding": "embedding", "LLMChat": "llm", "LLMCompletion": "llm",
    "Query": "chain", "Synthesize": "chain", "GetResponse": "chain", "LLMPredict": "chain", "StreamChat": "chain",
    "AgentChatWithStep": "agent", "AgentRunStep": "chain", "AgentToolCall": "tool",
}  # fmt: skip


def _at(path: str, read: Read) -> Read:
    """Make a reader of a field of the last of some events: a value, or an object that was taken apart."""

    def read_field(events: Any, span: SpanView) -> Any:
        found = field(events[-1].attributes, path)
        return None if found is None else read(found, span)

    return read_field


def field(attributes: Any, path: str) -> Any:
    """Return the value of a name, or the object of the names below it."""
    if path in attributes:
        return attributes[path]
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(path + "."):
            *parents, last = name[len(path) + 1 :].split(".", maxsplit=4)
            place = found
            for parent in parents:
                inner = place.setdefault(parent, {})
                place = inner if isinstance(inner, dict) else {}
            place[last] = parsed(value, otherwise=value) if type(value) is str and value[:1] in "[{" else value
    return found or None


def _ends(name: str) -> str:
    return f"event:{name}EndEvent"


def _starts(name: str) -> str:
    return f"event:{name}StartEvent"


RULES: tuple[FieldRule, ...] = rules(
    kind={name(event): always(kind) for event, kind in _KINDS.items() for name in (_ends, _starts)},
    query={
        _starts("Query"): _at("query", query_of_input),
        _starts("Retrieval"): _at("str_or_query_bundle", query_of_input),
        _starts("ReRank"): _at("query", query_of_input),
        _starts("Synthesize"): _at("query", query_of_input),
        _starts("GetResponse"): _at("query_str", query_of_input),
        _starts("AgentChatWithStep"): _at("user_msg", query_of_input),
        _starts("LLMChat"): _at("messages", last_user_text),
        _starts("LLMCompletion"): _at("prompt", query_of_input),
    },
    contexts={
        _ends("Retrieval"): _at("nodes", documents_of_retrieval),
        _ends("ReRank"): _at("nodes", documents_of_retrieval),
    },
    response={
        **{
            _ends(name): _at("response", response_of_output)
            for name in ("Query", "Synthesize", "AgentChatWithStep", "LLMChat", "LLMCompletion")
        },
        _ends("LLMPredict"): _at("output", response_of_output),
    },
    model={
        _ends("LLMChat"): _at("response.raw.model", text),
        _ends("LLMCompletion"): _at("response.raw.model", text),
        _starts("LLMChat"): _at("model_dict.model_name", text),
        _starts("LLMCompletion"): _at("model_dict.model_name", text),
        _starts("Embedding"): _at("model_dict.model_name", text),
    },
) + tuple(
    FieldRule(rule.field, rule.attribute, _at(path, rule.read))
    for name in ("LLMChat", "LLMCompletion")
    for path in ("response.raw.usage", "response.additional_kwargs")
    for rule in usage_rules(_ends(name))
)
