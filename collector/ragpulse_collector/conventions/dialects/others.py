"""LiteLLM, OpenLIT, Logfire, pydantic-ai, LiveKit, Sentry, plain OpenTelemetry; at last the kind by attribute names."""

from __future__ import annotations

import re
from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.documents import documents_in_output
from ragpulse_collector.conventions.rules import Read, SpanView, rules
from ragpulse_collector.conventions.texts import (
    last_user_text,
    query_of_input,
    response_of_completion,
    response_of_output,
)
from ragpulse_collector.conventions.usage import tier_in
from ragpulse_collector.conventions.values import (
    QUOTED,
    always,
    amount,
    strings,
    text,
    unquote,
    unquoted,
)

_ONE_ARGUMENT = re.compile(rf"\(({QUOTED}),\)|\{{(?:{QUOTED}): ({QUOTED})\}}")
_MAX_LENGTH = 65_536


def _with_messages(_: Any, span: SpanView) -> str | None:
    """Return `llm` if there are input messages, too: OpenLIT's decorator writes any result as output messages."""
    return "llm" if names.INPUT_MESSAGES in span.attributes else None


def _by_model(value: Any, _: SpanView) -> str:
    """Return the kind of a call of which the model alone is known."""
    return "embedding" if "embed" in str(value) else "llm"


def _sole_argument(other: str) -> Read:
    """Make a reader of the repr of arguments that are one text, while `other` has no arguments.

    The parser gets only the quoted text, without nesting or names.
    """

    def read_argument(value: Any, span: SpanView) -> str | None:
        if type(value) is not str or len(value) > _MAX_LENGTH:
            return None
        match = _ONE_ARGUMENT.fullmatch(value)
        if match is None or span.attributes.get(other, "{}") not in ("()", "{}"):
            return None
        return unquote(match[1] or match[2])

    return read_argument


RULES = rules(
    cost_usd={
        "gen_ai.cost.total_cost": amount,
        "gen_ai.usage.cost": amount,
        "operation.cost": amount,
    },
    tags={"logfire.tags": strings},
)
LAST = rules(
    service_tier=dict.fromkeys(
        (
            names.OUTPUT_VALUE,
            "gen_ai.completion",
            "mlflow.spanOutputs",
            "langfuse.observation.output",
            "ai.response.providerMetadata",
            "genkit:output",
            "response_data",
            "llm.invocation_parameters",
            "langfuse.observation.model.parameters",
            "mlflow.spanInputs",
            names.INPUT_VALUE,
            "gen_ai.prompt",
            "request_data",
        ),
        tier_in,
    ),
    query={
        "lk.user_input": text,
        "lk.user_transcript": text,
        "lk.function_tool.arguments": query_of_input,
        "gen_ai.request.messages": last_user_text,
        "gen_ai.tool.input": query_of_input,
        "function.args": _sole_argument("function.kwargs"),
        "function.kwargs": _sole_argument("function.args"),
        "pydantic_ai.all_messages": last_user_text,
    },
    response={
        "final_result": response_of_completion,
        "lk.response.text": text,
        "lk.function_tool.output": response_of_output,
        "gen_ai.response.text": response_of_output,
        "gen_ai.tool.output": response_of_output,
    },
    contexts={
        "lk.function_tool.output": documents_in_output,
        "gen_ai.tool.output": documents_in_output,
    },
    user_id={
        "enduser.id": unquoted,
        "gen_ai.request.user": text,
    },
    environment={
        names.DEPLOYMENT_ENVIRONMENT: text,
        "deployment.environment": text,
    },
    status_message={"status.message": text},
    kind={
        "reranker.output_documents.N.": always("reranker"),
        "reranker.input_documents.N.": always("reranker"),
        "retrieval.documents.N.": always("retriever"),
        names.RETRIEVAL_DOCUMENTS: always("retriever"),
        "event:db.query.result": always("retriever"),
        "embedding.embeddings.N.": always("embedding"),
        names.EMBEDDING_MODEL: always("embedding"),
        "llm.output_messages.N.": always("llm"),
        "llm.input_messages.N.": always("llm"),
        "gen_ai.completion.N.": always("llm"),
        names.OUTPUT_MESSAGES: _with_messages,
        names.EVALUATION_NAME: always("evaluator"),
        "llm.model_name": _by_model,
        names.REQUEST_MODEL: _by_model,
        "function.args": always("chain"),
    },
)
