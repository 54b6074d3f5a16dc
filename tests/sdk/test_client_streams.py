"""A function that returns a stream of a client or framework: its span lasts until the stream is read."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.llms import ChatMessage, ChatResponse
from llama_index.core.schema import NodeWithScore, TextNode
from loopback import LoopbackModel
from openai import APIStatusError, OpenAI
from openinference.instrumentation.anthropic import AnthropicInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

import ragpulse
from ragpulse.testing import RecordedSpans, ragpulse_spans

from .conftest import Collector

__all__ = ["ragpulse_spans"]

SAID = "Paris is in France."
WORDS = ["Paris ", "is ", "in ", "France."]
MESSAGES: Any = [{"role": "user", "content": "Where is Paris?"}]
USAGE: Any = {"include_usage": True}
pytestmark = pytest.mark.anyio


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    """A model behind both clients; a question with "refuse" is an error."""
    running = LoopbackModel(lambda prompt: 400 if "refuse" in prompt else SAID)
    yield running
    running.close()


@pytest.fixture
def instrumented(pulse: Collector) -> Iterator[Collector]:
    """Both clients are instrumented on our provider."""
    instrumentors = (OpenAIInstrumentor(), AnthropicInstrumentor())
    for each in instrumentors:
        each.instrument(tracer_provider=ragpulse.tracer_provider())
    yield pulse
    for each in instrumentors:
        each.uninstrument()


Ask = Callable[[OpenAI, Anthropic], Any]
STREAMS: dict[str, Ask] = {
    "chat": lambda o, a: o.chat.completions.create(model="m", messages=MESSAGES, stream=True, stream_options=USAGE),
    "chat helper": lambda o, a: o.chat.completions.stream(model="m", messages=MESSAGES, stream_options=USAGE),
    "responses": lambda o, a: o.responses.create(model="m", input="Where?", stream=True),
    "responses helper": lambda o, a: o.responses.stream(model="m", input="Where?"),
    "messages": lambda o, a: a.messages.create(model="m", messages=MESSAGES, max_tokens=9, stream=True),
    "messages helper": lambda o, a: a.messages.stream(model="m", messages=MESSAGES, max_tokens=9),
}  # fmt: skip


@pytest.mark.parametrize("shape", STREAMS)
def test_an_instrumented_clients_stream_is_one_trace(instrumented: Collector, model: LoopbackModel, shape: str) -> None:
    """The client's span is below the call, although a helper sends its request after the function has returned."""
    with (
        OpenAI(base_url=model.url, api_key="none") as openai,
        Anthropic(base_url=model.url.removesuffix("/v1"), api_key="none") as anthropic,
    ):
        returned = ragpulse.llm(name="call")(lambda question: STREAMS[shape](openai, anthropic))("q")
        with returned as stream:
            next(iter(stream))
            during = time.time_ns()
            for _ in stream:
                pass
    ragpulse.flush()
    call = instrumented.one("call")
    (client,) = [span for span in instrumented.spans if span is not call]
    assert (client.trace, client.parent) == (call.trace, call.id)
    assert call.message.end_time_unix_nano > during
    assert call.attributes["output.value"] == SAID
    assert (call.attributes["gen_ai.usage.input_tokens"], call.attributes["gen_ai.usage.output_tokens"]) == (120, 5)
    assert "ragpulse.ended_early" not in call.attributes


def test_a_request_that_fails_when_its_block_is_entered_is_the_calls_error(
    ragpulse_spans: RecordedSpans, model: LoopbackModel
) -> None:
    """A helper's request is sent then."""
    with OpenAI(base_url=model.url, api_key="none", max_retries=0) as openai:
        refused: Any = [{"role": "user", "content": "refuse"}]
        ask = ragpulse.llm(name="call")(lambda question: openai.chat.completions.stream(model="m", messages=refused))
        with pytest.raises(APIStatusError), ask("q"):
            pass
    assert ragpulse_spans.one("call").error == "openai.BadRequestError"


NODES = [NodeWithScore(node=TextNode(id_="d1", text="Paris is a city."), score=0.5)]


