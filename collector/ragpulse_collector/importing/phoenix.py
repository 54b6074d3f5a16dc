"""Arize Phoenix, over its REST API: spans, and annotations of spans and traces."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragpulse_collector.client import Client
from ragpulse_collector.importing import Feedback, Page, annotate

PAGE = 100
MOST_ANNOTATIONS = 10_000


def pages(peer: Client, since: datetime) -> Iterator[Page]:
    """Yield the spans of all projects that began since then; a project becomes the service."""
    for project in chain.from_iterable(_pages(peer, "/v1/projects", limit=PAGE)):
        project_path = f"/v1/projects/{quote(project['id'], safe='')}"
        for spans in _pages(peer, f"{project_path}/spans/otlpv1", start_time=since.isoformat(), limit=PAGE):
            yield Page(project["name"], _annotated(peer, project_path, [_span(item) for item in spans]))


def _annotated(peer: Client, path: str, spans: list[Span]) -> list[Span]:
    of_spans = _feedback(peer, f"{path}/span_annotations", "span_id", [span.span_id.hex() for span in spans])
    roots = [span.trace_id.hex() for span in spans if not span.parent_span_id]
    of_traces = _feedback(peer, f"{path}/trace_annotations", "trace_id", roots) if roots else {}
    for span in spans:
        annotate(span, of_spans.get(span.span_id.hex(), ()))
        if not span.parent_span_id:
            annotate(span, of_traces.get(span.trace_id.hex(), ()), of_trace=True)
    return spans


def _feedback(peer: Client, path: str, key: str, ids: list[str]) -> Mapping[str, list[Feedback]]:
    feedback = defaultdict(list)
    for annotation in chain.from_iterable(_pages(peer, path, **{f"{key}s": ids}, limit=MOST_ANNOTATIONS)):
        result = annotation["result"] or {}
        values = {name: result.get(name) for name in ("score", "label", "explanation")}
        feedback[annotation[key]].append(
            Feedback(annotation["name"], **values, human=annotation["annotator_kind"] == "HUMAN")
        )
    return feedback


def _pages(peer: Client, path: str, **params: Any) -> Iterator[list[Any]]:
    cursor = None
    while True:
        query = params | ({"cursor": cursor} if cursor else {})
        answer = json.loads(peer.request("GET", f"{path}?{urlencode(query, doseq=True)}"))
        if answer["data"]:
            yield answer["data"]
        cursor = answer.get("next_cursor")
        if not cursor:
            return


def _span(item: dict[str, Any]) -> Span:
    """Return a span of OTLP/JSON, whose ids are hex, which protobuf's JSON does not read."""
    ids = ("trace_id", "span_id", "parent_span_id")
    ids_in_base64 = {key: base64.b64encode(bytes.fromhex(item[key])).decode() for key in ids if item.get(key)}
    fields = {key: value for key, value in item.items() if value is not None and key not in ids}
    return json_format.ParseDict(_without_nulls(fields | ids_in_base64), Span(), ignore_unknown_fields=True)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
