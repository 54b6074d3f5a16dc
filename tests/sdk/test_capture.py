"""What is read from arguments and results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import ragpulse
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]


@dataclass
class LangChainDocument:
    page_content: str
    metadata: dict[str, Any]
    id: str | None = None


class LlamaIndexNode:
    node_id = "n1"
    metadata: Mapping[str, Any] = {"file": "a.md"}

    def get_content(self) -> str:
        return "text of a node"


@dataclass
class HaystackDocument:
    content: str
    id: str
    score: float
    meta: dict[str, Any]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("one text", {"score": None, "content": "one text"}),
        ({"content": "c", "relevance_score": 0.5}, {"score": 0.5, "content": "c"}),
        (("text", 0.25), {"score": 0.25, "content": "text"}),
        ((0.25, "text"), {"score": 0.25, "content": "text"}),
        (LangChainDocument("p", {"source": "x"}, "i"),
         {"id": "i", "score": None, "content": "p", "metadata": {"source": "x"}}),
        ((LangChainDocument("p", {}), 0.75), {"score": 0.75, "content": "p"}),
        (SimpleNamespace(node=LlamaIndexNode(), score=0.5),
         {"id": "n1", "score": 0.5, "content": "text of a node", "metadata": {"file": "a.md"}}),
        (HaystackDocument("h", "h1", 0.1, {"k": 1}), {"id": "h1", "score": 0.1, "content": "h", "metadata": {"k": 1}}),
        (SimpleNamespace(text="duck"), {"score": None, "content": "duck"}),
        ({"id": 7, "payload": {"text": "inside"}},
         {"id": "7", "score": None, "content": "inside", "metadata": {"text": "inside"}}),
        ({"id": "only an id", "score": 1}, {"id": "only an id", "score": 1.0}),
    ],
)  # fmt: skip
def test_contexts_of_every_shape_become_one(
    ragpulse_spans: RecordedSpans, result: Any, expected: dict[str, Any]
) -> None:
    """Text, dict, pair, and the documents of three frameworks, none of them imported."""
    ragpulse.retriever(name="search")(lambda query: [result])("q")
    assert ragpulse_spans.one("search").contexts == [expected]


def test_larger_results_are_searched_for_their_documents(ragpulse_spans: RecordedSpans) -> None:
    """A search response, column-wise results, and an answer with its sources."""
    columns = {"ids": [["a", "b"]], "documents": [["A", "B"]], "metadatas": [[{"n": 1}, None]]}
    ragpulse.retriever(name="columns")(lambda query: columns)("q")
    ragpulse.retriever(name="matches")(lambda query: SimpleNamespace(matches=[{"id": "m", "score": 0.5}]))("q")
    ragpulse.rag(name="chain")(lambda query: {"answer": "yes", "source_documents": ["A"]})("q")
    assert [context["content"] for context in ragpulse_spans.one("columns").contexts] == ["A", "B"]
    assert ragpulse_spans.one("matches").contexts == [{"id": "m", "score": 0.5}]
    assert ragpulse_spans.one("chain").response == "yes"
    assert ragpulse_spans.one("chain").contexts == [{"score": None, "content": "A"}]


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (("Doc: Paris.", [{"id": "d", "text": "Paris."}]), None),
        (([{"id": "d", "text": "Paris."}], 1), None),
        (([{"id": "d", "text": "Paris."}], [0.5]), 0.5),
    ],
    ids=["text", "total", "scores"],
)
def test_documents_beside_something_else(ragpulse_spans: RecordedSpans, result: Any, score: float | None) -> None:
    """`(text, documents)` of a tool of LangChain, `(documents, total)`, `(documents, scores)`: the documents only."""
    ragpulse.retriever(name="search")(lambda query: result)("q")
    assert ragpulse_spans.one("search").contexts == [{"id": "d", "score": score, "content": "Paris."}]


def test_declared_capture_wins(ragpulse_spans: RecordedSpans) -> None:
    """`query`, `contexts`, `response` and `usage` read what they name."""

    @ragpulse.rag(
        query=lambda args: args["request"]["ask"],
        contexts=lambda result: result["found"],
        response=lambda result: result["said"],
        usage=lambda result: ragpulse.Usage(input_tokens=3, output_tokens=1, estimated=True),
    )
    def answer(request: dict[str, str], depth: int = 2) -> dict[str, Any]:
        return {"found": ["A"], "said": "yes"}

    answer({"ask": "why"})
    span = ragpulse_spans.one("answer")
    assert (span.query, span.response, span.contexts[0]["content"]) == ("why", "yes", "A")
    assert span.attributes["gen_ai.usage.input_tokens"] == 3
    assert span.attributes["ragpulse.usage.estimated"] is True


def test_the_query_is_found_by_name_position_or_declaration(ragpulse_spans: RecordedSpans) -> None:
    """A named parameter, the usual names, else the first argument."""
    ragpulse.rag(name="declared", query="b")(lambda a, b: "")("x", b="y")
    ragpulse.rag(name="usual")(lambda user, question: "")("u", "q")
    ragpulse.rag(name="first")(lambda thing: "")("t")
    ragpulse.rag(name="default")(lambda question="d": "")()
    assert [span.query for span in ragpulse_spans] == ["y", "q", "t", "d"]


def test_tools_record_all_arguments_as_json(ragpulse_spans: RecordedSpans) -> None:
    """Arguments by name, results as JSON."""
    ragpulse.tool(name="add")(lambda a, b=2: {"sum": a + b})(1)
    span = ragpulse_spans.one("add")
    assert (json.loads(span.query or ""), json.loads(span.response or "")) == ({"a": 1, "b": 2}, {"sum": 3})
    assert span.attributes["input.mime_type"] == "application/json"
    assert span.attributes["gen_ai.tool.name"] == "add"


def test_capture_can_be_switched_off_per_function(ragpulse_spans: RecordedSpans) -> None:
    """Neither query nor response nor documents."""
    for decorator in (ragpulse.rag, ragpulse.retriever):
        decorator(name="quiet", capture_inputs=False, capture_outputs=False)(lambda q: [q])("secret")
    for span in ragpulse_spans:
        assert "secret" not in json.dumps(span.attributes)


def test_current_span_adds_and_wins(ragpulse_spans: RecordedSpans) -> None:
    """What is set from within is what is sent."""

    @ragpulse.rag
    def answer(question: str) -> dict[str, str]:
        here = ragpulse.current_span()
        here.set(query="rewritten", response="short", contexts=["A"], model="m", cost_usd=0.5, metadata={"a": 1})
        here.set(usage=ragpulse.Usage(input_tokens=5, cached_tokens=2), metadata={"b": 2})
        assert here.trace_id == f"{1:032x}"
        return {"long": "object"}

    answer("q")
    span = ragpulse_spans.one("answer")
    assert (span.query, span.response, span.contexts[0]["content"]) == ("rewritten", "short", "A")
    recorded = span.attributes
    assert (recorded["gen_ai.request.model"], recorded["llm.cost.total"], recorded["gen_ai.usage.input_tokens"]) == (
        "m",
        0.5,
        5,
    )
    assert recorded["gen_ai.usage.cache_read.input_tokens"] == 2
    assert json.loads(recorded["metadata"]) == {"a": 1, "b": 2}


def test_usage_is_set_in_any_providers_form(ragpulse_spans: RecordedSpans) -> None:
    """An object or a mapping; one without counts is a mistake of the application."""
    with ragpulse.llm("object") as call:
        call.set(usage=SimpleNamespace(input_tokens=3, output_tokens=2))
    with ragpulse.llm("mapping") as call:
        call.set(usage={"prompt_tokens": 3, "completion_tokens": 2})
    assert [span.usage for span in ragpulse_spans] == [ragpulse.Usage(input_tokens=3, output_tokens=2)] * 2
    with ragpulse.llm("none") as call, pytest.raises(ValueError, match="no token counts"):
        call.set(usage=5)


def test_current_span_outside_a_span_is_a_no_op() -> None:
    """Nothing to set, nothing raised."""
    ragpulse.current_span().set(query="q", response="r")
    assert ragpulse.current_span().trace_id == ""


def test_context_managers_record_like_decorators(ragpulse_spans: RecordedSpans) -> None:
    """A `with` block of any kind is a span; errors are recorded and pass through."""
    with ragpulse.rag("turn") as turn, ragpulse.retriever("search") as search:
        turn.set(query="q", response="r")
        search.set(contexts=["A"])
    with pytest.raises(ValueError, match="no"), ragpulse.span("step", kind="guardrail"):
        raise ValueError("no")
    ragpulse_spans.assert_nested("search", "turn")
    assert ragpulse_spans.one(kind="guardrail").error == "ValueError"
    assert ragpulse_spans.one("turn").query == "q"


async def test_async_context_managers_record_too(ragpulse_spans: RecordedSpans) -> None:
    """`async with` is the same."""
    async with ragpulse.agent("run") as run:
        run.set(response="done")
    assert ragpulse_spans.one(kind="agent").response == "done"


def test_chat_messages_are_sent_in_the_conventions_shape(ragpulse_spans: RecordedSpans) -> None:
    """Messages in, messages out, and the last user text as the query."""
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is Paris?"}]},
    ]
    ragpulse.llm(name="chat")(
        lambda messages: {"choices": [{"message": {"content": "France."}, "finish_reason": "stop"}]}
    )(messages)
    span = ragpulse_spans.one("chat")
    assert span.query == "Where is Paris?"
    sent = json.loads(span.attributes["gen_ai.input.messages"])
    assert sent[1] == {"role": "user", "parts": [{"type": "text", "content": "Where is Paris?"}]}
    (said,) = json.loads(span.attributes["gen_ai.output.messages"])
    assert said == {"role": "assistant", "parts": [{"type": "text", "content": "France."}], "finish_reason": "stop"}


def test_embeddings_record_no_vectors(ragpulse_spans: RecordedSpans) -> None:
    """Usage and model, but not the numbers."""
    result = {"data": [{"embedding": [0.1, 0.2]}], "model": "e", "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    ragpulse.embedding(name="embed")(lambda texts: result)(["a"])
    recorded = ragpulse_spans.one("embed").attributes
    assert "0.1" not in json.dumps(recorded)
    assert (recorded["gen_ai.usage.input_tokens"], recorded["gen_ai.response.model"]) == (4, "e")
