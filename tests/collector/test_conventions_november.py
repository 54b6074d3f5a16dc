"""Attributes of the conventions of November 2026, and how each becomes a column."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from spans import remapped, spans_of
from wire_support import decode_json

LLM, SEARCH = {"gen_ai.operation.name": "chat"}, {"gen_ai.operation.name": "retrieval"}
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "finish reasons": ({**LLM, "gen_ai.response.finish_reasons": ["length", "stop"]}, {"finish_reason": "length"}),
    "as JSON": ({**LLM, "gen_ai.response.finish_reasons": '["content_filter"]'}, {"finish_reason": "content_filter"}),
    "as a text": ({**LLM, "gen_ai.response.finish_reasons": "SAFETY"}, {"finish_reason": "SAFETY"}),
    "as an enum": ({**LLM, "gen_ai.response.finish_reasons": ["FinishReason.STOP"]}, {"finish_reason": "STOP"}),
    "as an enum's repr": (
        {**LLM, "gen_ai.response.finish_reasons": ["<FinishReason.MAX_TOKENS: 2>"]}, {"finish_reason": "MAX_TOKENS"},
    ),
    "OpenInference's": ({"openinference.span.kind": "LLM", "llm.finish_reason": "stop"}, {"finish_reason": "stop"}),
    "Vercel's": ({"ai.operationId": "ai.generateText.doGenerate", "ai.response.finishReason": "stop"},
                 {"finish_reason": "stop"}),
    "in the messages": (
        {**LLM, "gen_ai.output.messages": '[{"role": "assistant", "parts": [], "finish_reason": "tool_call"}]'},
        {"finish_reason": "tool_call"},
    ),
    "none": ({**LLM, "gen_ai.response.finish_reasons": []}, {"finish_reason": None}),
    "an agent": ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"},
                 {"kind": "agent", "agent": "planner"}),
    "a workflow of before": ({"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "support"},
                             {"kind": "chain", "agent": "support"}),
    "OpenInference's agent": ({"openinference.span.kind": "AGENT", "agent.name": "planner"}, {"agent": "planner"}),
    "a version of the index": ({**SEARCH, "ragpulse.index.version": "2026-11"}, {"index_version": "2026-11"}),
    "a version of the index that is a number": ({**SEARCH, "ragpulse.index.version": 7}, {"index_version": "7"}),
    "a version of the index in metadata": ({**SEARCH, "metadata": '{"index_version": "i2"}'}, {"index_version": "i2"}),
    "LangSmith's index": ({**SEARCH, "langsmith.metadata.index_version": "i2"}, {"index_version": "i2"}),
    "Vercel's index": ({**SEARCH, "ai.telemetry.metadata.indexVersion": "i2"}, {"index_version": "i2"}),
    "Traceloop's index": ({**SEARCH, "traceloop.association.properties.index_version": "i2"}, {"index_version": "i2"}),
    "a data source": ({**SEARCH, "gen_ai.data_source.id": "docs"}, {"data_source": "docs"}),
    "top k": ({**SEARCH, "gen_ai.retrieval.top_k": 5}, {"top_k": 5}),
    "top k of before": ({**SEARCH, "gen_ai.request.top_k": 5.0}, {"top_k": 5}),
    "top k of sampling": ({**LLM, "gen_ai.request.top_k": 5.0}, {"top_k": None}),
    "top k of a reranker": ({"openinference.span.kind": "RERANKER", "reranker.top_k": 3}, {"top_k": 3}),
    "top k beyond a column": ({**SEARCH, "gen_ai.retrieval.top_k": 2**40}, {"top_k": None}),
    "modalities": (
        {**LLM, "gen_ai.usage.text.input_tokens": 10, "gen_ai.usage.image.input_tokens": 5,
         "gen_ai.usage.text.output_tokens": 7, "gen_ai.usage.text.cache_read.input_tokens": 4},
        {"input_tokens": 15, "output_tokens": 7, "cached_tokens": 4},
    ),
    "modalities beside a total": (
        {**LLM, "gen_ai.usage.input_tokens": 20, "gen_ai.usage.text.input_tokens": 10}, {"input_tokens": 20},
    ),
    "cache write": ({**LLM, "gen_ai.usage.input_tokens": 9, "gen_ai.usage.cache_write.input_tokens": 3},
                    {"cache_write_tokens": 3}),
    "a decision": (
        {"openinference.span.kind": "DECISION", "decision.model_name": "jev", "decision.provider": "typesafe",
         "decision.token_count.input": 412, "decision.token_count.output": 2},
        {"kind": "other", "model": "jev", "provider": "typesafe", "input_tokens": 412, "output_tokens": 2},
    ),
    **{operation: ({"gen_ai.operation.name": operation}, {"kind": kind}) for operation, kind in {
        "search_memory": "retriever", "create_memory": "tool", "update_memory": "tool", "delete_memory": "tool",
        "upsert_memory": "tool", "create_memory_store": "tool", "realtime": "llm", "plan": "agent",
        "fetch_response": "other",
    }.items()},
    "content elsewhere": ({**LLM, "gen_ai.output.messages_ref": "s3://bucket/a"},
                          {"response": None, "response_missing_reason": "stored_elsewhere"}),
    "our own reason wins": (
        {**LLM, "ragpulse.response.missing_reason": "filtered", "gen_ai.output.messages_ref": "s3://bucket/a"},
        {"response_missing_reason": "filtered"},
    ),
    "control flow": ({"ragpulse.span.kind": "tool", "ragpulse.control_flow": "handoff"}, {"control_flow": "handoff"}),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_an_attribute_becomes_its_column(case: str) -> None:
    """And does so again when the columns are derived from the stored attributes."""
    attributes, expected = READ[case]
    (span,) = spans_of(decode_json({"attributes": attributes}))
    assert {name: getattr(span, name) for name in expected} == expected
    assert remapped(span) == span


def test_the_main_agent_of_a_resource_is_the_agent_of_its_spans() -> None:
    """A span that names its own agent keeps it; so it is with the version of the index."""
    resource = {"gen_ai.main_agent.name": "front desk", "ragpulse.index.version": "i1"}
    (plain,) = spans_of(decode_json({"attributes": LLM}, resource=resource))
    (own,) = spans_of(decode_json({"attributes": {**LLM, "gen_ai.agent.name": "planner"}}, resource=resource))
    assert (plain.agent, own.agent) == ("front desk", "planner")
    (stated,) = spans_of(decode_json({"attributes": {**LLM, "ragpulse.index.version": "i2"}}, resource=resource))
    assert (plain.index_version, stated.index_version) == ("i1", "i2")


@pytest.mark.parametrize("prefix", ["retrieval.documents", "output.documents"])
def test_a_document_has_its_name_and_address(prefix: str) -> None:
    """Among its metadata, beside those it has."""
    about = {"name": "guide.md", "url": "https://example.org/guide", "mime_type": "text/markdown"}
    document = {"content": "Text.", "metadata": '{"page": 2}', **about}
    attributes = {f"{prefix}.0.document.{name}": value for name, value in document.items()}
    (span,) = spans_of(decode_json({"attributes": {"openinference.span.kind": "RETRIEVER", **attributes}}))
    assert span.contexts is not None
    (context,) = span.contexts
    assert (context.text, orjson.loads(context.metadata or "")) == ("Text.", {**about, "page": 2})
