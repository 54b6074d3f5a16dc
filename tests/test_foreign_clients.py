"""Spans of clients not written here arrive as canonical records: OpenTelemetry's exporters, OpenInference's OpenAI."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from loopback import LoopbackModel
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind
from waiting import until

from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
DOCUMENTS = [{"id": "d1", "score": 0.7, "content": "Refunds take five working days."}, {"id": "d2", "score": None}]


def provider_for(url: str) -> TracerProvider:
    """A stock OpenTelemetry provider that sends every span at once, gzip protobuf over HTTP."""
    from opentelemetry.exporter.otlp.proto.http import Compression

    provider = TracerProvider(resource=Resource.create({"service.name": "foreign"}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=Compression.Gzip)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_genai_spans_of_the_stock_exporter_are_canonical(collector: Start) -> None:
    """Hand-made GenAI spans become kind, query, contexts, response, tokens and cost."""
    running = collector()
    tracer = provider_for(running.url).get_tracer("by-hand")
    asked = [{"role": "user", "parts": [{"type": "text", "content": "How long does a refund take?"}]}]
    answered = [{"role": "assistant", "parts": [{"type": "text", "content": "Five working days."}]}]
    with tracer.start_as_current_span("invoke_workflow support") as root:
        root.set_attributes({"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "support"})
        with tracer.start_as_current_span("retrieval faq", kind=SpanKind.CLIENT) as retrieval:
            retrieval.set_attributes({
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.query.text": "How long does a refund take?",
                "gen_ai.retrieval.documents": json.dumps(DOCUMENTS),
            })  # fmt: skip
        with tracer.start_as_current_span("chat gpt-5-mini", kind=SpanKind.CLIENT) as chat:
            chat.set_attributes({
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-5-mini",
                "gen_ai.usage.input_tokens": 200,
                "gen_ai.usage.output_tokens": 10,
                "gen_ai.input.messages": json.dumps(asked),
                "gen_ai.output.messages": json.dumps(answered),
            })  # fmt: skip
    client = connect(running.url)
    spans = {span["kind"]: span for span in until(client, "select * from spans", 3)}
    assert set(spans) == {"chain", "retriever", "llm"}
    assert spans["retriever"]["query"] == spans["llm"]["query"] == "How long does a refund take?"
    assert (spans["llm"]["response"], spans["llm"]["input_tokens"]) == ("Five working days.", 200)
    assert spans["llm"]["cost_usd"] > 0
    contexts = client.sql("select id, text from contexts order by rank").rows()
    assert contexts == [{"id": "d1", "text": "Refunds take five working days."}, {"id": "d2", "text": None}]


def test_openinference_openai_calls_are_canonical(
    collector: Start, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """A call of OpenAI's client, instrumented by OpenInference, arrives with its texts, model and tokens."""
    openai = pytest.importorskip("openai")
    instrumentation = pytest.importorskip("openinference.instrumentation.openai")
    running, model = collector(), loopback_model(lambda prompt: "Five working days.")
    instrumentor = instrumentation.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider_for(running.url))
    try:
        with openai.OpenAI(base_url=model.url, api_key="none") as client:
            client.chat.completions.create(
                model="gpt-5-mini", messages=[{"role": "user", "content": "How long does a refund take?"}]
            )
    finally:
        instrumentor.uninstrument()
    (span,) = until(connect(running.url), "select * from spans", 1)
    assert (span["kind"], span["model"], span["service"]) == ("llm", "gpt-5-mini", "foreign")
    assert "How long does a refund take?" in span["query"]
    assert span["response"] == "Five working days."
    assert (span["input_tokens"], span["output_tokens"]) == (120, 5)


def test_a_stopped_collector_is_a_failure_the_exporter_sees(collector: Start) -> None:
    """After a stop nothing is acknowledged that is not stored."""
    running = collector()
    url = running.url
    running.stop()
    provider = provider_for(url)
    span = provider.get_tracer("late").start_span("late")
    span.end()
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=1)
    assert exporter.export([span]) is SpanExportResult.FAILURE  # type: ignore[list-item]
