"""Which provider carries our spans, and what the application's own one is shown."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased

import ragpulse

from .conftest import Collector


@ragpulse.retriever
def search(query: str) -> list[dict[str, object]]:
    """A search."""
    return [{"id": "d", "text": "my key is sk-abcdefghijklmnopqrstuvwx", "score": 0.5}]


@ragpulse.rag(prompt_name="qa", prompt_version="v7")
def answer(question: str) -> str:
    """The application."""
    return str(search(question)[0]["id"])


class Wrapped(TracerProvider):
    """A provider whose tracers are not the SDK's own, as some vendors have it."""

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        """Its tracer, wrapped."""

        class Tracer(trace.ProxyTracer):
            """Hands on to the SDK's."""

        tracer = Tracer("wrapped")
        tracer._real_tracer = super().get_tracer(*args, **options)
        return tracer


@pytest.fixture(params=[TracerProvider, Wrapped])
def provider(request: pytest.FixtureRequest) -> Iterator[TracerProvider]:
    """A provider of the application."""
    made = request.param()
    yield made
    made.shutdown()


@pytest.fixture
def seen(provider: TracerProvider) -> InMemorySpanExporter:
    """What another exporter on that provider sees."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def _listed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}


SECRET = "Why was Jane Doe refused?"


def _shown(seen: InMemorySpanExporter) -> str:
    """Everything that the application's own exporter received."""
    return "".join(span.to_json() for span in seen.get_finished_spans())


@ragpulse.llm(model="m", usage=lambda result: {"prompt_tokens": 3})
def refuse(question: str) -> str:
    """A model's call that fails and repeats the question."""
    raise ValueError(f"no answer to {question}")


@ragpulse.rag(prompt_version="v7")
def ask(question: str) -> str:
    """The application; every kind of content is on its spans."""
    ragpulse.current_span().set(contexts=[question], metadata={"asked": question})
    with pytest.raises(ValueError, match="no answer"):
        refuse(question)
    return question


@pytest.mark.parametrize("capture_content", [None, False])
def test_content_never_reaches_another_exporter_unasked(
    collector: Collector, provider: TracerProvider, seen: InMemorySpanExporter, capture_content: bool | None
) -> None:
    """The application's exporter sees kinds and figures; our collector also the content, unless it was withheld."""
    ragpulse.configure("mine", endpoint=collector.url, tracer_provider=provider, capture_content=capture_content)
    assert ask(SECRET) == SECRET
    ragpulse.shutdown(timeout=60)
    assert "Jane" not in _shown(seen)
    theirs = {span.name: span for span in seen.get_finished_spans()}
    assert dict(theirs["ask"].attributes or {}) == {
        "ragpulse.span.kind": "rag",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.prompt.version": "v7",
    }
    failed = theirs["refuse"]
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert (failed.events[0].attributes or {})["exception.type"] == "ValueError"
    assert "in refuse" in str((failed.events[0].attributes or {})["exception.stacktrace"])
    ours, ours_failed = collector.one("ask"), collector.one("refuse")
    assert ours.resource["service.name"] == "mine"
    assert len(ours_failed.events) == 1
    if capture_content is None:
        assert (ours.attributes["input.value"], ours.attributes["output.value"]) == (SECRET, SECRET)
        assert ours_failed.events[0][1]["exception.message"] == f"no answer to {SECRET}"
        assert ours_failed.message.status.message == f"ValueError: no answer to {SECRET}"
        assert "ragpulse.content.captured" not in ours.attributes
    else:
        assert "Jane" not in str(collector.spans)
        assert ours.attributes["ragpulse.content.captured"] is False


def test_without_content_an_exception_is_its_type_and_where_it_was_raised(collector: Collector) -> None:
    """On our own provider, too: no message, no source line, no status description."""
    ragpulse.configure(endpoint=collector.url, isolated=True, capture_content=False)
    ask(SECRET)
    ragpulse.shutdown(timeout=60)
    assert "Jane" not in str(collector.spans)
    failed = collector.one("refuse")
    ((name, attributes),) = failed.events
    assert (name, attributes["exception.type"], failed.message.status.code) == ("exception", "ValueError", 2)
    assert attributes["exception.stacktrace"].endswith("in refuse")


