"""LiteLLM, OpenLIT, Logfire and pydantic-ai, plain OpenTelemetry; and the kind guessed from names that survived."""

from __future__ import annotations

import re
from typing import Any

from ragpulse_collector.conventions import names, reprs
from ragpulse_collector.conventions.rules import Read, Span, rules
from ragpulse_collector.conventions.texts import last_user_text, response_of_completion
from ragpulse_collector.conventions.values import amount, count, strings, text, unquoted


def _sign_of(kind: str) -> Read:
    def read(_: Any, __: Span) -> str:
        return kind

    return read


_ONE_ARGUMENT = re.compile(rf"\(({reprs.QUOTED}),\)|\{{(?:{reprs.QUOTED}): ({reprs.QUOTED})\}}")
_LONGEST_ARGUMENT = 65_536


def _with_messages(_: Any, span: Span) -> str | None:
    """An answer alone tells no model call: OpenLIT's decorator calls any function's result output messages."""
    return "llm" if names.INPUT_MESSAGES in span.attributes else None


def _sole_argument(other: str) -> Read:
    """Make a reader of Python's own spelling of arguments that are one text, `other` holding none.

    Only the quoted text is given to the parser: it neither nests nor names anything.
    """

    def read(value: Any, span: Span) -> str | None:
        if type(value) is not str or len(value) > _LONGEST_ARGUMENT:
            return None
        found = _ONE_ARGUMENT.fullmatch(value)
        if found is None or span.attributes.get(other, "{}") not in ("()", "{}"):
            return None
        return reprs.spelled(found[1] or found[2])

    return read


RULES = rules(
    cost_usd={
        "gen_ai.cost.total_cost": amount,
        "gen_ai.usage.cost": amount,
        "operation.cost": amount,
    },
    cached_tokens={
        "gen_ai.usage.details.cache_read_tokens": count,
        "gen_ai.usage.details.cached_tokens": count,
    },
    reasoning_tokens={"gen_ai.usage.details.reasoning_tokens": count},
    tags={"logfire.tags": strings},
)
LAST = rules(
    query={
        "function.args": _sole_argument("function.kwargs"),
        "function.kwargs": _sole_argument("function.args"),
        "pydantic_ai.all_messages": last_user_text,
    },
    response={"final_result": response_of_completion},
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
        "reranker.output_documents.N.": _sign_of("reranker"),
        "reranker.input_documents.N.": _sign_of("reranker"),
        "retrieval.documents.N.": _sign_of("retriever"),
        names.RETRIEVAL_DOCUMENTS: _sign_of("retriever"),
        "event:db.query.result": _sign_of("retriever"),
        "embedding.embeddings.N.": _sign_of("embedding"),
        names.EMBEDDING_MODEL: _sign_of("embedding"),
        "llm.output_messages.N.": _sign_of("llm"),
        "llm.input_messages.N.": _sign_of("llm"),
        "gen_ai.completion.N.": _sign_of("llm"),
        names.OUTPUT_MESSAGES: _with_messages,
        names.EVALUATION_NAME: _sign_of("evaluator"),
        "llm.model_name": _sign_of("llm"),
        names.REQUEST_MODEL: _sign_of("llm"),
        "function.args": _sign_of("chain"),
    },
)
