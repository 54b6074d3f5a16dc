"""One door to both encodings."""

from __future__ import annotations

from collections.abc import Iterator

from ragpulse_collector.otlp import json_body, protobuf
from ragpulse_collector.otlp.wire import WireBatch, WireLog
from ragpulse_collector.records import RawBody


def parse_spans(body: RawBody) -> tuple[list[WireBatch], int]:
    """Return the spans of a traces body, a batch for each scope, and how many were rejected for their ids.

    Raises DecodeError where the body is not what its content type promises.
    """
    return json_body.spans(body.body) if body.content_type == "application/json" else protobuf.spans(body.body)


def parse_logs(body: RawBody) -> Iterator[WireLog]:
    """Yield the records of a logs body; raises DecodeError."""
    return json_body.logs(body.body) if body.content_type == "application/json" else protobuf.logs(body.body)


def check_metrics(body: RawBody) -> int:
    """Return how many metrics a body holds; raises DecodeError. Metrics are counted, not stored."""
    return json_body.metrics(body.body) if body.content_type == "application/json" else protobuf.metrics(body.body)
