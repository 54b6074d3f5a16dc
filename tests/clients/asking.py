"""Shared by the clients' scripts: question, documents, addresses of the model and of the OTLP endpoint."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

QUESTION = "How long does a refund take?"
BROKEN = "Please break."
"""The model answers this with HTTP 400."""
DOCUMENTS = ["Refunds take five working days.", "Shipping is free above 50 euros."]
MODEL = "gpt-5-mini"
MODEL_URL = os.environ["OPENAI_BASE_URL"]
OTLP_URL = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]


def provider():  # noqa: ANN201 - OpenTelemetry is imported in the client's environment only
    """Return a stock OpenTelemetry provider, which is also the global provider."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    result = TracerProvider()
    result.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{OTLP_URL}/v1/traces")))
    trace.set_tracer_provider(result)
    return result


def complete(client: Any, question: str, context: str = DOCUMENTS[0]) -> str:
    """Return the answer of an OpenAI client, with the context as the system message."""
    messages = [{"role": "system", "content": context}, {"role": "user", "content": question}]
    return client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


def ask(answer: Callable[[str], object]) -> None:
    """Ask a question that is answered, and then one that the model refuses."""
    print(answer(QUESTION), file=sys.stderr)
    with contextlib.suppress(Exception):
        answer(BROKEN)
