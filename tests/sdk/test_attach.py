"""On a provider of the application its own tracer makes our spans, under its sampler, limits and processors."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import (
    Decision,
    Sampler,
    SamplingResult,
)
from opentelemetry.trace import SpanKind, TraceState

import ragpulse

from .conftest import Collector


class Seen(SpanProcessor):
    """A processor of the application."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Mark the span, as processors for baggage or tenants do."""
        span.set_attribute("tenant", "t1")
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it."""
        self.ended.append(span)


@pytest.fixture
def attached(collector: Collector) -> Callable[..., Seen]:
    """Configures ragpulse on a provider made with these options, with a processor that looks on."""

    def make(**options: Any) -> Seen:
        provider, seen = TracerProvider(**options), Seen()
        provider.add_span_processor(seen)
        ragpulse.configure(endpoint=collector.url, tracer_provider=provider, capture_content=True)
        return seen

    return make


@ragpulse.llm(model="m")
def generate(question: str) -> str:
    """A model's call that also uses the span as any instrumentation may."""
    span = trace.get_current_span()
    span.set_attribute("mine", [1, 2])
    span.add_event("retried", {"times": 2})
    return "x" * 100


@ragpulse.rag
def answer(question: str) -> str:
    """The application."""
    return generate(question)


def test_processors_are_handed_ordinary_spans(collector: Collector, attached: Callable[..., Seen]) -> None:
    """SDK spans at start and end, with parent, kind, resource, scope, times, and what others put on them."""
    seen = attached()
    answer("Where?")
    ragpulse.shutdown(timeout=60)
    below, root = seen.ended
    assert all(isinstance(span, Span) for span in seen.started)
    assert (root.name, root.kind, root.parent, below.kind) == ("answer", SpanKind.INTERNAL, None, SpanKind.CLIENT)
    assert below.parent == root.get_span_context()
    assert (below.start_time or 0) <= (below.end_time or 0)
    assert below.instrumentation_scope is not None
    assert (below.instrumentation_scope.name, below.resource) == ("ragpulse", root.resource)
    assert below.attributes is not None
    assert (below.attributes["tenant"], below.attributes["mine"], below.attributes["output.value"]) == (
        "t1",
        (1, 2),
        "x" * 100,
    )
    assert [event.name for event in below.events] == ["retried"]
    assert '"gen_ai.operation.name": "chat"' in below.to_json()
    ours = collector.one("generate")
    assert (ours.attributes["tenant"], ours.events) == ("t1", [("retried", {"times": 2})])


def test_the_providers_limits_hold_for_its_exporters_and_not_for_our_copy(
    collector: Collector, attached: Callable[..., Seen]
) -> None:
    """Few and short attributes there, and the count of what was dropped; all of it here."""
    seen = attached(span_limits=SpanLimits(max_span_attributes=4, max_span_attribute_length=10))
    answer("Where?")
    ragpulse.shutdown(timeout=60)
    shown = seen.ended[0].attributes or {}
    assert (len(shown), shown["output.value"]) == (4, "x" * 10)
    assert seen.ended[0].dropped_attributes > 0
    ours = collector.one("generate")
    assert {
        "ragpulse.span.kind",
        "openinference.span.kind",
        "gen_ai.request.model",
        "input.value",
    } < ours.attributes.keys()
    assert ours.attributes["output.value"] == "x" * 100


class Choosy(Sampler):
    """Decides by its argument, and adds an attribute of its own."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *rest: Any,
        **more: Any,
    ) -> SamplingResult:
        """Model calls are recorded without being sampled."""
        self.asked.append(dict(attributes or {}))
        model = self.asked[-1].get("gen_ai.operation.name") == "chat"
        decision = Decision.RECORD_ONLY if model else Decision.RECORD_AND_SAMPLE
        return SamplingResult(decision, {**(attributes or {}), "sampling.rule": "r1"}, TraceState([("k", "v")]))

    def get_description(self) -> str:
        """Its name."""
        return "choosy"


def test_the_sampler_sees_what_is_constant_and_decides(collector: Collector, attached: Callable[..., Seen]) -> None:
    """Each span is asked about; what is recorded only is not sent, and an added attribute and trace state stay."""
    sampler = Choosy()
    seen = attached(sampler=sampler)
    answer("Where?")
    ragpulse.shutdown(timeout=60)
    assert [asked["ragpulse.span.kind"] for asked in sampler.asked] == ["rag", "llm"]
    assert [span.get_span_context().trace_flags.sampled for span in seen.started] == [True, False]
    assert [span.name for span in collector.spans] == ["answer"]
    assert collector.one("answer").attributes["sampling.rule"] == "r1"
    assert collector.one("answer").message.trace_state == "k=v"
