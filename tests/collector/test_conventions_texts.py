"""What is a query and what is a response: texts for people, never a program's spelling of its objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spans import Span, spans_of
from wire_support import decode_json

_HUMAN = {"type": "human", "data": {"content": "q", "type": "human"}}
_AI = {"type": "ai", "data": {"content": "a", "type": "ai"}}
_LC_AI = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {"content": "a", "type": "ai"}}
_HAYSTACK = (
    "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[TextContent(text='a')], _name=None, _meta={})"
)
_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
}
_DOCUMENTS = [{"id": "d", "page_content": "text", "metadata": {}, "type": "Document"}]
RESPONSES: dict[str, tuple[Any, str | None]] = {
    "the last message of a graph's state": (
        {"messages": [_HUMAN, _AI, {**_HUMAN}, {**_AI, "data": {"content": "b"}}]},
        "b",
    ),
    "serialized messages": ({"messages": [_HUMAN, _LC_AI]}, "a"),
    "a question without an answer is none": (
        [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        None,
    ),
    "a call of a tool is no answer": (_CALL, None),
    "generations of a failed call": ({"generations": [[{"text": "", "message": {"kwargs": {"content": ""}}}]]}, None),
    "a graph's state with its answer": ({"question": "q", "documents": _DOCUMENTS, "generation": "a"}, "a"),
    "a graph's state without one": ({"question": "q", "context": _DOCUMENTS}, None),
    "a command of a graph": ([{"graph": None, "update": {"messages": [_AI]}, "goto": []}], "a"),
    "Haystack's repr of a message": ({"llm": {"replies": [_HAYSTACK]}}, "a"),
    "CrewAI's output": ({"raw": "a", "pydantic": None, "tasks_output": [{"raw": "b"}]}, "a"),
    "a response of OpenAI": (
        {"object": "response", "output": [{"role": "assistant", "content": [{"text": "a"}]}]},
        "a",
    ),
    "a list of texts": (["a", "b"], "a\nb"),
    "documents": (_DOCUMENTS, None),
    "an object with a known key": ({"answer": "a", "n": 1}, "a"),
    "an object of its own": ({"sum": 3, "unit": "EUR"}, None),
    "reprs of nodes": ({"nodes": ["<TextNode(id_=d1)>"]}, None),
}
"""What a chain returned as declared JSON, and its response."""
PLAIN: dict[str, tuple[str, str | None]] = {
    "text": ("Five (5) days.", "Five (5) days."),
    "markup": ("<p>Five days.</p>", "<p>Five days.</p>"),
    "code": ("Foo(bar)", "Foo(bar)"),
    "a list that is a text": ('["a", "b"]', '["a", "b"]'),
    "an object that is a text": ('{"answer": "x", "n": 1}', '{"answer": "x", "n": 1}'),
    "messages": (json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]), "a"),
    "a generator": ("<generator object answer at 0x7f8e3c1b5d90>", None),
    "a coroutine of a closure": ("<coroutine object run.<locals>.answer at 0x7f8e3c1b5d90>", None),
    "a message's repr": (_HAYSTACK, "a"),
    "a dataclass": ("Reply(answer='a', sources=['b'])", "a"),
    "pydantic's str": ("answer='It is \"a\".' sources=['b']", 'It is "a".'),
    "a step of an agent": ("ActionStep(step_number=1, timing=Timing(start_time=1.5, end_time=None))", None),
}
"""What a chain returned as a text, and its response."""


def _span(**attributes: Any) -> Span:
    (span,) = spans_of(decode_json({"attributes": {"openinference.span.kind": "CHAIN", **attributes}}))
    return span


def _flags(span: Span) -> list[str]:
    found: list[str] = json.loads(span.mapped_from).get("flags", [])
    return found


@pytest.mark.parametrize("case", RESPONSES)
def test_declared_json_is_read_or_refused(case: str) -> None:
    """The last message of the assistant, the key that names the answer, or null with a reason."""
    value, response = RESPONSES[case]
    span = _span(**{"output.value": json.dumps(value), "output.mime_type": "application/json"})
    assert span.response == response
    assert ("response_is_no_text" in _flags(span)) == (response is None)


@pytest.mark.parametrize("case", PLAIN)
def test_a_text_is_what_it_says(case: str) -> None:
    """Also where it happens to be JSON; objects' reprs are read or null with a reason."""
    value, response = PLAIN[case]
    span = _span(**{"output.value": value})
    assert span.response == response
    assert ("response_is_no_text" in _flags(span)) == (response is None)


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ({"messages": [_HUMAN, _AI, {"type": "human", "data": {"content": "q2"}}, _AI]}, "q2"),
        ({"messages": ["ChatMessage(role=<MessageRole.SYSTEM: 'system'>, blocks=[TextBlock(text='s')])",
                       "ChatMessage(role=<MessageRole.USER: 'user'>, blocks=[TextBlock(text='q')])"]}, "q"),
        ({"prompt": "SelectorPromptTemplate(metadata={}, kwargs={'query_str': 'q'})"}, None),
        ({"task": "q", "stream": False, "images": None}, "q"),
        ({"data": {"retriever": {"query": "q"}, "ranker": {"top_k": 3}}}, "q"),
    ],
)  # fmt: skip
def test_a_query_is_what_the_user_said_last(value: Any, query: str | None) -> None:
    """Not the first message, not a prompt's template."""
    span = _span(**{"input.value": json.dumps(value), "input.mime_type": "application/json"})
    assert span.query == query
    assert ("query_is_no_text" in _flags(span)) == (query is None)


