"""Langfuse: `langfuse.observation.*` and `langfuse.trace.*`, values as JSON text."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import SpanView, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_output
from ragpulse_collector.conventions.usage import is_apart, usage_rules
from ragpulse_collector.conventions.values import (
    KINDS,
    amount,
    gathered,
    instant_ns,
    of_kinds,
    one_of,
    parsed,
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
    apart_tokens={_USAGE: is_apart},
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
) + usage_rules(_USAGE)
