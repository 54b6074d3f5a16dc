"""Synthetic RAG traffic as OTLP/JSON with fixed ids: one rag span, its retriever and its model call a trace."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from waiting import until

from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

DOCUMENTS = (("towers.md", "The Eiffel Tower is 330 metres tall."), ("rivers.md", "The Seine flows through Paris."))


def rag_trace(
    number: int,
    *,
    query: str = "How tall is the Eiffel Tower?",
    response: str = "The Eiffel Tower is 330 metres tall.",
    prompt_version: str = "v7",
    model: str = "gpt-5-mini",
    start_ns: int | None = None,
    latency_ms: float = 800.0,
    error: bool = False,
    session: str | None = None,
    documents: Sequence[tuple[str, str]] = DOCUMENTS,
    **also: Any,
) -> list[dict[str, Any]]:
    """Build the three spans of trace `number`; by default it starts a few seconds ago.

    `also` are more attributes of each span, without those that are None.
    """
    start = start_ns if start_ns is not None else time.time_ns() - 10_000_000_000 + number * 1_000_000
    trace_id, root = f"{number + 1:032x}", f"{number * 8 + 1:016x}"
    contexts = [{"id": name, "score": 0.9 - 0.3 * rank, "content": text} for rank, (name, text) in enumerate(documents)]
    common = {"gen_ai.prompt.version": prompt_version, "session.id": session or f"session-{number % 3}"} | also
    end = start + int(latency_ms * 1e6)
    return [
        _span(trace_id, root, None, "answer", start, end, error, {
            "ragpulse.span.kind": "rag", "input.value": query, "output.value": response, **common}),
        _span(trace_id, f"{number * 8 + 2:016x}", root, "search", start + 1000, start + 2_000_000, False, {
            "ragpulse.span.kind": "retriever", "gen_ai.retrieval.query.text": query,
            "gen_ai.retrieval.documents": json.dumps(contexts), **common}),
        _span(trace_id, f"{number * 8 + 3:016x}", root, "chat", start + 3_000_000, end - 1000, error, {
            "ragpulse.span.kind": "llm", "gen_ai.request.model": model, "gen_ai.provider.name": "openai",
            "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20, **common}),
    ]  # fmt: skip


def send(
    url: str, spans: Iterable[dict[str, Any]], *, service: str = "helpdesk", release: str = "", api_key: str = ""
) -> None:
    """Post spans as one OTLP/JSON request; raises for any answer but 200."""
    resource = {"attributes": [_attribute("service.name", service)]}
    resource["attributes"] += [_attribute("service.version", release)] if release else []
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
    request = urllib.request.Request(f"{url}/v1/traces", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200


def _span(
    trace_id: str,
    span_id: str,
    parent: str | None,
    name: str,
    start: int,
    end: int,
    error: bool,
    attributes: dict[str, Any],
) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": span_id,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "status": {"code": 2, "message": "failed"} if error else {},
        "attributes": [_attribute(key, value) for key, value in attributes.items() if value is not None],
    }


def _attribute(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [_attribute("", item)["value"] for item in value]}}}
    kind = {str: "stringValue", int: "intValue", float: "doubleValue"}[type(value)]
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


def scored(collector: Callable[..., Collector], count: int = 3) -> Collector:
    """A collector with `count` decided and scored traces."""
    running = collector()
    start_ns = time.time_ns() - 10_000_000_000  # of all: midnight never divides them
    for number in range(count):
        send(running.url, rag_trace(number, start_ns=start_ns))
    until(connect(running.url), "select 1 from scores where status in ('ok', 'skipped')", 4 * count)
    return running
