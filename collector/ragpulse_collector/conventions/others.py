"""LiteLLM, OpenLIT, Logfire and pydantic-ai, plain OpenTelemetry; and the kind guessed from names that survived."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.rules import Carrier, Read, Rule
from ragpulse_collector.conventions.texts import last_user_text, or_json, or_text, response_in
from ragpulse_collector.conventions.values import amount, count, strings, text, unquoted


def _sign_of(kind: str) -> Read:
    def read(_: Any, __: Carrier) -> str:
        return kind

    return read


RULES = (
    Rule("query", "pydantic_ai.all_messages", last_user_text, last=True),
    Rule("response", "final_result", or_text(or_json(response_in), field="response"), last=True),
    Rule("cost_usd", "gen_ai.cost.total_cost", amount),
    Rule("cost_usd", "gen_ai.usage.cost", amount),
    Rule("cost_usd", "operation.cost", amount),
    Rule("cached_tokens", "gen_ai.usage.details.cache_read_tokens", count),
    Rule("cached_tokens", "gen_ai.usage.details.cached_tokens", count),
    Rule("reasoning_tokens", "gen_ai.usage.details.reasoning_tokens", count),
    Rule("user_id", "enduser.id", unquoted, last=True),
    Rule("user_id", "gen_ai.request.user", text, last=True),
    Rule("tags", "logfire.tags", strings),
    Rule("environment", names.DEPLOYMENT_ENVIRONMENT, text, last=True),
    Rule("environment", "deployment.environment", text, last=True),
    Rule("status_message", "status.message", text, last=True),
    Rule("kind", "reranker.output_documents.N.", _sign_of("reranker"), last=True),
    Rule("kind", "reranker.input_documents.N.", _sign_of("reranker"), last=True),
    Rule("kind", "retrieval.documents.N.", _sign_of("retriever"), last=True),
    Rule("kind", names.RETRIEVAL_DOCUMENTS, _sign_of("retriever"), last=True),
    Rule("kind", "event:db.query.result", _sign_of("retriever"), last=True),
    Rule("kind", "embedding.embeddings.N.", _sign_of("embedding"), last=True),
    Rule("kind", names.EMBEDDING_MODEL, _sign_of("embedding"), last=True),
    Rule("kind", "llm.output_messages.N.", _sign_of("llm"), last=True),
    Rule("kind", "llm.input_messages.N.", _sign_of("llm"), last=True),
    Rule("kind", "gen_ai.completion.N.", _sign_of("llm"), last=True),
    Rule("kind", names.OUTPUT_MESSAGES, _sign_of("llm"), last=True),
    Rule("kind", names.EVALUATION_NAME, _sign_of("evaluator"), last=True),
    Rule("kind", "llm.model_name", _sign_of("llm"), last=True),
    Rule("kind", names.REQUEST_MODEL, _sign_of("llm"), last=True),
)
