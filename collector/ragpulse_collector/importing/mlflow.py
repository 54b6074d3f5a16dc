"""MLflow 3, over its REST API: traces with spans, sessions and assessments."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragpulse_collector.client import Client
from ragpulse_collector.importing import Feedback, Page, annotate, attribute

PAGE = 50
CONTEXT = {"mlflow.trace.session": "session.id", "mlflow.trace.user": "user.id"}


def pages(peer: Client, since: datetime) -> Iterator[Page]:
    """Yield the spans of all experiments' traces that began since then; an experiment becomes the service."""
    for experiment in chain.from_iterable(
        _pages(peer, "/api/2.0/mlflow/experiments/search", "experiments", {"max_results": PAGE})
    ):
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment["experiment_id"]}}
        condition = {"filter": f"timestamp_ms >= {int(since.timestamp() * 1000)}", "max_results": PAGE}
        results = _pages(peer, "/api/3.0/mlflow/traces/search", "traces", {"locations": [location], **condition})
        for infos in results:
            query = urlencode({"trace_ids": [info["trace_id"] for info in infos]}, doseq=True)
            answer = json.loads(peer.request("GET", f"/api/3.0/mlflow/traces/batchGet?{query}"))
            yield Page(experiment["name"], [span for trace in answer.get("traces", ()) for span in _spans(trace)])


def _spans(trace: dict[str, Any]) -> list[Span]:
    """Return the spans of a trace; what MLflow keeps beside them is written onto the span that it belongs to."""
    info = trace["trace_info"]
    spans = [json_format.ParseDict(item, Span(), ignore_unknown_fields=True) for item in trace.get("spans", ())]
    feedback = defaultdict(list)
    for item in info.get("assessments", ()):
        if "feedback" in item:
            feedback[item.get("span_id") or None].append(_feedback(item))
    for span in spans:
        annotate(span, feedback.get(span.span_id.hex(), ()))
        if not span.parent_span_id:
            annotate(span, feedback.get(None, ()), of_trace=True)
            metadata = info.get("trace_metadata", {})
            span.attributes.extend(attribute(key, metadata[name]) for name, key in CONTEXT.items() if name in metadata)
    return spans


def _feedback(assessment: dict[str, Any]) -> Feedback:
    value = assessment["feedback"].get("value")
    is_number = isinstance(value, int | float)
    return Feedback(
        assessment["assessment_name"],
        score=float(value) if is_number else None,
        label=None if is_number or value is None else value if isinstance(value, str) else json.dumps(value),
        explanation=assessment.get("rationale"),
        human=assessment.get("source", {}).get("source_type") == "HUMAN",
    )


def _pages(peer: Client, path: str, key: str, body: dict[str, Any]) -> Iterator[list[Any]]:
    token = None
    while True:
        request = body | ({"page_token": token} if token else {})
        answer = json.loads(peer.request("POST", path, body=request))
        if answer.get(key):
            yield answer[key]
        token = answer.get("next_page_token")
        if not token:
            return
