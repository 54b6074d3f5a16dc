"""Genuine instrumentations on our provider: they use our spans as they use the OpenTelemetry SDK's."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from loopback import LoopbackModel
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from waiting import eventually

import ragpulse

from .conftest import Collector


@ragpulse.rag
def answer(question: str) -> str:
    """The application."""
    return "yes"


def _application() -> FastAPI:
    app = FastAPI()

    @app.get("/ask/{question}")
    def ask(question: str) -> str:
        return answer(question)

    return app


def test_a_streaming_response_is_recorded_to_its_end(pulse: Collector) -> None:
    """The decorated endpoint has returned long before its body is made."""
    app = FastAPI()

    async def words() -> AsyncIterator[str]:
        ragpulse.llm(lambda question: "inner")("?")
        for word in ("Paris ", "is."):
            yield f"data: {word}\n\n"

    @app.get("/ask/{question}")
    @ragpulse.rag
    async def stream(question: str) -> StreamingResponse:
        return StreamingResponse(words())

    assert TestClient(app).get("/ask/Where").text == "data: Paris \n\ndata: is.\n\n"
    ragpulse.flush()
    span = pulse.one("stream")
    assert (span.attributes["input.value"], span.attributes["output.value"]) == ("Where", "Paris is.")
    assert "ragpulse.ended_early" not in span.attributes
    assert pulse.one("<lambda>").parent == span.id


@pytest.fixture
def seen(pulse: Collector) -> Iterator[InMemorySpanExporter]:
    """An exporter of the application on our provider."""
    exporter = InMemorySpanExporter()
    ragpulse.tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    ragpulse.tracer_provider().shutdown()


def test_fastapis_instrumentor_serves_requests_on_our_provider(pulse: Collector, seen: InMemorySpanExporter) -> None:
    """Each request is a span of the collector with the recorded call below it, and keeps the caller's trace."""
    app = _application()
    FastAPIInstrumentor.instrument_app(app, tracer_provider=ragpulse.tracer_provider())
    caller = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    found = TestClient(app).get("/ask/why", headers={"traceparent": caller})
    assert (found.status_code, found.json()) == (200, "yes")
    ragpulse.flush(timeout=60)
    request = pulse.one("GET /ask/{question}")
    assert pulse.one("answer").parent == request.id
    assert (request.trace, request.parent) == ("1" * 32, "2" * 16)
    assert request.message.kind == 2
    assert request.attributes["http.route"] == "/ask/{question}"
    names = [span.name for span in seen.get_finished_spans()]
    assert names[0].endswith("answer")
    assert names[-1] == "GET /ask/{question}"


