"""LiteLLM, OpenLIT, Logfire and pydantic-ai, plain OpenTelemetry; and the kind guessed from names that survived."""

from __future__ import annotations

import re
from typing import Any

from ragpulse_collector.conventions import names, reprs
from ragpulse_collector.conventions.rules import Read, Rule, Span
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


RULES = (
    Rule("cost_usd", "gen_ai.cost.total_cost", amount),
    Rule("cost_usd", "gen_ai.usage.cost", amount),
    Rule("cost_usd", "operation.cost", amount),
    Rule("cached_tokens", "gen_ai.usage.details.cache_read_tokens", count),
    Rule("cached_tokens", "gen_ai.usage.details.cached_tokens", count),
    Rule("reasoning_tokens", "gen_ai.usage.details.reasoning_tokens", count),
    Rule("tags", "logfire.tags", strings),
)
LAST = (
    Rule("query", "function.args", _sole_argument("function.kwargs")),
    Rule("query", "function.kwargs", _sole_argument("function.args")),
    Rule("query", "pydantic_ai.all_messages", last_user_text),
    Rule("response", "final_result", response_of_completion),
    Rule("user_id", "enduser.id", unquoted),
    Rule("user_id", "gen_ai.request.user", text),
    Rule("environment", names.DEPLOYMENT_ENVIRONMENT, text),
    Rule("environment", "deployment.environment", text),
    Rule("status_message", "status.message", text),
    Rule("kind", "reranker.output_documents.N.", _sign_of("reranker")),
    Rule("kind", "reranker.input_documents.N.", _sign_of("reranker")),
    Rule("kind", "retrieval.documents.N.", _sign_of("retriever")),
    Rule("kind", names.RETRIEVAL_DOCUMENTS, _sign_of("retriever")),
    Rule("kind", "event:db.query.result", _sign_of("retriever")),
    Rule("kind", "embedding.embeddings.N.", _sign_of("embedding")),
    Rule("kind", names.EMBEDDING_MODEL, _sign_of("embedding")),
    Rule("kind", "llm.output_messages.N.", _sign_of("llm")),
    Rule("kind", "llm.input_messages.N.", _sign_of("llm")),
    Rule("kind", "gen_ai.completion.N.", _sign_of("llm")),
    Rule("kind", names.OUTPUT_MESSAGES, _with_messages),
    Rule("kind", names.EVALUATION_NAME, _sign_of("evaluator")),
    Rule("kind", "llm.model_name", _sign_of("llm")),
    Rule("kind", names.REQUEST_MODEL, _sign_of("llm")),
    Rule("kind", "function.args", _sign_of("chain")),
)
