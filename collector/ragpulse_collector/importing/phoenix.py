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
        place = f"/v1/projects/{quote(project['id'], safe='')}"
        for spans in _pages(peer, f"{place}/spans/otlpv1", start_time=since.isoformat(), limit=PAGE):
            yield Page(project["name"], _annotated(peer, place, [_span(one) for one in spans]))


def _annotated(peer: Client, place: str, spans: list[Span]) -> list[Span]:
    own = _feedback(peer, f"{place}/span_annotations", "span_id", [span.span_id.hex() for span in spans])
    roots = [span.trace_id.hex() for span in spans if not span.parent_span_id]
    whole = _feedback(peer, f"{place}/trace_annotations", "trace_id", roots) if roots else {}
    for span in spans:
        annotate(span, own.get(span.span_id.hex(), ()))
        if not span.parent_span_id:
            annotate(span, whole.get(span.trace_id.hex(), ()), of_trace=True)
    return spans


def _feedback(peer: Client, path: str, key: str, ids: list[str]) -> Mapping[str, list[Feedback]]:
    found = defaultdict(list)
    for one in chain.from_iterable(_pages(peer, path, **{f"{key}s": ids}, limit=MOST_ANNOTATIONS)):
        result = one["result"] or {}
        said = {name: result.get(name) for name in ("score", "label", "explanation")}
        found[one[key]].append(Feedback(one["name"], **said, human=one["annotator_kind"] == "HUMAN"))
    return found


def _pages(peer: Client, path: str, **params: Any) -> Iterator[list[Any]]:
    cursor = None
    while True:
        given = params | ({"cursor": cursor} if cursor else {})
        answer = json.loads(peer.request("GET", f"{path}?{urlencode(given, doseq=True)}"))
        if answer["data"]:
            yield answer["data"]
        cursor = answer.get("next_cursor")
        if not cursor:
            return


def _span(said: dict[str, Any]) -> Span:
    """Return a span of OTLP/JSON, whose ids are hex, which protobuf's JSON does not read."""
    ids = ("trace_id", "span_id", "parent_span_id")
    hexed = {key: base64.b64encode(bytes.fromhex(said[key])).decode() for key in ids if said.get(key)}
    plain = {key: value for key, value in said.items() if value is not None and key not in ids}
    return json_format.ParseDict(_without_nulls(plain | hexed), Span(), ignore_unknown_fields=True)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
