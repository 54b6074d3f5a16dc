"""OTLP 1.11: request bodies to batches of spans and log records, and the answers the protocol asks for. Pure.

body ─ inflate (capped) ─▶ parse_spans | parse_logs | count_metrics ─▶ wire shapes ─▶ conventions
answer ◀─ success | partial_success | failure, in the encoding of the request
"""

from ragpulse_collector.otlp.intake import count_metrics, parse_logs, parse_spans
from ragpulse_collector.otlp.wire import (
    Scope,
    Shape,
    Vector,
    WireBatch,
    WireEvent,
    WireLink,
    WireLog,
    WireRows,
    is_span_id,
    is_trace_id,
    service_name,
)

__all__ = [
    "Scope",
    "Shape",
    "Vector",
    "WireBatch",
    "WireEvent",
    "WireLink",
    "WireLog",
    "WireRows",
    "count_metrics",
    "is_span_id",
    "is_trace_id",
    "parse_logs",
    "parse_spans",
    "service_name",
]