def _chunks() -> Iterator[ChatResponse]:
    for word in WORDS:
        yield ChatResponse(message=ChatMessage(role="assistant", content=word), delta=word)


def _chat(**given: Any) -> StreamingAgentChatResponse:
    return StreamingAgentChatResponse(source_nodes=NODES, is_writing_to_memory=False, **given)


ANSWERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "read by its iterator": (lambda: StreamingResponse(iter(WORDS), NODES), lambda it: list(it.response_gen)),  # type: ignore[arg-type]
    "read by a generator": (lambda: StreamingResponse((w for w in WORDS), NODES), lambda it: list(it.response_gen)),
    "read as a whole": (lambda: StreamingResponse((w for w in WORDS), NODES), lambda it: it.get_response()),
    "printed": (lambda: StreamingResponse((w for w in WORDS), NODES), lambda it: it.print_response_stream()),
    "of a chat": (lambda: _chat(chat_stream=_chunks()), lambda it: list(it.response_gen)),
}


@pytest.mark.parametrize("shape", ANSWERS)
def test_a_streaming_answer_of_llama_index_has_its_text_and_sources(ragpulse_spans: RecordedSpans, shape: str) -> None:
    """The same object is returned; the user's functions take it, and not the items of its stream."""
    make, read = ANSWERS[shape]
    given: Any
    for given in ({}, {"contexts": lambda answer: [node.text for node in answer.source_nodes]}):
        ragpulse_spans.clear()
        answer = make()
        assert ragpulse.rag(name="call", **given)(lambda made: made)(answer) is answer
        assert len(ragpulse_spans) == 0
        read(answer)
        span = ragpulse_spans.one("call")
        assert (span.response, [context.text for context in span.contexts]) == (SAID, ["Paris is a city."])


async def test_an_asynchronous_answer_of_llama_index_has_its_text(ragpulse_spans: RecordedSpans) -> None:
    """`response_gen` and `async_response_gen` of a query engine."""

    async def words() -> Any:
        for word in WORDS:
            yield word

    @ragpulse.rag
    async def answer(question: str) -> AsyncStreamingResponse:
        return AsyncStreamingResponse(words(), NODES)

    returned = await answer("q")
    assert [text async for text in returned.async_response_gen()] == WORDS
    assert ragpulse_spans.one("answer").response == SAID


class EventStream:
    """As the event stream of boto3: it can be iterated, and is no iterator."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for word in WORDS:
            yield {"contentBlockDelta": {"delta": {"text": word}, "contentBlockIndex": 0}}
        yield {"metadata": {"usage": {"inputTokens": 120, "outputTokens": 5}}}

    def close(self) -> None:
        """Closes the connection."""


class RunResultBase:
    """As of openai-agents."""

    final_output = SAID


class RunResultStreaming(RunResultBase):
    """As of openai-agents: the events are read by a method."""

    context_wrapper = SimpleNamespace(usage={"input_tokens": 120, "output_tokens": 5})

    async def stream_events(self) -> Any:
        """The events."""
        for word in WORDS:
            yield {"type": "raw_response_event", "delta": word}


@pytest.fixture
def known() -> None:
    """The classes above are those of their packages, which are not installed here."""
    EventStream.__module__ = "botocore.eventstream"
    RunResultBase.__module__ = RunResultStreaming.__module__ = "agents.result"


@pytest.mark.parametrize("within", [False, True])
def test_a_reply_of_boto3_is_recorded_while_its_stream_is_read(
    ragpulse_spans: RecordedSpans, known: None, within: bool
) -> None:
    """The reply or the stream in it is returned."""
    stream = EventStream()
    reply = {"ResponseMetadata": {}, "stream": stream}
    returned: Any = ragpulse.llm(name="call")(lambda question: reply if within else stream)("q")
    assert returned is (reply if within else stream)
    for _ in stream:
        assert len(ragpulse_spans) == 0
    span = ragpulse_spans.one("call")
    assert (span.response, span.usage) == (SAID, ragpulse.Usage(input_tokens=120, output_tokens=5))


@pytest.mark.parametrize("whole", [False, True])
async def test_a_run_of_openai_agents_ends_with_its_events(
    ragpulse_spans: RecordedSpans, known: None, whole: bool
) -> None:
    """It then has its output; left early, the run is marked, although it is still referenced."""
    run = ragpulse.agent(name="call")(lambda question: RunResultStreaming())("q")
    events = run.stream_events()
    async for _ in events:
        if not whole:
            break
    await events.aclose()
    span = ragpulse_spans.one("call")
    assert span.attributes.get("ragpulse.ended_early", False) is not whole
    if whole:
        assert (span.response, span.usage) == (SAID, ragpulse.Usage(input_tokens=120, output_tokens=5))


class StreamedRunResult:
    """As of pydantic-ai, which gives it to a block."""

    is_complete = False
    usage = SimpleNamespace(input_tokens=120, output_tokens=5)
    response = SimpleNamespace(parts=[SimpleNamespace(part_kind="text", content=SAID)], model_name="m")

    async def stream_text(self, *, delta: bool = False) -> AsyncIterator[str]:
        """The text so far, or the new part of it."""
        for count, word in enumerate(WORDS, 1):
            yield word if delta else "".join(WORDS[:count])
        self.is_complete = True


StreamedRunResult.__module__ = "pydantic_ai.result"


@asynccontextmanager
async def run_stream(question: str) -> AsyncIterator[StreamedRunResult]:
    """As of pydantic-ai's agents; a model is called before and while the stream is read."""
    with ragpulse.llm("before"):
        pass
    yield StreamedRunResult()


