"""Tokens, model and price from every provider's shape, as objects and as dicts."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragpulse
from ragpulse._dspy import track_usage as wrap_dspy
from ragpulse._reading.replies import reply_text
from ragpulse._reading.usage import Usage, add_facts, reply_facts, usage_facts
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

IN, OUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
READ, WRITE = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens"
REASONING, COST = "gen_ai.usage.reasoning.output_tokens", "llm.cost.total"
MODEL, ID, FINISH = "gen_ai.response.model", "gen_ai.response.id", "gen_ai.response.finish_reasons"


def objects(value: Any) -> Any:
    """Dicts as objects with attributes, all the way down."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: objects(item) for key, item in value.items()})
    return [objects(item) for item in value] if isinstance(value, list) else value


SHAPES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "openai chat": (
        {"id": "c1", "model": "gpt", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
         "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                   "prompt_tokens_details": {"cached_tokens": 4},
                   "completion_tokens_details": {"reasoning_tokens": 2}}},
        "hi", {IN: 10, OUT: 5, READ: 4, REASONING: 2, MODEL: "gpt", ID: "c1", FINISH: ("stop",)}),
    "openai responses": (
        {"id": "r1", "model": "gpt",
         "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
         "usage": {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4},
                   "output_tokens_details": {"reasoning_tokens": 2}}},
        "hi", {IN: 10, OUT: 5, READ: 4, REASONING: 2, MODEL: "gpt", ID: "r1"}),
    "anthropic": (
        {"id": "m1", "model": "claude", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
         "usage": {"input_tokens": 3, "output_tokens": 5,
                   "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}},
        "hi", {IN: 9, OUT: 5, READ: 4, WRITE: 2, MODEL: "claude", ID: "m1", FINISH: ("end_turn",)}),
    "anthropic, cached for an hour": (
        {"content": [{"type": "text", "text": "hi"}],
         "usage": {"input_tokens": 3, "output_tokens": 5, "cache_creation_input_tokens": 9,
                   "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7}}},
        "hi", {IN: 12, OUT: 5, WRITE: 9, "gen_ai.usage.cache_write.1h.input_tokens": 7}),
    "anthropic by LangChain": (
        {"content": "hi", "usage_metadata": {
            "input_tokens": 12, "output_tokens": 5, "total_tokens": 17, "input_token_details": {
                "cache_read": 0, "cache_creation": 0, "ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7}}},
        "hi", {IN: 12, OUT: 5, READ: 0, WRITE: 9, "gen_ai.usage.cache_write.1h.input_tokens": 7}),
    "openrouter with its price": (
        {"model": "x/y", "choices": [{"message": {"content": "hi"}}],
         "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.25}},
        "hi", {IN: 1, OUT: 2, COST: 0.25, MODEL: "x/y"}),
    "google": (
        {"candidates": [{"content": {"parts": [{"text": "h"}, {"text": "i"}]}, "finish_reason": "STOP"}],
         "model_version": "gemini", "response_id": "g1",
         "usage_metadata": {"prompt_token_count": 10, "candidates_token_count": 5, "thoughts_token_count": 7,
                            "cached_content_token_count": 4}},
        "hi", {IN: 10, OUT: 12, READ: 4, REASONING: 7, MODEL: "gemini", ID: "g1", FINISH: ("STOP",)}),
    "bedrock": (
        {"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn",
         "usage": {"inputTokens": 3, "outputTokens": 5, "totalTokens": 12, "cacheReadInputTokens": 4}},
        "hi", {IN: 7, OUT: 5, READ: 4, FINISH: ("end_turn",)}),
    "cohere": (
        {"id": "co", "message": {"content": [{"text": "hi"}]}, "finish_reason": "COMPLETE",
         "usage": {"tokens": {"input_tokens": 3, "output_tokens": 5}}},
        "hi", {IN: 3, OUT: 5, ID: "co", FINISH: ("COMPLETE",)}),
    "ollama": (
        {"model": "llama", "message": {"content": "hi"}, "done_reason": "stop",
         "prompt_eval_count": 3, "eval_count": 5},
        "hi", {IN: 3, OUT: 5, MODEL: "llama", FINISH: ("stop",)}),
    "figures on top": (
        {"text": "hi", "prompt_tokens": 3, "completion_tokens": 5, "tokens": 8}, "hi", {IN: 3, OUT: 5}),
    "usage beside the text": (
        {"response": "hi", "raw": {"prompt_tokens": 3, "completion_tokens": 5}}, "hi", {IN: 3, OUT: 5}),
    "langchain": (
        {"content": "hi", "id": "lc", "response_metadata": {"model_name": "gpt", "finish_reason": "stop"},
         "usage_metadata": {"input_tokens": 10, "output_tokens": 5, "input_token_details": {"cache_read": 4}}},
        "hi", {IN: 10, OUT: 5, READ: 4, MODEL: "gpt", ID: "lc", FINISH: ("stop",)}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("form", [dict, objects], ids=["dict", "object"])
def test_every_shape_is_read(name: str, form: Any) -> None:
    """Text and figures, with cached tokens inside the input and reasoning inside the output."""
    shape, text, facts = SHAPES[name]
    assert reply_text(form(shape)) == text
    assert reply_facts(form(shape)) == facts


def test_litellms_own_price_is_taken() -> None:
    """`_hidden_params` of a response object holds it."""
    reply = objects(
        {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    )
    reply._hidden_params = {"response_cost": 0.125}
    assert reply_facts(reply)[COST] == 0.125


STREAMS: dict[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "openai chat": (
        [{"id": "c1", "model": "gpt", "choices": [{"delta": {"role": "assistant", "content": ""}}]},
         {"id": "c1", "model": "gpt", "choices": [{"delta": {"content": "h"}}]},
         {"id": "c1", "model": "gpt", "choices": [{"delta": {"content": "i"}, "finish_reason": "stop"}]},
         {"id": "c1", "model": "gpt", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}],
        "hi", {IN: 3, OUT: 2, MODEL: "gpt", ID: "c1", FINISH: ("stop",)}),
    "openai responses": (
        [{"type": "response.output_text.delta", "delta": "h"}, {"type": "response.output_text.delta", "delta": "i"},
         {"type": "response.completed",
          "response": {"id": "r1", "model": "gpt", "usage": {"input_tokens": 3, "output_tokens": 2}}}],
        "hi", {IN: 3, OUT: 2, MODEL: "gpt", ID: "r1"}),
    "anthropic": (
        [{"type": "message_start", "message": {"id": "m1", "model": "claude", "content": [],
                                               "usage": {"input_tokens": 3, "output_tokens": 1}}},
         {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "h"}},
         {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "i"}},
         {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}],
        "hi", {IN: 3, OUT: 2, MODEL: "claude", ID: "m1", FINISH: ("end_turn",)}),
    "bedrock": (
        [{"messageStart": {"role": "assistant"}}, {"contentBlockDelta": {"delta": {"text": "h"}}},
         {"contentBlockDelta": {"delta": {"text": "i"}}}, {"messageStop": {"stopReason": "end_turn"}},
         {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 2}}}],
        "hi", {IN: 3, OUT: 2, FINISH: ("end_turn",)}),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("form", [dict, objects], ids=["dict", "object"])
def test_every_stream_is_gathered(name: str, form: Any) -> None:
    """The joined text, and figures wherever in the stream they come."""
    chunks, text, expected = STREAMS[name]
    facts: dict[str, Any] = {}
    said = []
    for chunk in chunks:
        add_facts(facts, form(chunk))
        said.append(reply_text(form(chunk)) or "")
    assert ("".join(said), facts) == (text, expected)


def test_nothing_is_guessed() -> None:
    """Where a result tells no figures there are none; what a user estimates is marked."""
    assert reply_facts({"text": "hi"}) == {}
    assert usage_facts({"total_tokens": 9}) == {}
    assert usage_facts({"prompt_tokens": -1, "completion_tokens": "many"}) == {}
    assert usage_facts(Usage(output_tokens=2, estimated=True)) == {OUT: 2, "ragpulse.usage.estimated": True}


def _said(tokens: int, text: str = "", **fields: Any) -> AIMessage:
    usage = UsageMetadata(input_tokens=tokens, output_tokens=tokens // 10, total_tokens=tokens + tokens // 10)
    return AIMessage(text, usage_metadata=usage, response_metadata={"model_name": "m"}, **fields)


class RequestUsage:
    """As of AutoGen."""

    def __init__(self, tokens: int) -> None:
        self.prompt_tokens, self.completion_tokens = tokens, tokens // 10


def _autogen(kind: str, source: str, tokens: int) -> SimpleNamespace:
    return SimpleNamespace(type=kind, source=source, content="x", models_usage=RequestUsage(tokens) if tokens else None)


_CALLS = [{"name": "weather", "args": {}, "id": "c1"}]
RUNS: dict[str, tuple[Any, int | None]] = {
    "state of a graph": (
        {"messages": [HumanMessage("q"), _said(100, tool_calls=_CALLS), ToolMessage("x", tool_call_id="c1"),
                      _said(120, "yes")]}, 220),
    "list of messages": ([HumanMessage("q"), _said(100, tool_calls=_CALLS), _said(120, "yes")], 220),
    "earlier turns are not counted again": (
        {"messages": [HumanMessage("q"), _said(500, "no"), HumanMessage("r"), _said(120, "yes")]}, 120),
    "run of AutoGen": (
        SimpleNamespace(messages=[_autogen("TextMessage", "user", 0), _autogen("ToolCallRequestEvent", "guide", 100),
                                  _autogen("TextMessage", "guide", 120)]), 220),
    "messages as mappings": (
        {"messages": [{"role": "user", "content": "q"},
                      {"role": "assistant", "content": "a", "usage": {"prompt_tokens": 70, "completion_tokens": 7}},
                      {"role": "assistant", "content": "b", "usage": {"prompt_tokens": 30, "completion_tokens": 3}}]},
        100),
    "the run's own figure": (
        {"messages": [HumanMessage("q"), _said(100, "yes")], "usage": {"input_tokens": 300, "output_tokens": 30}}, 300),
    "figures of a run of agno": (SimpleNamespace(content="yes", metrics={"input_tokens": 50, "output_tokens": 5}), 50),
    "messages without figures": ({"messages": [HumanMessage("q"), AIMessage("yes")]}, None),
    "a question only": ({"messages": [HumanMessage("q")]}, None),
}  # fmt: skip


@pytest.mark.parametrize("shape", RUNS)
@pytest.mark.parametrize("kind", ["agent", "rag"])
def test_the_calls_of_a_run_are_summed(ragpulse_spans: RecordedSpans, shape: str, kind: str) -> None:
    """An agent calls its model several times before it answers; each reply states its own usage."""
    result, tokens = RUNS[shape]
    getattr(ragpulse, kind)(name="run")(lambda question: result)("q")
    usage = ragpulse_spans.one("run").usage
    assert usage == (None if tokens is None else ragpulse.Usage(input_tokens=tokens, output_tokens=tokens // 10))


def test_dspys_model_calls_have_their_usage() -> None:
    """Its instrumentation leaves it out: dspy's own tracker has it, also under a tracker of the application."""
    tracked: list[Any] = []

    class Tracker:
        def get_total_tokens(self) -> dict[str, Any]:
            return {"m": {"prompt_tokens": 120, "completion_tokens": 5}}

    class LM:
        def __call__(self, prompt: str) -> str:
            return prompt

        async def acall(self, prompt: str) -> str:
            return prompt

    @contextmanager
    def track_usage() -> Iterator[Tracker]:
        tracked.append("begun")
        yield Tracker()

    provider = TracerProvider()
    seen = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "dspy", SimpleNamespace(LM=LM, track_usage=track_usage))  # type: ignore[arg-type]
        wrap_dspy()
        with provider.get_tracer("dspy").start_as_current_span("LM"):
            assert LM()("q") == "q"
        with provider.get_tracer("dspy").start_as_current_span("LM"):
            assert asyncio.run(LM().acall("q")) == "q"
    assert [dict(span.attributes or {}) for span in seen.get_finished_spans()] == [
        {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 5}
    ] * 2
