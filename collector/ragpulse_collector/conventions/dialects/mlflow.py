"""MLflow: `mlflow.*`, every value JSON text, words included."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import Rule, Span
from ragpulse_collector.conventions.texts import or_json, query_in, response_of_output
from ragpulse_collector.conventions.values import KINDS, count, members, one_of, unquoted

_KINDS = KINDS | {"chat_model": "llm", "workflow": "chain", "task": "chain", "parser": "chain"}
_USAGE = "mlflow.chat.tokenUsage"


def _model(value: Any, span: Span) -> str | None:
    """Return the model without its provider: `openai/gpt-5-mini` is gpt-5-mini."""
    name = unquoted(value, span)
    return name.partition("/")[2] or name if name else None


def _provider(value: Any, span: Span) -> str | None:
    name = unquoted(value, span) or ""
    return name.partition("/")[0] if "/" in name else None


RULES = (
    Rule(
        "kind",
        "mlflow.spanType",
        one_of(_KINDS),
    ),
    Rule("query", "mlflow.spanInputs", or_json(query_in)),
    Rule("contexts", "mlflow.spanOutputs", documents_of_retrieval),
    Rule("response", "mlflow.spanOutputs", response_of_output),
    Rule("model", "mlflow.llm.model", _model),
    Rule("provider", "mlflow.llm.provider", unquoted),
    Rule("provider", "mlflow.llm.model", _provider),
    Rule("input_tokens", _USAGE, members(("input_tokens",), count)),
    Rule("output_tokens", _USAGE, members(("output_tokens",), count)),
    Rule("cached_tokens", _USAGE, members(("cache_read_input_tokens",), count)),
    Rule("cache_write_tokens", _USAGE, members(("cache_creation_input_tokens",), count)),
    Rule("session_id", "mlflow.trace.session", unquoted),
    Rule("user_id", "mlflow.trace.user", unquoted),
)
