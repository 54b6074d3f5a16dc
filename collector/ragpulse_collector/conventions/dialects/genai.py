"""OpenTelemetry GenAI, current names first, then the deprecated ones that still arrive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.dialects.vendors import spring_texts
from ragpulse_collector.conventions.documents import documents, documents_in_output
from ragpulse_collector.conventions.rules import BareSpan, Read, Result, SpanView, rules
from ragpulse_collector.conventions.texts import (
    first_message_text,
    last_user_text,
    or_text,
    query_in,
    query_of_input,
    response_in,
    response_of_completion,
    response_of_output,
)
from ragpulse_collector.conventions.values import (
    SEARCHES,
    count,
    first_reason,
    of_event,
    of_kinds,
    one_of,
    parsed,
    positive,
    seconds,
    small_count,
    text,
    true,
    unquoted,
)

OPERATIONS = {
    "chat": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "completion": "llm",
    "llm_request": "llm",
    "embeddings": "embedding",
    "embedding": "embedding",
    "retrieval": "retriever",
    "retriever": "retriever",
    "vector_db_retrieve": "retriever",
    "search_memory": "retriever",
    "create_memory": "tool",
    "update_memory": "tool",
    "upsert_memory": "tool",
    "delete_memory": "tool",
    "create_memory_store": "tool",
    "update_memory_store": "tool",
    "delete_memory_store": "tool",
    "realtime": "llm",
    "rerank": "reranker",
    "reranker": "reranker",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "other",
    "plan": "agent",
    "invoke_workflow": "chain",
    "handle_conversation_turn": "chain",
    "agent_step": "chain",
    "execute_event_loop_cycle": "chain",
    "execute_task": "chain",
    "chain": "chain",
    "evaluate": "evaluator",
    "evaluation": "evaluator",
    "fetch_response": "other",
}
"""`gen_ai.operation.name` → kind. `fetch_response` reads a stored answer, which was paid before."""

_FRAMEWORKS = (
    "langchain", "llamaindex", "llama_index", "haystack", "strands-agents", "gcp.vertex.agent", "spring_ai",
)  # fmt: skip
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_INDEXED = re.compile(r"([0-9]{1,6})\.(role|content)")


def _provider(value: Any, span: SpanView) -> str | None:
    """Return the provider; some frameworks write their own name, which is in no price list."""
    return None if value in _FRAMEWORKS else text(value, span)


def _streaming_only(value: Any, span: SpanView) -> float | None:
    """Return the time to first token of streams: OpenLIT also states it for plain calls, as the whole latency."""
    flags = (span.attributes.get(name) for name in (names.REQUEST_STREAM, "gen_ai.is_streaming", "llm.is_streaming"))
    return seconds(value, span) if any(true(flag) for flag in flags) else None


def _reason_in_messages(value: Any, span: SpanView) -> str | None:
    """Return the reason that the first message states."""
    messages = parsed(value) if "finish_reason" in str(value) else None
    first = messages[0] if type(messages) is list and messages else None
    return first_reason(first.get("finish_reason"), span) if type(first) is dict else None


def _elsewhere(value: Any, span: SpanView) -> str | None:
    return "stored_elsewhere" if text(value, span) else None


def _prompt(value: Any, span: SpanView) -> Any:
    """Read a prompt; Spring AI has a list of the texts of all messages, of which the last is the user's."""
    texts = spring_texts(value)
    return texts[-1] or None if texts else or_text(query_in, field="query")(value, span)


def _completion(value: Any, span: SpanView) -> Any:
    """Return the text of a model, of Spring AI's list the first; LangSmith writes any output under this name."""
    if "langsmith.span.kind" in span.attributes:
        return None
    texts = spring_texts(value) if spring_texts(span.attributes.get("gen_ai.prompt")) else None
    return texts[0] or None if texts else response_of_completion(value, span)


def _indexed(members: Any) -> list[tuple[int, str, Any]]:
    """Return (index, role, content) of `N.role` / `N.content` names that hold a text."""
    matches = ((_INDEXED.fullmatch(suffix), value) for suffix, value in members.items())
    rows = [(int(match[1]), value) for match, value in matches if match and match[2] == "content" and value]
    return sorted((index, str(members.get(f"{index}.role")), value) for index, value in rows if type(value) is str)


def _indexed_query(members: Any, _: SpanView) -> Result | None:
    messages = [(index, value) for index, role, value in _indexed(members) if role == "user"]
    return _whole("query", *messages[-1]) if messages else None


