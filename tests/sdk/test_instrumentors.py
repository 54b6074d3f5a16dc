"""Genuine instrumentations on our provider: they use our spans as they use the OpenTelemetry SDK's."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags

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
    ragpulse.flush(timeout=20)
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
        ragpulse.shutdown(timeout=20)
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
    ragpulse.flush(timeout=20)
    steps = [span for span in pulse.spans if span.name == "step"]
    assert [span.message.status.code for span in steps] == [0, 2]
    assert {span.parent for span in pulse.spans if span not in steps} == {span.id for span in steps}


class Marking(SpanProcessor):
    """A processor of the application that sets an attribute and, when told to, fails."""

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
    ragpulse.shutdown(timeout=20)
    assert [span.attributes.get("tenant") for span in pulse.spans] == ["t1", None]
    assert "a span processor's on_start failed" in caplog.text


def test_before_configure_spans_only_pass_the_parent_on() -> None:
    """The provider may be handed out before `configure`; it records nothing until then."""
    above = trace.NonRecordingSpan(SpanContext(7, 8, is_remote=True))
    tracer = ragpulse.tracer_provider().get_tracer("library")
    span = tracer.start_span("early", trace.set_span_in_context(above))
    assert not span.is_recording()
    assert span.get_span_context() == above.get_span_context()