def test_content_reaches_another_exporter_when_asked(
    collector: Collector, provider: TracerProvider, seen: InMemorySpanExporter
) -> None:
    """With `capture_content=True` the application's exporter sees what our collector receives, redacted."""
    ragpulse.configure("mine", endpoint=collector.url, tracer_provider=provider, capture_content=True)
    answer("Where?")
    ragpulse.shutdown(timeout=60)
    theirs = {span.name: _listed(span.attributes or {}) for span in seen.get_finished_spans()}
    assert theirs["answer"] == collector.one("answer").attributes
    assert theirs["search"] == collector.one("search").attributes
    assert json.loads(str(theirs["search"]["gen_ai.retrieval.documents"]))[0]["content"] == "my key is [redacted:key]"
    assert theirs["answer"]["gen_ai.prompt.version"] == theirs["search"]["gen_ai.prompt.version"] == "v7"


def test_other_tenants_spans_never_leak(collector: Collector, provider: TracerProvider) -> None:
    """Forwarded: ours, what is below ours, and GenAI spans; nothing else."""
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider)
    tracer = provider.get_tracer("other")
    with tracer.start_as_current_span("private"):
        answer("q")
    with ragpulse.rag("root"), tracer.start_as_current_span("http below"):
        pass
    with tracer.start_as_current_span("genai", attributes={"gen_ai.operation.name": "chat"}):
        pass
    ragpulse.shutdown(timeout=60)
    assert {span.name for span in collector.spans} == {"answer", "search", "root", "http below", "genai"}


@pytest.mark.parametrize("attached", [True, False])
def test_spans_nest_both_ways_with_other_instrumentations(
    collector: Collector, provider: TracerProvider, attached: bool
) -> None:
    """Theirs above and below ours: one trace, in either mode."""
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider if attached else None)
    tracer = provider.get_tracer("other")
    theirs = tracer.start_as_current_span
    with theirs("above") as above, ragpulse.rag("middle") as middle, theirs("below") as below:
        inner = ragpulse.rag(lambda q: ragpulse.current_span().trace_id)("q")
    ragpulse.shutdown(timeout=60)
    identity = above.get_span_context()
    assert collector.one("middle").parent == format(identity.span_id, "016x")
    assert below.parent is not None  # type: ignore[attr-defined]
    assert format(below.parent.span_id, "016x") == middle.span_id  # type: ignore[attr-defined]
    assert collector.one("<lambda>").parent == format(below.get_span_context().span_id, "016x")
    assert inner == format(identity.trace_id, "032x")


def test_an_unsampled_trace_of_the_application_is_not_recorded(collector: Collector) -> None:
    """The application's sampler decides."""
    ragpulse.configure(endpoint=collector.url, tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    assert answer("q") == "d"
    ragpulse.shutdown(timeout=60)
    assert not collector.spans


def test_errors_and_early_closing_look_the_same_on_a_foreign_provider(
    collector: Collector, provider: TracerProvider
) -> None:
    """Status, stack, partial text: one behaviour in both modes."""
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider)
    with pytest.raises(KeyError), ragpulse.rag("failing"):
        raise KeyError("x")
    stream = ragpulse.llm(name="stream")(lambda q: (part for part in ("a", "b")))("q")
    assert next(stream) == "a"
    del stream
    ragpulse.shutdown(timeout=60)
    failing, cut = collector.one("failing"), collector.one("stream")
    assert (failing.message.status.code, failing.attributes["error.type"]) == (2, "KeyError")
    assert failing.events[0][1]["exception.stacktrace"]
    assert (cut.attributes["output.value"], cut.attributes["ragpulse.ended_early"]) == ("a", True)


def test_isolated_ignores_a_foreign_parent_but_links_it(collector: Collector, provider: TracerProvider) -> None:
    """A trace of its own, with a link to where it happened."""
    ragpulse.configure(endpoint=collector.url, isolated=True)
    with provider.get_tracer("other").start_as_current_span("above") as above:
        answer("q")
    ragpulse.shutdown(timeout=60)
    root = collector.one("answer")
    assert root.parent == ""
    assert root.trace != format(above.get_span_context().trace_id, "032x")
    assert root.message.links[0].trace_id.hex() == format(above.get_span_context().trace_id, "032x")


