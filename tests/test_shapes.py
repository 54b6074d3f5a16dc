"""What a reply says, by one rule: the same rows through the SDK (JSON, objects) and through the collector (JSON)."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from spans import spans_of
from wire_support import decode_json

import ragpulse
from ragpulse.testing import RecordedSpan, RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

SAID = "Paris is."
TEXTS: list[dict[str, Any]] = [{"type": "text", "text": "Paris "}, {"type": "text", "text": "is."}]
CALLED = [{"id": "t", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}]
USER, ASSISTANT = {"role": "user", "content": "Where?"}, {"role": "assistant", "content": SAID}
TOOL = {"role": "tool", "content": "found"}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x",
           "content": [{"type": "reasoning_text", "text": "hm"}]}  # fmt: skip


def _chat(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}]}


def _responses(*output: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "error": None, "text": {"format": {"type": "text"}}, "output": [*output],
            "usage": {"input_tokens": 1}, **fields}  # fmt: skip


def _message(*content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*content]}


def _anthropic(*content: Any, stop: str = "end_turn") -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [*content], "stop_reason": stop}


def _gemini(*parts: Any, finish: str = "STOP") -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": finish}]}


def _bedrock(*content: Any, stop: str = "end_turn") -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPHeaders": {"x-amzn-requestid": "r"}}, "stopReason": stop,
            "output": {"message": {"role": "assistant", "content": [*content]}}}  # fmt: skip


OUTPUT_TEXT = ({"type": "output_text", "text": "Paris "}, {"type": "output_text", "text": "is."})
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
BEDROCK_THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
REPLIES: dict[str, tuple[Any, str | None, str | None]] = {
    "openai": (_chat(content=SAID, reasoning_content="hm", refusal=None), SAID, None),
    "openai, parts": (_chat(content=TEXTS), SAID, None),
    "openai, the first of two choices": (
        {"choices": [*_chat(content=SAID)["choices"], {"index": 1, "message": {"content": "Rome."}}]}, SAID, None),
    "openai, a refusal": (_chat(content=None, refusal=SAID), SAID, None),
    "openai, audio": (_chat(content=None, audio={"id": "a", "data": "AAAA", "transcript": SAID}), SAID, None),
    "openai, tool": (_chat("tool_calls", content=None, tool_calls=CALLED), None, "tool_calls"),
    "openai, tool beside an empty text": (_chat("stop", content="", tool_calls=CALLED), None, "tool_calls"),
    "openai, custom tool": (
        _chat(content=None, tool_calls=[{"id": "t", "type": "custom", "custom": {"name": "find", "input": "x"}}]),
        None, "tool_calls"),
    "openai, function of old": (
        _chat(content=None, function_call={"name": "find", "arguments": ""}), None, "tool_calls"),
    "openai, filtered": (_chat("content_filter", content=""), None, "filtered"),
    "openai, an empty text": (_chat(content=""), "", None),
    "openai, cut": (_chat("length", content=None), None, "cut"),
    "openai, no choice": ({"choices": [], "usage": {}}, None, "no_choice"),
    "responses": (_responses(THOUGHT, _message(*OUTPUT_TEXT)), SAID, None),
    "responses, refusal": (_responses(_message({"type": "refusal", "refusal": SAID})), SAID, None),
    "responses, tool": (
        _responses(THOUGHT, {"type": "function_call", "call_id": "t", "name": "find", "arguments": "{}"}),
        None, "tool_calls"),
    "responses, tools of the server": (
        _responses({"type": "web_search_call", "action": {"query": "q"}},
                   {"type": "mcp_call", "name": "find", "arguments": "{}", "output": "found"}, _message(*OUTPUT_TEXT)),
        SAID, None),
    "responses, cut": (
        _responses(THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}), None, "cut"),
    "responses, filtered": (
        _responses(status="incomplete", incomplete_details={"reason": "content_filter"}), None, "filtered"),
    "anthropic": (_anthropic(THINKING, {"type": "redacted_thinking", "data": "x"}, *TEXTS), SAID, None),
    "anthropic, tool": (
        _anthropic(THINKING, {"type": "tool_use", "id": "t", "name": "find", "input": {}}, stop="tool_use"),
        None, "tool_calls"),
    "anthropic, search of the server": (
        _anthropic({"type": "server_tool_use", "id": "t", "name": "web_search", "input": {}},
                   {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": "Rome"}]},
                   *TEXTS), SAID, None),
    "anthropic, refusal": (_anthropic(stop="refusal"), None, "refused_by_provider"),
    "gemini": (_gemini({"text": "hm", "thought": True}, {"text": "Paris "}, {"text": "is."}), SAID, None),
    "gemini, code": (
        _gemini({"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}, {"text": SAID}),
        SAID, None),
    "gemini, tool": (_gemini({"functionCall": {"name": "find", "args": {}}}), None, "tool_calls"),
    "gemini, safety": ({"candidates": [{"finishReason": "SAFETY"}]}, None, "filtered"),
    "gemini, blocked": ({"promptFeedback": {"blockReason": "OTHER"}}, None, "filtered"),
    "bedrock": (_bedrock(BEDROCK_THOUGHT, {"text": "Paris "}, {"text": "is."}), SAID, None),
    "bedrock, citations": (_bedrock({"citationsContent": {"content": [{"text": SAID}], "citations": []}}), SAID, None),
    "bedrock, tool": (
        _bedrock({"toolUse": {"toolUseId": "t", "name": "find", "input": {}}}, stop="tool_use"), None, "tool_calls"),
    "bedrock, guardrail": (_bedrock(stop="guardrail_intervened"), None, "filtered"),
    "cohere": ({"message": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, *TEXTS]},
                "finish_reason": "COMPLETE"}, SAID, None),
    "cohere, tool": (
        {"message": {"role": "assistant", "tool_plan": "hm", "tool_calls": CALLED}, "finish_reason": "TOOL_CALL"},
        None, "tool_calls"),
    "mistral": (
        _chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, TEXTS[0],
                       {"type": "reference", "reference_ids": [1]}, TEXTS[1]]), SAID, None),
    "ollama": (
        {"message": {"role": "assistant", "content": SAID, "thinking": "hm"}, "done_reason": "stop"}, SAID, None),
    "langchain": ({"type": "ai", "content": [{"type": "reasoning", "reasoning": "hm"}, *TEXTS]}, SAID, None),
    "langchain, type and data": ({"type": "ai", "data": {"type": "ai", "content": SAID}}, SAID, None),
    "langchain, a constructor": (
        {"lc": 1, "type": "constructor", "kwargs": {"type": "ai", "content": SAID}}, SAID, None),
    "langchain, generations": (
        {"generations": [[{"text": SAID, "message": {"kwargs": {"type": "ai", "content": SAID}}}]]}, SAID, None),
    "langchain, pairs": ({"messages": [["user", "Where?"], ["ai", SAID]]}, SAID, None),
    "llama_index": (
        {"message": {"role": "assistant", "blocks": [{"block_type": "thinking", "content": "hm"},
                                                     {"block_type": "text", "text": SAID}]}, "raw": {}}, SAID, None),
    "haystack": (
        {"replies": [{"role": "assistant", "content": [{"reasoning": {"reasoning_text": "hm"}}, {"text": SAID}]}]},
        SAID, None),
    "pydantic-ai": (
        {"kind": "response", "parts": [{"part_kind": "thinking", "content": "hm"},
                                       {"part_kind": "text", "content": SAID}]},
        SAID, None),
    "autogen": (
        {"messages": [{"source": "user", "type": "TextMessage", "content": "Where?"},
                      {"source": "helper", "type": "ThoughtEvent", "content": "hm"},
                      {"source": "helper", "type": "TextMessage", "content": SAID}], "stop_reason": None}, SAID, None),
    "autogen, the question alone": (
        {"messages": [{"source": "user", "type": "TextMessage", "content": "Where?"}]}, None, "unread"),
    "semantic-kernel": (
        {"role": "assistant", "items": [{"content_type": "reasoning", "text": "hm"},
                                        {"content_type": "text", "text": SAID}]},
        SAID, None),
    "crewai": ({"raw": SAID, "pydantic": None, "tasks_output": [{"raw": "First."}], "token_usage": {}}, SAID, None),
    "vercel": (
        {"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": SAID}], "finishReason": "stop"},
        SAID, None),
    "conventions": ([{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"},
                                                     {"type": "text", "content": SAID}]}], SAID, None),
    "conventions, tool": (
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "t", "name": "find", "arguments": {}}]}],
        None, "tool_calls"),
    "a conversation": ({"messages": [USER, {**ASSISTANT, "tool_calls": CALLED}, TOOL, ASSISTANT]}, SAID, None),
    "a conversation that waits": ({"messages": [USER, ASSISTANT, USER], "__interrupt__": []}, None, "unread"),
    "a graph that waits": ({"question": "Where?", "__interrupt__": [{"value": "ok?"}]}, None, "unread"),
    "the last message is a tool's": ({"messages": [USER, TOOL]}, None, "unread"),
    "a status": ({"status": "ok", "finish_reason": None}, None, "unread"),
    "ids": ({"usage": {}, "id": "r1", "trace_id": "t1"}, None, "unread"),
    "a generator": ({"answer": "<generator object answer at 0x7f8e3c1b5d90>", "usage": {}}, None, "unread"),
    "a generator of an earlier version": ({"answer": "<builtins.generator>", "usage": {}}, None, "unread"),
}  # fmt: skip
"""A reply, its text, and why it has none."""
ERRORS: dict[str, tuple[Any, str | None, str]] = {
    "openrouter": ({"error": {"message": "Broken.", "code": 502}}, "502", "Broken."),
    "openrouter, in a choice": ({"choices": [{"error": {"message": "Broken.", "code": 502}, "finish_reason": "error"}]},
                                "502", "Broken."),
    "anthropic": ({"type": "error", "error": {"type": "overloaded_error", "message": "Broken."}}, "overloaded_error",
                  "Broken."),
    "responses": (_responses(status="failed", error={"code": "server_error", "message": "Broken."}), "server_error",
                  "Broken."),
    "ollama": ({"error": "model 'x' not found"}, None, "model 'x' not found"),
}  # fmt: skip
"""A reply with status 200 that is an error: type and message."""


def _objects(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{key: _objects(item) for key, item in value.items()})
    return [_objects(item) for item in value] if isinstance(value, list) else value


def _recorded(spans: RecordedSpans, kind: str, result: Any) -> RecordedSpan:
    getattr(ragpulse, kind)(name="call")(lambda question: result)("Where?")
    return spans.one("call")


@pytest.mark.parametrize("kind", ["llm", "rag"])
@pytest.mark.parametrize("form", [lambda value: value, _objects], ids=["json", "objects"])
@pytest.mark.parametrize("shape", REPLIES)
def test_the_sdk_reads_a_reply(ragpulse_spans: RecordedSpans, shape: str, form: Any, kind: str) -> None:
    """The text parts in order, or null with the reason; tool calls are recorded as such."""
    reply, text, reason = REPLIES[shape]
    span = _recorded(ragpulse_spans, kind, form(reply))
    assert (span.response, span.attributes.get("ragpulse.response.missing_reason")) == (text, reason)
    assert ("ragpulse.result.unread" in span.attributes) == (reason == "unread")
    if reason == "tool_calls":
        (message,) = json.loads(span.attributes["gen_ai.output.messages"])
        assert {(part["type"], part["name"]) for part in message["parts"]} == {("tool_call", "find")}
    if "refusal" in shape and text:
        assert span.attributes["ragpulse.response.refusal"] is True


@pytest.mark.parametrize("kind", ["LLM", "CHAIN"])
@pytest.mark.parametrize("shape", REPLIES)
def test_the_collector_reads_a_reply(shape: str, kind: str) -> None:
    """The same, from the JSON that instrumentations send."""
    reply, text, reason = REPLIES[shape]
    attributes = {
        "openinference.span.kind": kind,
        "output.value": json.dumps(reply),
        "output.mime_type": "application/json",
    }
    (span,) = spans_of(decode_json({"attributes": attributes}))
    assert (span.response, span.response_missing_reason) == (text, reason)


@pytest.mark.parametrize("shape", ERRORS)
def test_an_error_in_place_of_a_reply_is_one(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """On both sides: no response, and a failed span with the provider's type and message."""
    reply, kind, message = ERRORS[shape]
    span = _recorded(ragpulse_spans, "llm", reply)
    assert (span.response, span.error) == (None, kind or "ragpulse.ErrorReply")
    attributes = {
        "openinference.span.kind": "LLM",
        "output.value": json.dumps(reply),
        "output.mime_type": "application/json",
    }
    (stored,) = spans_of(decode_json({"attributes": attributes}))
    assert (stored.response, stored.status, stored.error_type, stored.status_message) == (None, "error", kind, message)


