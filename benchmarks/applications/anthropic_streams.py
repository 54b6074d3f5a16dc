"""The Anthropic client: whole, raw and streamed answers, and a tool call."""

from typing import Any

from anthropic import Anthropic

import ragpulse

GROUP = "clients"
REQUIREMENTS = ["anthropic"]
EXPECTED = {
    "answer": {"kind": "rag", "response": "Paris is the capital of France."},
    "whole": {"response": "Paris is the capital of France.", "model": "claude-sonnet-4-5", "output_tokens": 5},
    "raw": {"response": "Paris is the capital of France.", "input_tokens": 120},
    "stream": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "call_tool": {
        "response": None,  # a tool call is no answer; it stays on the span
        "attributes": {"ragpulse.response.missing_reason": "tool_calls"},
    },
    "trace": {"input_tokens": 480, "output_tokens": 20, "model": "claude-sonnet-4-5", "cost_usd": ...},
}

CLIENT = Anthropic()
ASK: Any = {"model": "claude-sonnet-4-5", "max_tokens": 50}
TOOL: Any = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


@ragpulse.llm
def whole(messages: list[Any]) -> Any:
    return CLIENT.messages.create(messages=messages, **ASK)


@ragpulse.llm
def raw(messages: list[Any]) -> Any:
    return CLIENT.messages.with_raw_response.create(messages=messages, **ASK)


@ragpulse.llm
def stream(messages: list[Any]) -> Any:
    return CLIENT.messages.stream(messages=messages, **ASK)


@ragpulse.llm
def call_tool(messages: list[Any]) -> Any:
    return CLIENT.messages.create(messages=messages, tools=[TOOL], **ASK)


@ragpulse.rag
def answer(question: str) -> str:
    messages = [{"role": "user", "content": question}]
    whole(messages)
    raw(messages)
    call_tool(messages)
    with stream(messages) as events:
        return "".join(events.text_stream)


if __name__ == "__main__":
    ragpulse.configure()
    answer("Where is Paris?")
    ragpulse.flush()
