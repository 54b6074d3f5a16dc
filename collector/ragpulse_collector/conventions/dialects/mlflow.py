"""MLflow: `mlflow.*`, every value JSON text, words included."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions.documents import documents_of_retrieval
from ragpulse_collector.conventions.rules import SpanView, rules
from ragpulse_collector.conventions.texts import query_of_input, response_of_output
from ragpulse_collector.conventions.usage import usage_rules
from ragpulse_collector.conventions.values import KINDS, one_of, unquoted

_KINDS = KINDS | {"chat_model": "llm", "workflow": "chain", "task": "chain", "parser": "chain"}


def model_after_slash(value: Any, span: SpanView) -> str | None:
    """Return the model without its provider: `openai/gpt-5-mini` is gpt-5-mini."""
    name = unquoted(value, span)
    return name.partition("/")[2] or name if name else None


def provider_before_slash(value: Any, span: SpanView) -> str | None:
    """Return the provider before a model: `openai/gpt-5-mini` is sold by openai."""
    name = unquoted(value, span) or ""
    return name.partition("/")[0] if "/" in name else None


RULES = rules(
    kind={"mlflow.spanType": one_of(_KINDS)},
    query={"mlflow.spanInputs": query_of_input},
    contexts={"mlflow.spanOutputs": documents_of_retrieval},
    response={"mlflow.spanOutputs": response_of_output},
    model={"mlflow.llm.model": model_after_slash},
    provider={
        "mlflow.llm.provider": unquoted,
        "mlflow.llm.model": provider_before_slash,
    },
    session_id={"mlflow.trace.session": unquoted},
    user_id={"mlflow.trace.user": unquoted},
) + usage_rules("mlflow.chat.tokenUsage")