def test_fastapis_instrumentor_finds_our_global_provider(collector: Collector) -> None:
    """With `set_global=True` the instrumentor needs no argument, also after a second `configure`."""
    code = """
        import sys
        from fastapi import FastAPI
        from fastapi.testclient import TestClient
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        import ragpulse
        ragpulse.configure(endpoint="http://127.0.0.1:9", set_global=True)
        app = FastAPI()
        app.get("/ask")(ragpulse.rag(name="answer")(lambda: "yes"))
        FastAPIInstrumentor.instrument_app(app)
        ragpulse.configure(endpoint=sys.argv[1], set_global=True)
        assert TestClient(app).get("/ask").json() == "yes"
        ragpulse.shutdown(timeout=60)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), collector.url], check=True, timeout=60)
    assert collector.one("answer").parent == collector.one("GET /ask").id


def test_a_span_has_what_the_sdks_span_has(pulse: Collector, seen: InMemorySpanExporter) -> None:
    """Every property of `ReadableSpan` and every call of the API, while the span is open and at its end."""
    tracer = ragpulse.tracer_provider().get_tracer("library", "1.2")
    above = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1))
    context = trace.set_span_in_context(trace.NonRecordingSpan(above))
    links = [Link(SpanContext(9, 10, is_remote=False), {"why": "cause"})]
    span: Any = tracer.start_span("first", context, SpanKind.SERVER, {"a": 1}, links, start_time=5)
    span.set_attributes({"b": [1, 2], "input.value": "x"})
    span.add_event("happened", {"n": 1}, 6)
    span.record_exception(ValueError("no"))
    span.update_name("second")
    span.set_status(StatusCode.ERROR, "failed")
    assert span.is_recording()
    span.end(end_time=9)
    assert not span.is_recording()
    span.set_attribute("late", True)
    span.update_name("third")
    copy: Any
    (copy,) = seen.get_finished_spans()
    assert type(copy) is ReadableSpan
    both: tuple[Any, Any] = (span, copy)
    for one in both:
        assert (one.name, one.kind, one.start_time, one.end_time) == ("second", SpanKind.SERVER, 5, 9)
        assert one.parent == above
        assert one.context == span.get_span_context()
        assert dict(one.attributes) == {"a": 1, "b": (1, 2), "input.value": "x"}
        assert [event.name for event in one.events] == ["happened", "exception"]
        assert (one.events[0].timestamp, dict(one.events[0].attributes)) == (6, {"n": 1})
        assert one.links[0].context.trace_id == 9
        assert (one.status.status_code, one.status.description) == (StatusCode.ERROR, "failed")
        assert one.resource.attributes["service.name"] == "tests"
        assert (one.instrumentation_scope.name, one.instrumentation_scope.version) == ("library", "1.2")
    assert span.to_json() == copy.to_json()


def test_a_decorator_of_our_tracer_makes_a_span_a_call(pulse: Collector) -> None:
    """`start_as_current_span` also decorates functions; an exception fails the span and leaves the function."""

    @ragpulse.tracer_provider().get_tracer("library").start_as_current_span("step")
    def step(number: int) -> int:
        answer(str(number))
        return 1 // number

    assert step(1) == 1
    with pytest.raises(ZeroDivisionError):
        step(0)
    ragpulse.flush(timeout=60)
    steps = [span for span in pulse.spans if span.name == "step"]
    assert [span.message.status.code for span in steps] == [0, 2]
    assert {span.parent for span in pulse.spans if span not in steps} == {span.id for span in steps}


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    """A model for a genuine client."""
    running = LoopbackModel(lambda _: "yes")
    yield running
    running.close()


@pytest.mark.parametrize("foreign", [False, True], ids=["own provider", "the application's provider"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_model_call_that_returns_a_text_has_the_usage_of_its_client(
    collector: Collector, model: LoopbackModel, foreign: bool, streamed: bool
) -> None:
    """OpenInference sees tokens and model of two calls below it; the decorated function returns words only."""
    given = TracerProvider() if foreign else None
    ragpulse.configure(endpoint=collector.url, tracer_provider=given)
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=given or ragpulse.tracer_provider())
    client = OpenAI(base_url=model.url, api_key="none")
    messages: Any = [{"role": "user", "content": "Why?"}]
    usage: Any = {"include_usage": True}

    @ragpulse.llm
    def words(question: str) -> str:
        client.chat.completions.create(model="m", messages=messages)
        return str(client.chat.completions.create(model="m", messages=messages).choices[0].message.content)

    @ragpulse.llm
    def stream(question: str) -> Iterator[str]:
        client.chat.completions.create(model="m", messages=messages)
        for chunk in client.chat.completions.create(model="m", messages=messages, stream=True, stream_options=usage):
            yield chunk.choices[0].delta.content or "" if chunk.choices else ""

    try:
        assert "".join((stream if streamed else words)("Why?")) == "yes"
    finally:
        instrumentor.uninstrument()
        client.close()
    ragpulse.shutdown(timeout=60)
    on_span = collector.one("stream" if streamed else "words").attributes
    assert (on_span["gen_ai.usage.input_tokens"], on_span["gen_ai.usage.output_tokens"]) == (240, 10)
    assert (on_span["gen_ai.response.model"], on_span["output.value"]) == ("m", "yes")


@pytest.mark.parametrize("decorated", [False, True])
def test_a_client_nests_in_the_span_that_a_callback_opened(pulse: Collector, decorated: bool) -> None:
    """LangChain's instrumentation never makes its spans current; the client's span is the same call all the same."""
    provider = ragpulse.tracer_provider()
    framework = provider.get_tracer("openinference.instrumentation.langchain")
    client = provider.get_tracer("openinference.instrumentation.openai")
    with ragpulse.llm("call") if decorated else contextlib.nullcontext():
        chain = framework.start_span("chain")
        chat = framework.start_span("chat", trace.set_span_in_context(chain))
        client.start_span("completion", attributes={"llm.token_count.prompt": 5}).end()
        chat.set_attribute("llm.token_count.prompt", 5)
        chat.end()
        chain.end()
        client.start_span("after").end()
    ragpulse.flush(timeout=60)
    assert pulse.one("completion").parent == pulse.one("chat").id
    assert pulse.one("chat").parent == pulse.one("chain").id
    assert pulse.one("after").parent == pulse.one("chain").parent
    if decorated:
        assert pulse.one("call").attributes["gen_ai.usage.input_tokens"] == 5


def test_a_client_nests_in_a_span_of_a_callback_in_another_thread(pulse: Collector) -> None:
    """As async calls of LangChain have it; spans that have no span above stay in their own thread."""
    provider = ragpulse.tracer_provider()
    framework = provider.get_tracer("openinference.instrumentation.langchain")
    client = provider.get_tracer("openinference.instrumentation.openai")
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(framework.start_span, "alone").result()
        client.start_span("apart").end()
        with ragpulse.llm("call"):
            chat = ragpulse.traced_executor(pool).submit(framework.start_span, "chat").result()
            client.start_span("completion").end()
            chat.end()
        alone.end()
    ragpulse.flush(timeout=60)
    assert pulse.one("completion").parent == pulse.one("chat").id
    assert pulse.one("chat").parent == pulse.one("call").id
    assert pulse.one("apart").parent == ""


def test_a_closed_tab_is_no_error(pulse: Collector) -> None:
    """Starlette cancels a stream whose reader has gone: each span below it is marked and has its part."""

    @ragpulse.llm
    async def tokens(question: str) -> AsyncIterator[str]:
        yield "Paris"
        await asyncio.Event().wait()

    @ragpulse.rag
    async def ask(question: str) -> AsyncIterator[str]:
        async for token in tokens(question):
            yield token

    async def page(request: Request) -> StreamingResponse:
        return StreamingResponse(ask("Where?"))

    server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/", page)]), log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        with socket.create_connection(place.getsockname()) as tab:
            tab.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            received = b""
            while b"Paris" not in received:
                received += tab.recv(4096)
        eventually(lambda: ragpulse.flush(timeout=60) and len(pulse.spans) == 2)
        server.should_exit = True
        thread.join()
    for span in pulse.spans:
        assert (span.message.status.code, span.attributes["output.value"]) == (0, "Paris")
        assert span.attributes["ragpulse.ended_early"] is True
        assert "error.type" not in span.attributes


class Marking(SpanProcessor):
    """A processor of the application that sets an attribute and, when asked to, fails."""

    fails = False

    def on_start(self, span: trace.Span, parent_context: Context | None = None) -> None:
        """Marks the span, or fails."""
        if self.fails:
            raise RuntimeError("a fault of the processor")
        span.set_attribute("tenant", "t1")


def test_processors_see_every_span_of_ours_and_may_mark_it(pulse: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """Decorated calls included; a processor's failure is logged and does not reach the application."""
    processor = Marking()
    ragpulse.tracer_provider().add_span_processor(processor)
    answer("Why?")
    processor.fails = True
    ragpulse.configure("tests", endpoint=pulse.url, strict=False)
    assert answer("And now?") == "yes"
    assert ragpulse.tracer_provider().force_flush()
    ragpulse.shutdown(timeout=60)
    assert [span.attributes.get("tenant") for span in pulse.spans] == ["t1", None]
    assert "a span processor's on_start failed" in caplog.text


def test_before_configure_spans_only_pass_the_parent_on() -> None:
    """The provider may be handed out before `configure`; it records nothing until then."""
    above = trace.NonRecordingSpan(SpanContext(7, 8, is_remote=True))
    tracer = ragpulse.tracer_provider().get_tracer("library")
    span = tracer.start_span("early", trace.set_span_in_context(above))
    assert not span.is_recording()
    assert span.get_span_context() == above.get_span_context()
