"""The slice end to end: decorated functions, a socket, the stock protobuf."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

import ragpulse

from .conftest import Collector


@ragpulse.retriever
def search(query: str, k: int = 5) -> list[dict[str, object]]:
    """A search."""
    first: dict[str, object] = {"id": "d1", "text": "Paris is in France.", "score": 0.9, "metadata": {"page": 3}}
    second: dict[str, object] = {"text": "Lyon"}
    return [first, second][:k]


@ragpulse.llm(model="gpt-5-mini", provider="openai")
def generate(question: str, docs: list[dict[str, object]]) -> dict[str, object]:
    """A model's call."""
    return {"text": "Paris.", "model": "gpt-5-mini-1", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}


@ragpulse.rag(prompt_name="qa", prompt_version="v7")
def answer(question: str) -> str:
    """The application."""
    return str(generate(question, search(question))["text"])


def test_a_decorated_pipeline_arrives_as_one_trace(pulse: Collector) -> None:
    """Root, retrieval and generation share a trace, and each carries its kind."""
    assert answer("Where is Paris?") == "Paris."
    assert ragpulse.flush(timeout=60)
    root, found, written = pulse.one("answer"), pulse.one("search"), pulse.one("generate")
    assert {found.trace, written.trace} == {root.trace}
    assert (root.parent, found.parent, written.parent) == ("", root.id, root.id)
    assert [span.attributes["ragpulse.span.kind"] for span in (root, found, written)] == ["rag", "retriever", "llm"]
    assert root.attributes["input.value"] == "Where is Paris?"
    assert root.attributes["output.value"] == "Paris."
    assert root.resource["service.name"] == "tests"


def test_contexts_are_one_attribute_in_rank_order(pulse: Collector) -> None:
    """The retriever's result becomes one JSON string with id, score, content and metadata."""
    search("Where?", k=2)
    ragpulse.flush(timeout=60)
    span = pulse.one("search")
    documents = json.loads(span.attributes["gen_ai.retrieval.documents"])
    assert documents[0] == {"id": "d1", "score": 0.9, "content": "Paris is in France.", "metadata": {"page": 3}}
    assert documents[1] == {"score": None, "content": "Lyon"}
    assert span.attributes["gen_ai.retrieval.top_k"] == 2
    assert span.attributes["gen_ai.retrieval.query.text"] == "Where?"


def test_usage_and_model_are_read_from_the_result(pulse: Collector) -> None:
    """Tokens and both models are on the llm span."""
    generate("Where?", [])
    ragpulse.flush(timeout=60)
    attributes = pulse.one("generate").attributes
    assert attributes["gen_ai.usage.input_tokens"] == 12
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert (attributes["gen_ai.request.model"], attributes["gen_ai.response.model"]) == ("gpt-5-mini", "gpt-5-mini-1")


async def test_async_functions_and_streams_are_recorded(pulse: Collector) -> None:
    """A coroutine awaits a decorated async generator; both arrive, nested, with the joined text."""

    @ragpulse.llm
    async def stream(question: str) -> AsyncIterator[str]:
        for word in ("Paris", " ", "it is"):
            await asyncio.sleep(0)
            yield word

    @ragpulse.rag
    async def reply(question: str) -> str:
        return "".join([word async for word in stream(question)])

    assert await reply("Where?") == "Paris it is"
    ragpulse.flush(timeout=60)
    assert pulse.one("stream").attributes["output.value"] == "Paris it is"
    assert pulse.one("stream").parent == pulse.one("reply").id
    assert pulse.one("stream").attributes["gen_ai.response.time_to_first_chunk"] > 0


def test_feedback_travels_as_an_evaluation_event(pulse: Collector) -> None:
    """A person's score is a log record with the trace's id."""
    with ragpulse.span("turn") as span:
        trace_id = span.trace_id
    ragpulse.feedback(trace_id, score=-1, comment="wrong city")
    assert ragpulse.flush(timeout=60)
    (record,) = pulse.logs
    assert (record.event_name, record.trace_id.hex()) == ("gen_ai.evaluation.result", trace_id)
    found = {item.key: item.value for item in record.attributes}
    assert found["gen_ai.evaluation.score.value"].double_value == -1.0
    assert found["gen_ai.evaluation.explanation"].string_value == "wrong city"
    assert found["ragpulse.score.source"].string_value == "human"


@pytest.mark.parametrize(("wanted", "encoding"), [("gzip", "gzip"), ("none", None), ("", None)])
def test_requests_are_protobuf_with_the_key(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, wanted: str, encoding: str | None
) -> None:
    """OTLP/HTTP as every collector takes it, compressed on this computer when asked; the key is a bearer token."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", wanted)
    ragpulse.configure(endpoint=collector.url, api_key="k1")
    search("Where?")
    ragpulse.shutdown(timeout=60)
    (request,) = collector.requests
    assert request["path"] == "/v1/traces"
    assert request.get("Content-Encoding") == encoding
    assert request["Content-Type"] == "application/x-protobuf"
    assert request["Authorization"] == "Bearer k1"


def test_stats_count_what_was_delivered(pulse: Collector) -> None:
    """Exported counts every accepted span."""
    answer("Where is Paris?")
    ragpulse.flush(timeout=60)
    found = ragpulse.stats()
    assert (found.exported, found.dropped, found.rejected, found.pending) == (3, 0, 0, 0)