def _deltas(*pairs: tuple[int, dict[str, Any]]) -> list[Any]:
    return [{"choices": [{"index": index, "delta": delta}]} for index, delta in pairs]


def _words(wrap: Any) -> list[Any]:
    return [wrap("Paris "), wrap("is.")]


STREAMS: dict[str, tuple[list[Any], str | None, str | None]] = {
    "openai, two choices": (
        _deltas((1, {"content": "Rome"}), (0, {"content": "Paris "}), (1, {"content": "."}), (0, {"content": "is."})),
        SAID, None),
    "openai, reasoning": (_deltas((0, {"reasoning_content": "hm"}), (0, {"content": SAID})), SAID, None),
    "openai, tool": (
        _deltas((0, {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "find", "arguments": '{"a":'}}]}),
                (0, {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]})), None, "tool_calls"),
    "openai, filtered": (
        [*_deltas((0, {"content": ""})), {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]}],
        None, "filtered"),
    "openai, refusal": (_deltas((0, {"refusal": "Paris "}), (0, {"refusal": "is."})), SAID, None),
    "responses": (
        [{"type": "response.reasoning_text.delta", "delta": "hm"},
         *_words(lambda word: {"type": "response.output_text.delta", "delta": word}),
         {"type": "response.output_text.done", "text": SAID}], SAID, None),
    "anthropic": (
        [{"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
         {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
         *_words(lambda word: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}})],
        SAID, None),
    "gemini": ([_gemini({"text": "hm", "thought": True}), *_words(lambda word: _gemini({"text": word}))], SAID, None),
    "gemini, tool": ([_gemini({"functionCall": {"name": "find", "args": {"a": 1}}})], None, "tool_calls"),
    "bedrock": (
        [{"contentBlockDelta": {"delta": {"reasoningContent": {"text": "hm"}}}},
         *_words(lambda word: {"contentBlockDelta": {"delta": {"text": word}}})], SAID, None),
    "bedrock, tool": (
        [{"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "find"}}}},
         {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"a": 1}'}}}}],
        None, "tool_calls"),
    "cohere": (
        [{"type": "content-delta", "delta": {"message": {"content": {"thinking": "hm"}}}},
         *_words(lambda word: {"type": "content-delta", "delta": {"message": {"content": {"text": word}}}})],
        SAID, None),
    "cohere, tool": (
        [{"type": "tool-call-start", "index": 0,
          "delta": {"message": {"tool_calls": {"id": "t", "function": {"name": "find", "arguments": ""}}}}},
         {"type": "tool-call-delta", "index": 0,
          "delta": {"message": {"tool_calls": {"function": {"arguments": '{"a": 1}'}}}}}], None, "tool_calls"),
    "vercel": (
        [{"type": "reasoning-delta", "delta": "hm"}, *_words(lambda word: {"type": "text-delta", "delta": word})],
        SAID, None),
    "langgraph, messages": (
        [({"type": "human", "content": "Where?"}, {}), ({"type": "tool", "content": "found"}, {}),
         *_words(lambda word: ({"type": "AIMessageChunk", "content": word}, {"langgraph_node": "a"}))], SAID, None),
    "langgraph, several modes": (
        [("custom", {"text": "hm"}), ("messages", ({"type": "tool", "content": "found"}, {})),
         *_words(lambda word: ("messages", ({"type": "AIMessageChunk", "content": word}, {})))], SAID, None),
    "langgraph, version 2": (
        [{"type": "messages", "ns": (), "data": ({"type": "human", "content": "Where?"}, {})},
         *_words(lambda word: {"type": "messages", "ns": (), "data": ({"type": "ai", "content": word}, {})})],
        SAID, None),
    "langgraph, subgraphs": (
        _words(lambda word: (("a:1",), "messages", ({"type": "ai", "content": word}, {}))), SAID, None),
    "langgraph, states": (
        [{"messages": [USER, {**ASSISTANT, "content": "Before."}, USER]},
         {"messages": [USER, {**ASSISTANT, "content": "Before."}, USER, ASSISTANT]}], SAID, None),
    "langgraph, updates": ([{"agent": {"messages": [ASSISTANT]}}, {"log": {"messages": [TOOL]}}], SAID, None),
    "autogen": (
        [{"source": "user", "type": "TextMessage", "content": "Where?"},
         {"source": "helper", "type": "ThoughtEvent", "content": "hm"},
         {"source": "helper", "type": "TextMessage", "content": SAID}], SAID, None),
    "an empty text": ([""], "", None),
    "events alone": ([{"type": "start"}, {"type": "finish"}], None, "unread"),
}  # fmt: skip


@pytest.mark.parametrize("shape", STREAMS)
def test_the_sdk_reads_a_stream(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """What the assistant says, of the first choice; tool calls are put together."""
    items, text, reason = STREAMS[shape]
    list(ragpulse.llm(name="call")(lambda question: iter(items))("Where?"))
    span = ragpulse_spans.one("call")
    assert (span.response, span.attributes.get("ragpulse.response.missing_reason")) == (text, reason)
    if reason == "tool_calls":
        (message,) = json.loads(span.attributes["gen_ai.output.messages"])
        assert [(part["name"], part["arguments"]) for part in message["parts"]] == [("find", {"a": 1})]


def test_an_error_in_a_stream_fails_the_call_and_keeps_its_part(ragpulse_spans: RecordedSpans) -> None:
    """OpenRouter sends it as a chunk."""
    items = [*_deltas((0, {"content": "Paris"})), {"error": {"message": "Broken.", "code": 502}}]
    list(ragpulse.llm(name="call")(lambda question: iter(items))("Where?"))
    span = ragpulse_spans.one("call")
    assert (span.response, span.error) == ("Paris", "502")


OTHERS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Another?"}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "Another."}]),
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "Another?",
    "llm.output_messages.0.message.content": "Another.",
    "traceloop.entity.output": '"Another."',
}


@pytest.mark.parametrize("kind", ["rag", "llm", "agent", "retriever"])
def test_what_a_decorated_function_was_asked_and_returned_wins(kind: str) -> None:
    """Over what others set on its span, LiteLLM's callback for one."""
    own = {
        "ragpulse.span.kind": kind,
        "input.value": "Where?",
        **({} if kind == "retriever" else {"output.value": SAID}),
    }
    (span,) = spans_of(decode_json({"attributes": {**OTHERS, **own}}))
    assert (span.kind, span.query, span.response) == (kind, "Where?", None if kind == "retriever" else SAID)
    assert json.loads(span.mapped_from)["query"] == "input.value"


def test_others_replace_no_text_of_our_own_span(ragpulse_spans: RecordedSpans) -> None:
    """Neither while the function runs nor after it."""

    @ragpulse.llm
    def call(question: str) -> str:
        from opentelemetry import trace

        trace.get_current_span().set_attributes({"input.value": "Another?", "output.value": "Another."})
        return SAID

    call("Where?")
    span = ragpulse_spans.one("call")
    assert (span.query, span.response, span.attributes["output.value"]) == ("Where?", SAID, SAID)


@pytest.mark.parametrize(
    ("attributes", "response", "reason"),
    [
        ({"output.value": ""}, "", None),
        ({"output.value": "", "gen_ai.response.finish_reasons": ["content_filter"]}, None, "filtered"),
        ({"output.value": "__REDACTED__"}, None, "withheld"),
        ({"llm.output_messages.0.message.content": "__REDACTED__"}, None, "withheld"),
        ({"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find"}, None, "tool_calls"),
        ({"gen_ai.completion.0.tool_calls.0.name": "find"}, None, "tool_calls"),
        ({"ai.response.text": "", "ai.response.finishReason": "tool-calls"}, None, "tool_calls"),
        ({"gen_ai.response.finish_reasons": '["refusal"]'}, None, "refused_by_provider"),
        (
            {"llm.output_messages.0.message.role": "assistant",
             "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
             "llm.output_messages.0.message.contents.0.message_content.text": "hm",
             "llm.output_messages.0.message.contents.1.message_content.text": "Paris ",
             "llm.output_messages.0.message.contents.2.message_content.text": "is."}, SAID, None),
        ({"langfuse.observation.output": json.dumps([THINKING, *TEXTS])}, SAID, None),
        ({"mlflow.spanOutputs": json.dumps(_anthropic(THINKING, *TEXTS))}, SAID, None),
        ({"langsmith.span.kind": "llm", "gen_ai.completion": json.dumps(_anthropic(THINKING, *TEXTS))}, SAID, None),
        ({"traceloop.entity.output": json.dumps(_gemini({"text": "hm", "thought": True}, {"text": SAID}))}, SAID, None),
        ({"output.value": "Response(parts=[ThinkingPart(content='hm'), TextPart(content='Paris is.')])"}, SAID, None),
        ({"output.value": "StopEvent()"}, None, "unread"),
        ({"output.value": "<function <lambda> at 0x7f8e3c1b5d90>"}, None, "unread"),
        ({"traceloop.entity.output": "<async_generator object answer at 0x7f8e3c1b5d90>"}, None, "unread"),
        ({"ragpulse.span.kind": "llm", "ragpulse.content.captured": False}, None, "withheld"),
        ({"ragpulse.span.kind": "llm", "output.mime_type": "application/json",
          "output.value": '{"tool_calls":[{"name":"find","arguments":{"a":1}}]}'}, None, "tool_calls"),
        ({"ragpulse.span.kind": "rag", "output.mime_type": "application/json", "output.value": '{"status":"ok"}'},
         None, "unread"),
        ({"ragpulse.span.kind": "rag", "output.mime_type": "text/plain", "output.value": '{"city":"Paris"}'},
         '{"city":"Paris"}', None),
        ({"ragpulse.span.kind": "tool", "output.mime_type": "application/json", "output.value": '{"status":"ok"}'},
         '{"status":"ok"}', None),
    ],
)  # fmt: skip
def test_a_missing_response_has_its_reason(
    attributes: dict[str, Any], response: str | None, reason: str | None
) -> None:
    """Under the names of every vocabulary, and in spans of earlier versions of our own SDK."""
    (span,) = spans_of(decode_json({"attributes": {"openinference.span.kind": "LLM", **attributes}}))
    assert (span.response, span.response_missing_reason) == (response, reason)


def test_langfuses_trace_has_its_input_and_output() -> None:
    """On the span that stands for the trace; a model call in it has its own."""
    trace = {"langfuse.trace.input": '{"question": "Where?"}', "langfuse.trace.output": '"Paris is."'}
    (root,) = spans_of(decode_json({"attributes": {"langfuse.observation.type": "span", **trace}}))
    (call,) = spans_of(decode_json({"attributes": {"langfuse.observation.type": "generation", **trace}}))
    assert (root.query, root.response, call.query, call.response) == ("Where?", SAID, None, None)


@pytest.mark.parametrize(
    ("given", "query"),
    [
        ({"question": "Where?", "documents": ["a"]}, "Where?"),
        ({"messages": [USER, ASSISTANT, TOOL]}, "Where?"),
        (SimpleNamespace(query="Where?"), "Where?"),
        ({"messages": [], "step": 3}, None),
        (object(), None),
        ({"city": "Paris"}, "Paris"),
        ({"city": "Paris", "days": 3}, '{"city":"Paris","days":3}'),
    ],
)
def test_a_state_is_no_query(ragpulse_spans: RecordedSpans, given: Any, query: str | None) -> None:
    """The question in it is; values of a prompt stay JSON."""
    ragpulse.rag(name="call")(lambda state: SAID)(given)
    assert ragpulse_spans.one("call").query == query