def _run(code: str, *arguments: str, **environment: str) -> None:
    import os

    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        check=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_a_global_sdk_provider_is_attached_to_and_gets_no_content(collector: Collector) -> None:
    """Found, not handed in: the company's exporter sees figures, our collector sees texts; the global stays."""
    code = """
        import sys, ragpulse
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        seen = InMemorySpanExporter()
        ragpulse.configure(endpoint=sys.argv[1], set_global=False)
        provider = TracerProvider(); provider.add_span_processor(SimpleSpanProcessor(seen))
        trace.set_tracer_provider(provider)
        ragpulse.rag(lambda q: "a")("secret question")
        assert trace.get_tracer_provider() is provider
        (span,) = seen.get_finished_spans()
        assert span.attributes["ragpulse.span.kind"] == "rag"
        assert "secret" not in str(dict(span.attributes)), dict(span.attributes)
        ragpulse.configure(endpoint=sys.argv[1], set_global=True)
        assert trace.get_tracer_provider() is provider
        ragpulse.shutdown(timeout=60)
    """
    _run(code, collector.url)
    assert collector.one("<lambda>").attributes["input.value"] == "secret question"


def test_set_global_serves_other_instrumentations(collector: Collector) -> None:
    """Where there is no global provider, ours becomes it, and foreign spans arrive."""
    code = """
        import sys, ragpulse
        from opentelemetry import trace
        ragpulse.configure(endpoint=sys.argv[1], set_global=True)
        tracer = trace.get_tracer("other")
        with tracer.start_as_current_span("above", attributes={"n": 1}) as span:
            span.add_event("happened", {"k": "v"})
            ragpulse.rag(lambda q: "a", )("q")
        try:
            with tracer.start_as_current_span("failing"):
                raise ValueError("no")
        except ValueError:
            pass
        ragpulse.shutdown(timeout=60)
    """
    _run(code, collector.url)
    above = collector.one("above")
    assert (above.attributes["n"], above.events) == (1, [("happened", {"k": "v"})])
    assert collector.one("<lambda>").parent == above.id
    assert collector.one("failing").message.status.code == 2


def test_our_provider_can_be_handed_to_an_instrumentor(pulse: Collector) -> None:
    """`ragpulse.tracer_provider()` makes spans that arrive."""
    with ragpulse.tracer_provider().get_tracer("x").start_as_current_span("theirs"):
        answer("q")
    ragpulse.flush(timeout=60)
    assert pulse.one("answer").parent == pulse.one("theirs").id


def test_samplers_of_the_environment_are_honoured(collector: Collector) -> None:
    """Off, a ratio, and a remote parent's decision."""
    code = """
        import sys, ragpulse
        ragpulse.configure(endpoint=sys.argv[1])
        for number in range(400):
            ragpulse.rag(lambda q: q)("q")
        ragpulse.shutdown(timeout=60)
    """
    _run(code, collector.url, OTEL_TRACES_SAMPLER="always_off")
    assert len(collector.spans) == 0
    _run(code, collector.url, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0.25")
    assert 50 < len(collector.spans) < 150
    # The collector weights each trace by this probability: a quarter of the 56 random bits reaches the threshold.
    assert {span.message.trace_state for span in collector.spans} == {"ot=th:c"}
    assert all(int(span.trace[-14:], 16) >= 0xC << 52 for span in collector.spans)


@pytest.mark.parametrize("sampler", [TraceIdRatioBased(0.75), ParentBased(TraceIdRatioBased(0.75))])
def test_the_share_that_the_applications_sampler_chose_is_sent(collector: Collector, sampler: Sampler) -> None:
    """With each span of a trace that began here, also below a root that the collector does not receive."""
    provider = TracerProvider(sampler=sampler)
    ragpulse.configure(endpoint=collector.url, tracer_provider=provider)
    for _ in range(40):
        answer("q")
        with provider.get_tracer("http").start_as_current_span("request"):
            answer("q")
    with ragpulse.extract({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}):
        answer("remote")
    ragpulse.shutdown(timeout=60)
    states = {span.message.trace_state for span in collector.spans if span.trace != "1" * 32}
    assert states == {"ot=th:4"}
    assert {span.message.trace_state for span in collector.spans if span.trace == "1" * 32} <= {""}


def test_an_unsampled_remote_parent_is_followed(pulse: Collector) -> None:
    """The traceparent's flag 00 records nothing below."""
    with ragpulse.extract({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-00"}):
        answer("q")
        assert trace.get_current_span().get_span_context().trace_id == int("1" * 32, 16)
    ragpulse.flush(timeout=60)
    assert not pulse.spans
