"""Langfuse: `langfuse.observation.*` and `langfuse.trace.*`, values as JSON text."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import SpanView, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_output
from ragpulse_collector.conventions.values import (
    KINDS,
    amount,
    count,
    gathered,
    instant_ns,
    members,
    of_kinds,
    one_of,
    parsed,
    positive,
    since_start,
    strings,
    text,
    unquoted,
)

_OBSERVATION = "langfuse.observation."
_USAGE = _OBSERVATION + "usage_details"


def _cost(value: Any, span: SpanView) -> float | None:
    """Return the stated total, else the sum of the parts."""
    details = parsed(value)
    if not isinstance(details, dict) or not details:
        return None
    if "total" in details:
        return amount(details["total"], span)
    parts = [amount(part, span) for part in details.values()]
    return None if None in parts else sum(filter(None, parts))


def _apart(value: Any, span: SpanView) -> bool | None:
    """Whether cached tokens are counted apart, as in Anthropic's own usage: it has no total, and no other names."""
    details = parsed(value)
    keys = set(details) if isinstance(details, dict) else set()
    is_anthropics = keys & {"cache_read_input_tokens", "cache_creation_input_tokens"}
    return True if is_anthropics and not keys & {"total", "total_tokens", "prompt_tokens"} else None


def _first_token(value: Any, span: SpanView) -> float | None:
    moment = instant_ns(unquoted(value, span))
    return None if moment is None else since_start(moment, span)


def _error(value: Any, _: SpanView) -> str | None:
    return "error" if value == "ERROR" else None


_WHOLE = (None, "chain", "agent", "other")
"""The kinds of spans that may stand for the trace: at them is read what is stated about it."""
RULES = rules(
    kind={_OBSERVATION + "type": one_of(KINDS | {"span": "other", "event": "other", "generation": "llm"})},
    query={
        _OBSERVATION + "input": query_of_input,
        "langfuse.trace.input": of_kinds(_WHOLE, query_of_input),
    },
    contexts={_OBSERVATION + "output": documents_of_retrieval},
    response={
        _OBSERVATION + "output": response_of_output,
        "langfuse.trace.output": of_kinds(_WHOLE, response_of_output),
    },
    model={_OBSERVATION + "model.name": text},
    input_tokens={_USAGE: members(("input", "prompt_tokens", "input_tokens"), count)},
    output_tokens={_USAGE: members(("output", "completion_tokens", "output_tokens"), count)},
    cached_tokens={
        _USAGE: members(
            (
                "input_cached_tokens",
                "input_cache_read",
                "cache_read_input_tokens",
                "prompt_tokens_details.cached_tokens",
                "input_tokens_details.cached_tokens",
                "input_token_details.cache_read",
            ),
            count,
        ),
    },
    cache_write_tokens={_USAGE: members(("cache_creation_input_tokens", "input_cache_creation"), count)},
    reasoning_tokens={
        _USAGE: members(
            (
                "output_reasoning_tokens",
                "output_reasoning",
                "completion_tokens_details.reasoning_tokens",
                "output_tokens_details.reasoning_tokens",
                "output_token_details.reasoning",
            ),
            count,
        ),
    },
    total_tokens={_USAGE: members(("total", "total_tokens"), count)},
    apart_tokens={_USAGE: _apart},
    audio_tokens={
        _USAGE: members(
            (
                "input_audio_tokens",
                "output_audio_tokens",
                "input_audio",
                "output_audio",
                "prompt_tokens_details.audio_tokens",
                "completion_tokens_details.audio_tokens",
            ),
            positive,
        ),
    },
    tool_tokens={
        _USAGE: members(("tool_use_prompt_token_count", "input_tool_use", "tool_use_prompt_tokens"), positive)
    },
    cost_usd={_OBSERVATION + "cost_details": _cost},
    ttft_ms={_OBSERVATION + "completion_start_time": _first_token},
    prompt_name={_OBSERVATION + "prompt.name": text},
    prompt_version={_OBSERVATION + "prompt.version": unquoted},
    tags={"langfuse.trace.tags": strings},
    metadata={
        "langfuse.trace.metadata.": gathered,
        _OBSERVATION + "metadata.": gathered,
    },
    status={_OBSERVATION + "level": _error},
    status_message={_OBSERVATION + "status_message": text},
    environment={"langfuse.environment": text},
    service_version={"langfuse.release": text},
)
