"""What strangers' functions return: usage summed once, tiers, replies of more vendors, and results that say nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

import ragpulse
from ragpulse.testing import RecordedSpan, RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

ANSWER = "Refunds take five working days."
TOOL = "TOOL OUTPUT: policy page 7"
_TEXT = {"type": "text", "text": ANSWER}


class Right(NamedTuple):
    """What is recorded of a result."""

    response: str | None = None
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    tier: str | None = None
    missing: str | None = None
    cost: float | None = None


def _recorded(span: RecordedSpan) -> Right:
    usage, attributes = span.usage or ragpulse.Usage(), span.attributes
    return Right(
        span.response, usage.input_tokens, usage.output_tokens, usage.cached_tokens,
        attributes.get("gen_ai.response.service_tier"), attributes.get("ragpulse.response.missing_reason"),
        span.cost_usd,
    )  # fmt: skip


def _class(module: str, name: str) -> Any:
    """A class of a library, as its objects show it."""
    return type(name, (SimpleNamespace,), {"__module__": module})


# --- sums over several calls -----------------------------------------------------------------------------------------
def _said(number: int, text: str = "", **fields: Any) -> AIMessage:
    usage = UsageMetadata(
        input_tokens=120, output_tokens=30, total_tokens=150, input_token_details=InputTokenDetails(cache_read=64)
    )
    return AIMessage(text, id=f"run--{number}", usage_metadata=usage, **fields)


_CALLS = [{"name": "lookup", "args": {}, "id": "c1"}]
ASKED, CALLED, FOUND, SAID = (
    HumanMessage("q"),
    _said(1, tool_calls=_CALLS),
    ToolMessage(TOOL, tool_call_id="c1"),
    (_said(2, ANSWER)),
)
VALUES = [{"messages": [ASKED, CALLED, FOUND, SAID][: n + 1]} for n in range(4)]
UPDATES: list[Any] = [
    {"model": {"messages": [CALLED]}},
    {"tools": {"messages": [FOUND]}},
    {"model": {"messages": [SAID]}},
]
CHUNKS: list[Any] = [
    (AIMessageChunk("", id="run--1", tool_call_chunks=[{"name": "lookup", "args": "{}", "id": "c1", "index": 0}]), {}),
    (AIMessageChunk("", id="run--1", usage_metadata=CALLED.usage_metadata), {}),
    (FOUND, {}),
    *[(AIMessageChunk(text, id="run--2"), {}) for text in ("Refunds take ", "five working days.")],
    (AIMessageChunk("", id="run--2", usage_metadata=SAID.usage_metadata), {}),
]
RESTORED = [message.model_validate(message.model_dump()) for message in (ASKED, CALLED, FOUND, SAID)]
"""As LangGraph restores them from a checkpoint: with all fields, the type, too."""
_Event, _Assistant, _User, _Result = (
    _class("google.adk.events.event", "Event"), _class("claude_agent_sdk.types", "AssistantMessage"),
    _class("claude_agent_sdk.types", "UserMessage"), _class("claude_agent_sdk.types", "ResultMessage"))  # fmt: skip
_GOOGLE = {"prompt_token_count": 120, "candidates_token_count": 22, "thoughts_token_count": 8,
           "cached_content_token_count": 64, "total_token_count": 150}  # fmt: skip


def _event(number: int, part: dict[str, Any], *, role: str = "model", partial: bool = False) -> Any:
    usage = _GOOGLE if role == "model" else None
    return _Event(author="desk", content={"role": role, "parts": [part]}, usage_metadata=usage, partial=partial,
                  id=f"e{number}", model_version="gemini-2.5-flash")  # fmt: skip


ADK = [_event(1, {"function_call": {"name": "s", "args": {}}}),
       _event(2, {"function_response": {"name": "s", "response": {"r": TOOL}}}, role="user"),
       _event(3, {"text": "Refunds take "}, partial=True), _event(4, {"text": ANSWER})]  # fmt: skip
_CLAUDE = {"input_tokens": 12, "output_tokens": 20, "cache_read_input_tokens": 400}


def _assistant(number: int, *parts: dict[str, Any], above: str | None = None) -> Any:
    blocks = [SimpleNamespace(**part) for part in parts]
    return _Assistant(content=blocks, model="claude-sonnet-4-5", parent_tool_use_id=above, usage=_CLAUDE,
                      message_id=f"m{number}")  # fmt: skip


CLAUDE = [
    _class("claude_agent_sdk.types", "SystemMessage")(subtype="init", data={}),
    _assistant(1, {"thinking": "Hm.", "signature": "s"}),
    _assistant(1, {"id": "t", "name": "lookup", "input": {}}),
    _User(content=[SimpleNamespace(tool_use_id="t", content=TOOL)]),
    _assistant(3, {"text": "Of a subagent."}, above="t"),
    _assistant(2, {"text": "Refunds take "}, {"text": "five working days."}),
]
_ENDED = _Result(result=ANSWER, structured_output=None, total_cost_usd=0.01, stop_reason="end_turn",
                 usage={"input_tokens": 112, "output_tokens": 33, "cache_read_input_tokens": 800})  # fmt: skip
PYDANTIC: list[Any] = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "q"}]},
    {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "s", "args": "{}"}], "model_name": "m",
     "usage": {"input_tokens": 120, "output_tokens": 30, "cache_read_tokens": 64}},
    {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "s", "content": TOOL}]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": ANSWER}], "model_name": "m",
     "usage": {"input_tokens": 120, "output_tokens": 30, "cache_read_tokens": 64}},
]  # fmt: skip


class _History:
    storage = _class("ag2.history", "MemoryStorage")()

    async def get_events(self) -> list[Any]:
        request, used = _class("ag2.events.types", "ModelRequest")(), _class("ag2.events.types", "UsageEvent")
        counts = {"prompt_tokens": 120.0, "completion_tokens": 30.0, "cache_read_input_tokens": 64.0}
        return [request, used(usage={**counts, "prompt_tokens": 999}), request, used(usage=counts), used(usage=counts)]


AG2 = _class("ag2.agent", "AgentReply")(
    body=ANSWER, response=SimpleNamespace(model="m"),
    context=SimpleNamespace(stream=SimpleNamespace(history=_History())))  # fmt: skip
_ANTHROPIC = [
    {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "usage": {
        "input_tokens": 20, "output_tokens": 1, "service_tier": "priority", "cache_creation_input_tokens": 9,
        "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7}}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}},
]  # fmt: skip
TWO = Right(ANSWER, 240, 60, 128)
RUNS: dict[str, tuple[list[Any], Right]] = {
    "LangGraph, values": (VALUES, TWO),
    "LangGraph, updates": (UPDATES, TWO),
    "LangGraph, messages": (CHUNKS, TWO),
    "LangGraph, several modes": (
        [("values", VALUES[0]), ("updates", UPDATES[0]), ("values", VALUES[1]),
         *(("messages", item) for item in CHUNKS), ("updates", UPDATES[2]), ("values", VALUES[3])], TWO),
    "LangGraph, namespaces": ([((), "updates", item) for item in UPDATES], TWO),
    "LangGraph, version 2": ([{"ns": (), "type": "updates", "data": item} for item in UPDATES], TWO),
    "LangGraph, tasks": ([{"id": "t", "result": item["model"]} for item in (UPDATES[0], UPDATES[2])], TWO),
    "LangGraph, debug": (
        [{"type": "task_result", "step": 1, "payload": {"result": item["model"]}} for item in (UPDATES[0], UPDATES[2])],
        TWO),
    "LangGraph, resumed": ([{"messages": RESTORED[:2]}, {"messages": RESTORED}], Right(ANSWER)),
    "LangGraph, resumed with a new call": ([{"messages": [*RESTORED[:3], SAID]}], Right(ANSWER, 120, 30, 64)),
    "Google ADK": (ADK, TWO),
    "claude-agent-sdk": ([*CLAUDE, _ENDED], Right(ANSWER, 912, 33, 800, cost=0.01)),
    "claude-agent-sdk, cut off": (CLAUDE, Right(ANSWER, 1236, 60, 1200)),
    "Anthropic's events in a rag": (
        [*_ANTHROPIC, {**_ANTHROPIC[0], "message": {**_ANTHROPIC[0]["message"], "id": "m2"}}, _ANTHROPIC[2]],
        Right(ANSWER, 58, 100, tier="priority")),
    "agno": (
        [_class("agno.run.agent", "RunContentEvent")(content="Refunds take "),
         _class("agno.run.agent", "RunCompletedEvent")(content=ANSWER, metrics={
             "input_tokens": 240, "output_tokens": 60, "cache_read_tokens": 128, "total_tokens": 300})], TWO),
    "Agent Framework": (
        [_class("agent_framework._types", "AgentResponseUpdate")(
            role="assistant", response_id=f"r{number}", contents=[
                SimpleNamespace(type="text", text=text, merge_mode="append"),
                SimpleNamespace(type="text", text="So far.", merge_mode="replace"),
                SimpleNamespace(type="usage", usage_details={
                    "input_token_count": 120, "output_token_count": 30, "cache_read_input_token_count": 64})])
         for number, text in enumerate(("Refunds take ", "five working days."))], TWO),
}  # fmt: skip


@pytest.mark.parametrize("shape", RUNS)
def test_each_call_of_a_streamed_run_counts_once(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """By the id of its response; what tools return and parts of a text are no answer, which is there once."""
    items, right = RUNS[shape]

    @ragpulse.agent(name="run")
    def run(question: str) -> Any:
        yield from items

    list(run("q"))
    assert _recorded(ragpulse_spans.one("run")) == right


RESULTS: dict[str, tuple[Any, Right]] = {
    "a state": (VALUES[-1], TWO),
    "states in a list": (VALUES, TWO),
    "a state that was resumed": ({"messages": RESTORED}, Right(ANSWER)),
    "pydantic-ai's messages": (PYDANTIC, TWO),
    "ADK's events in a list": ([event for event in ADK if not event.partial], TWO),
    "claude-agent-sdk's messages in a list": ([*CLAUDE[1:], _ENDED], Right(ANSWER, 912, 33, 800, cost=0.01)),
    "AG2": (AG2, TWO),
    "Agent Framework": (
        SimpleNamespace(messages=[{"role": "assistant", "contents": [_TEXT]}], usage_details={
            "input_token_count": 240, "output_token_count": 60, "cache_read_input_token_count": 128,
            "openai.cached_input_tokens": 128, "total_token_count": 300}), TWO),
    "CrewAI's cached tokens": (
        {"content": ANSWER, "usage": {"prompt_tokens": 240, "completion_tokens": 60, "cached_prompt_tokens": 128}},
        TWO),
}  # fmt: skip


@pytest.mark.parametrize("shape", RESULTS)
def test_each_call_of_a_run_counts_once(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """As of a stream; a resumed run that made no call costs nothing."""
    result, right = RESULTS[shape]
    ragpulse.agent(name="run")(lambda question: result)("q")
    assert _recorded(ragpulse_spans.one("run")) == right


# --- replies of more vendors -----------------------------------------------------------------------------------------
def _interaction(**fields: Any) -> dict[str, Any]:
    usage = {"total_input_tokens": 8, "total_output_tokens": 2, "total_thought_tokens": 3, "total_cached_tokens": 4,
             "total_tokens": 13}  # fmt: skip
    return {"id": "v1", "object": "interaction", "model": "gemini-2.5-flash", "usage": usage, **fields}


_MISTRAL = {"usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}}
_OUTPUT = {"type": "message.output", "role": "assistant", "content": ANSWER}
_XAI = _class("xai_sdk.chat", "Response")
REPLIES: dict[str, tuple[Any, Right]] = {
    "Interactions": (
        _interaction(steps=[{"type": "thought", "summary": [{"type": "text", "text": "Hm."}]},
                            {"type": "function_result", "result": [{"type": "text", "text": TOOL}]},
                            {"type": "model_output", "content": [_TEXT]}]), Right(ANSWER, 8, 5, 4)),
    "Interactions, outputs": (_interaction(outputs=[{"type": "thought"}, _TEXT]), Right(ANSWER, 8, 5, 4)),
    "xAI": (
        _XAI(content=ANSWER, service_tier="priority", cost_usd=0.02, proto=SimpleNamespace(model="grok-4"), usage={
            "prompt_tokens": 1000, "completion_tokens": 100, "reasoning_tokens": 60, "total_tokens": 1160,
            "cached_prompt_text_tokens": 800}), Right(ANSWER, 1000, 160, 800, "priority", cost=0.02)),
    "Mistral, a conversation with a tool": (
        {"outputs": [{"type": "tool.execution", "name": "web_search", "arguments": "{}"}, _OUTPUT], **_MISTRAL},
        Right(ANSWER, 1000, 100)),
    "Mistral, a call": (
        {"outputs": [{"type": "function.call", "name": "f", "arguments": "{}"}], **_MISTRAL},
        Right(None, 1000, 100, missing="tool_calls")),
    "Titan": ({"inputTextTokenCount": 12, "results": [{"tokenCount": 3, "outputText": ANSWER}]}, Right(ANSWER, 12, 3)),
    "Llama": ({"generation": ANSWER, "prompt_token_count": 12, "generation_token_count": 3}, Right(ANSWER, 12, 3)),
    "watsonx": (
        {"model_id": "granite", "results": [{"generated_text": ANSWER, "generated_token_count": 3,
                                             "input_token_count": 12}]}, Right(ANSWER, 12, 3)),
    "ShareGPT": ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": ANSWER}]}, Right(ANSWER)),
    "chunks in a list": (
        [{"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
         for text in ("Refunds take ", "five working days.")], Right(ANSWER)),
    "Gemini's chunks in a list": (
        [{"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]}
         for text in ("Refunds take ", "five working days.")], Right(ANSWER)),
    "OpenAI's tier": (
        {"choices": [{"message": {"content": ANSWER}}], "service_tier": "flex",
         "usage": {"prompt_tokens": 2, "completion_tokens": 3}}, Right(ANSWER, 2, 3, tier="flex")),
    "Bedrock's tier": (
        {"output": {"message": {"role": "assistant", "content": [{"text": ANSWER}]}}, "serviceTier": {"type": "flex"},
         "usage": {"inputTokens": 2, "outputTokens": 3}}, Right(ANSWER, 2, 3, tier="flex")),
    "Google's tier": (
        {"candidates": [{"content": {"parts": [{"text": ANSWER}]}}],
         "usage_metadata": {"prompt_token_count": 2, "candidates_token_count": 3, "traffic_type": "ON_DEMAND_FLEX"}},
        Right(ANSWER, 2, 3, tier="flex")),
    "AI21": ({"completions": [{"data": {"text": ANSWER}, "finishReason": {"reason": "endoftext"}}]}, Right(ANSWER)),
    "SageMaker": ({"predictions": [ANSWER]}, Right(ANSWER)),
    "null": (None, Right(missing="nothing")),
    "no output": ({"output": None}, Right(missing="nothing")),
    "no answer beside sources": ({"answer": None, "sources": [{"text": TOOL}]}, Right(missing="nothing")),
    "an empty object": ({}, Right(missing="nothing")),
    "JavaScript's null": ("undefined", Right(missing="nothing")),
    "JavaScript's objects": ("[object Object],[object Object]", Right(missing="nothing")),
    "Go's nil": ("<nil>", Right(missing="unread")),
    "a missing value of pandas": ("nan", Right(missing="nothing")),
    "no choices": ({"choices": []}, Right(missing="no_choice")),
    "the word None, which may be an answer": ("None", Right("None")),
    "the empty text": ("", Right("")),
}  # fmt: skip


@pytest.mark.parametrize("shape", REPLIES)
def test_replies_of_more_vendors(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """Whole replies, their usage and tier; results that say nothing have the reason."""
    reply, right = REPLIES[shape]
    ragpulse.llm(name="ask")(lambda question: reply)("q")
    assert _recorded(ragpulse_spans.one("ask")) == right


def _delta(**fields: Any) -> dict[str, Any]:
    return {"event_type": "step.delta", "index": 0, "delta": fields}


STREAMS: dict[str, tuple[list[Any], Right]] = {
    "Interactions": (
        [_delta(type="thought_summary", content={"type": "text", "text": "Hm."}),
         _delta(type="text", text="Refunds take "), _delta(type="text", text="five working days."),
         {"event_type": "interaction.completed", "interaction": _interaction(steps=[])}], Right(ANSWER, 8, 5, 4)),
    "Mistral, a conversation": (
        [_class("mistralai.client.models", "ConversationEvents")(data=data) for data in (
            {"type": "tool.execution.done", "name": "web_search"}, {**_OUTPUT, "type": "message.output.delta"},
            {"type": "conversation.response.done", **_MISTRAL})], Right(ANSWER, 1000, 100)),
    "Titan": (
        [{"outputText": "Refunds take ", "inputTextTokenCount": 12},
         {"outputText": "five working days.", "totalOutputTextTokenCount": 6}], Right(ANSWER, 12, 6)),
    "xAI": (
        [(_XAI(content=so_far), _class("xai_sdk.chat", "Chunk")(
            content=piece, proto=SimpleNamespace(model="grok-4", usage={"prompt_tokens": 10, "completion_tokens": 2})))
         for so_far, piece in (("Refunds take ", "Refunds take "), (ANSWER, "five working days."))],
        Right(ANSWER, 10, 2)),
    "OpenAI's tier": (
        [{"choices": [{"index": 0, "delta": {"content": ANSWER}}], "service_tier": "flex"},
         {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}], Right(ANSWER, 2, 3, tier="flex")),
    "the tier of a response, not of its request": (
        [{"type": "response.created", "response": {"service_tier": "auto"}},
         {"type": "response.output_text.delta", "delta": ANSWER},
         {"type": "response.completed", "response": {"service_tier": "priority", "usage": {
             "input_tokens": 2, "output_tokens": 3}}}], Right(ANSWER, 2, 3, tier="priority")),
    "Anthropic's tier and an hour in the cache": (_ANTHROPIC, Right(ANSWER, 29, 50, tier="priority")),
}  # fmt: skip


@pytest.mark.parametrize("shape", STREAMS)
def test_streams_of_more_vendors(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """As whole replies."""
    items, right = STREAMS[shape]

    @ragpulse.llm(name="ask")
    def ask(question: str) -> Any:
        yield from items

    list(ask("q"))
    assert _recorded(ragpulse_spans.one("ask")) == right


# --- questions and failures ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["rag", "llm", "agent"])
@pytest.mark.parametrize("given", [{}, [], {"args": [], "kwargs": {}}, {"question": ""}, None])
def test_empty_arguments_are_no_question(ragpulse_spans: RecordedSpans, kind: str, given: Any) -> None:
    """Neither as JSON."""
    getattr(ragpulse, kind)(name="ask")(lambda question: "x")(given)
    assert ragpulse_spans.one("ask").query is None


def test_a_function_that_raises_has_no_answer_but_what_it_streamed(ragpulse_spans: RecordedSpans) -> None:
    """Never one from elsewhere."""

    def search(question: str) -> str:
        raise ConnectionError("the store is down")

    def write(question: str) -> Any:
        yield "Refunds"
        raise ConnectionError("the model is down")

    with pytest.raises(ConnectionError):
        ragpulse.rag(name="search")(search)("q")
    with pytest.raises(ConnectionError):
        list(ragpulse.rag(name="write")(write)("q"))
    assert [(span.response, span.error) for span in ragpulse_spans] == [
        (None, "ConnectionError"), ("Refunds", "ConnectionError")
    ]  # fmt: skip
