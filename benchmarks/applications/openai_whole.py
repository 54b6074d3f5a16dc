"""The OpenAI client, whole answers: plain, raw, parsed, and a tool call."""

from typing import Any

from openai import OpenAI

import ragpulse

GROUP = "clients"
REQUIREMENTS = ["openai"]
EXPECTED = {
    "answer": {
        "kind": "rag",
        "query": "Where is Paris?",
        "response": "Paris is the capital of France.",
        "parent": None,
    },
    "chat": {"kind": "llm", "parent": "answer", "model": "gpt-5-mini", "input_tokens": 120, "output_tokens": 5},
    "raw_chat": {"response": "Paris is the capital of France.", "input_tokens": 120},
    "respond": {"response": "Paris is the capital of France.", "input_tokens": 120},
    "call_tool": {
        "response": None,  # a tool call is no answer; it stays on the span
        "attributes": {"ragpulse.response.missing_reason": "tool_calls"},
        "input_tokens": 120,
    },
    "trace": {"model": "gpt-5-mini", "input_tokens": 480, "output_tokens": 20, "cost_usd": ..., "scores": ...},
}

CLIENT = OpenAI()
MODEL = "gpt-5-mini"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


@ragpulse.retriever
def search(query: str) -> list[str]:
    return ["Paris is the capital of France."]


@ragpulse.llm
def chat(messages: list[Any]) -> Any:
    return CLIENT.chat.completions.create(model=MODEL, messages=messages)


@ragpulse.llm
def raw_chat(messages: list[Any]) -> Any:
    return CLIENT.chat.completions.with_raw_response.create(model=MODEL, messages=messages)


@ragpulse.llm
def respond(prompt: str) -> Any:
    return CLIENT.responses.create(model=MODEL, input=prompt)


@ragpulse.llm
def call_tool(messages: list[Any]) -> Any:
    return CLIENT.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])


@ragpulse.rag
def answer(question: str) -> str:
    messages = [{"role": "user", "content": f"{question} {search(question)}"}]
    assert raw_chat(messages).parse().choices[0].message.content
    respond(question)
    call_tool(messages)
    return str(chat(messages).choices[0].message.content)


if __name__ == "__main__":
    ragpulse.configure()
    answer("Where is Paris?")
    ragpulse.flush()