@pytest.mark.parametrize("text", ['{"answer": "x", "n": 1}', '["a", "b"]', '{"message": "hello", "choices": ["a"]}'])
def test_json_that_a_model_wrote_stays_whole(text: str) -> None:
    """Under every name that a model's own text has."""
    said = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    for attributes in (
        {"gen_ai.output.messages": json.dumps(said)},
        {"gen_ai.completion": text},
        {"llm.output_messages.0.message.content": text},
        {"openinference.span.kind": "LLM", "output.value": text},
        {"mlflow.spanOutputs": json.dumps(text)},
        {"traceloop.entity.output": json.dumps(text)},
        {"ai.response.object": text},
    ):
        assert _span(**attributes).response == text, attributes


@pytest.mark.parametrize(
    ("output", "response"),
    [('{"status": "ok"}', None), ('{"ids": [1, 2]}', None), ('{"city": "Paris", "days": 3}', None), ("[1, 2]", None),
     ('{"answer": "x", "n": 1}', "x"), ('["a", "b"]', "a\nb"), ('"{\\"city\\": 1}"', '{"city": 1}')],
)  # fmt: skip
def test_an_output_of_a_model_is_read_or_has_no_response(output: str, response: str | None) -> None:
    """Under every name that the result of a call has: nothing is dumped."""
    llm = {"openinference.span.kind": "LLM"}
    for attributes in (
        {"output.value": output, "output.mime_type": "application/json"},
        {"langfuse.observation.type": "generation", "langfuse.observation.output": output},
        {"mlflow.spanOutputs": output},
        {"traceloop.entity.output": output},
    ):
        span = _span(**llm, **attributes)
        assert (span.response, span.response_missing_reason) == (response, None if response else "unread"), attributes


@pytest.mark.parametrize("kind", ["RETRIEVER", "CHAIN"])
def test_reprs_are_never_contexts(kind: str) -> None:
    """LlamaIndex's inner retriever returns the reprs of its nodes."""
    nodes = json.dumps(["<NodeWithScore(node=TextNode(id_=d0), score=0.9)>"])
    span = _span(**{"openinference.span.kind": kind, "output.value": nodes, "output.mime_type": "application/json"})
    assert (span.contexts, span.response) == (None, None)
