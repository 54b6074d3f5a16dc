"""OTLP 1.11: request bodies to plain spans and log records, and the answers the protocol asks for. Pure.

body ─ inflate (capped) ─▶ parse_spans | parse_blocks | parse_logs | check_metrics ─▶ wire shapes ─▶ conventions
answer ◀─ success | partial_success | failure, in the encoding of the request
"""

from ragpulse_collector.otlp.parse import check_metrics, parse_blocks, parse_logs, parse_spans
from ragpulse_collector.otlp.wire import Origin, Vector, WireBlock, WireEvent, WireLink, WireLog, WireSpan

__all__ = [
    "Origin",
    "Vector",
    "WireBlock",
    "WireEvent",
    "WireLink",
    "WireLog",
    "WireSpan",
    "check_metrics",
    "parse_blocks",
    "parse_logs",
    "parse_spans",
]