@contextmanager
def _question(question: str) -> Iterator[str]:
    yield question.upper()


async def _read(stream: StreamedRunResult, *, delta: bool = False) -> StreamedRunResult:
    async for _ in stream.stream_text(delta=delta):
        pass
    return stream


async def _within(question: str) -> StreamedRunResult:
    async with run_stream(question) as stream:
        return await _read(stream)


@pytest.mark.parametrize("delta", [False, True])
async def test_a_manager_of_a_stream_is_one_trace_with_the_whole_text(
    ragpulse_spans: RecordedSpans, delta: bool
) -> None:
    """Returned, it is the very object; what runs in its block is below the call."""
    manager = run_stream("q")
    assert ragpulse.rag(name="call")(lambda question: manager)("q") is manager
    async with manager as stream:
        with ragpulse.llm("during"):
            await _read(stream, delta=delta)
    span = ragpulse_spans.one("call")
    assert (span.response, span.usage) == (SAID, ragpulse.Usage(input_tokens=120, output_tokens=5))
    for name in ("before", "during"):
        ragpulse_spans.assert_nested(name, "call")


async def test_a_stream_that_was_read_is_a_result_and_an_open_one_is_recorded_as_it_is_read(
    ragpulse_spans: RecordedSpans,
) -> None:
    """The function leaves the block itself, or returns the stream within it."""
    await ragpulse.rag(name="within")(_within)("q")
    opened = ragpulse.rag(name="open")(lambda question: StreamedRunResult())("q")
    assert len(ragpulse_spans) == 2  # `before` and `within`
    await _read(opened)
    for name in ("within", "open"):
        span = ragpulse_spans.one(name)
        assert (span.response, span.usage) == (SAID, ragpulse.Usage(input_tokens=120, output_tokens=5))


def test_a_manager_ends_its_call_however_its_block_is_left(ragpulse_spans: RecordedSpans) -> None:
    """By its end, by an exception (which stays the same), or never entered."""
    call = ragpulse.span(name="call")(_question)
    with call("a") as given:
        assert given == "A"
    error = ValueError("no")
    with pytest.raises(ValueError, match="no") as raised, call("b"):
        raise error
    assert raised.value is error
    unused = call("c")
    del unused
    spans = list(ragpulse_spans)
    assert [(span.response, span.error) for span in spans] == [("A", None), (None, "ValueError"), (None, None)]
    assert spans[2].attributes["ragpulse.ended_early"] is True