def _indexed_response(members: Any, _: SpanView) -> Result | None:
    rows = _indexed(members)
    if rows:
        return _whole("response", rows[0][0], rows[0][2])
    return Result(None, reason=shapes.TOOL_CALLS) if any(".tool_calls." in suffix for suffix in members) else None


def _whole(field: str, index: int, value: str) -> Result:
    return Result(value, {f"{index}.content": {"$lifted": field}})


def _event_query(events: Any, span: SpanView) -> str | None:
    """Read pre-1.37 message events: the last user message."""
    return _event_text(events[-1], "content", "gen_ai.event.content", "gen_ai.prompt")


def _event_response(events: Any, span: SpanView) -> str | None:
    """Read pre-1.37 choice events: the first choice."""
    return _event_text(events[0], "message", "content", "gen_ai.event.content", "gen_ai.completion")


def _event_text(event: Any, *keys: str) -> str | None:
    value = next((event.attributes[key] for key in keys if event.attributes.get(key)), None)
    reader = query_in if "prompt" in event.name or "user" in event.name else response_in
    result = or_text(reader, field="query")(value, BareSpan())
    return result.value if isinstance(result, Result) else None


def _of_details(name: str, read: Read, order: Callable[[Any], Iterable[Any]]) -> Read:
    """Make a reader of the details events of Strands: one has the input, one the output."""

    def read_details(events: Any, span: SpanView) -> Any:
        values = (event.attributes.get(name) for event in order(events))
        return next((result for value in values if (result := read(value, span))), None)

    return read_details


RULES = rules(
    kind={names.OPERATION_NAME: one_of(OPERATIONS)},
    query={
        names.RETRIEVAL_QUERY: text,
        names.INPUT_MESSAGES: or_text(last_user_text, field="query"),
    },
    contexts={names.RETRIEVAL_DOCUMENTS: documents},
    response={names.OUTPUT_MESSAGES: or_text(first_message_text, field="response")},
    model={names.REQUEST_MODEL: text},
    provider={
        names.PROVIDER_NAME: _provider,
        "gen_ai.system": _provider,
    },
    finish_reason={names.FINISH_REASONS: first_reason},
    agent={names.AGENT_NAME: text},
    data_source={names.DATA_SOURCE_ID: unquoted},
    index_version={names.INDEX_VERSION: unquoted},
    top_k={names.RETRIEVAL_TOP_K: small_count},
    response_id={names.RESPONSE_ID: text},
    input_tokens={names.INPUT_TOKENS: count},
    output_tokens={names.OUTPUT_TOKENS: count},
    cached_tokens={names.CACHE_READ_TOKENS: count},
    cache_write_tokens={names.CACHE_WRITE_TOKENS: count},
    reasoning_tokens={names.REASONING_TOKENS: count},
    tool_tokens={names.TOOL_TOKENS: positive},
    ttft_ms={names.TIME_TO_FIRST_CHUNK: seconds},
    prompt_name={names.PROMPT_NAME: text},
    prompt_version={names.PROMPT_VERSION: text},
    error_type={names.ERROR_TYPE: text},
)
LAST = rules(
    finish_reason={
        "gen_ai.response.finish_reason": first_reason,
        "gen_ai.completion.0.finish_reason": first_reason,
        names.OUTPUT_MESSAGES: _reason_in_messages,
        "event:gen_ai.choice": of_event(0, "finish_reason", first_reason),
    },
    agent={
        names.WORKFLOW_NAME: text,
        "gen_ai.agent.id": text,
    },
    top_k={"gen_ai.request.top_k": of_kinds(SEARCHES, small_count)},  # of model calls a parameter of sampling
    response_missing_reason={"gen_ai.output.messages_ref": _elsewhere},
    model={names.RESPONSE_MODEL: text},
    ttft_ms={"gen_ai.server.time_to_first_token": _streaming_only},
    session_id={names.CONVERSATION_ID: text},
    query={
        "gen_ai.prompt.N.": _indexed_query,
        "gen_ai.prompt": _prompt,
        "event:gen_ai.user.message": _event_query,
        "event:gen_ai.content.prompt": _event_query,
        f"event:{DETAILS_EVENT}": _of_details(names.INPUT_MESSAGES, last_user_text, iter),
        "gen_ai.tool.call.arguments": query_of_input,
    },
    response={
        "gen_ai.completion.N.": _indexed_response,
        "gen_ai.completion": _completion,
        "event:gen_ai.choice": _event_response,
        "event:gen_ai.content.completion": _event_response,
        f"event:{DETAILS_EVENT}": _of_details(names.OUTPUT_MESSAGES, first_message_text, reversed),
        "gen_ai.tool.call.result": response_of_output,
    },
    contexts={"gen_ai.tool.call.result": documents_in_output},
)
