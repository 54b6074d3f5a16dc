"""One door to both encodings."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from ragpulse_collector.otlp import json_body, protobuf
from ragpulse_collector.otlp.wire import WireBlock, WireLog, WireSpan
from ragpulse_collector.records import RawBody

FEW = 8
"""Fewer spans of one shape are not worth a block."""


def parse_spans(body: RawBody) -> Iterator[WireSpan]:
    """Yield the spans of a traces body; raises DecodeError where it is not what its content type promises."""
    return json_body.spans(body.body) if body.content_type == "application/json" else protobuf.spans(body.body)


def parse_blocks(body: RawBody) -> tuple[list[WireBlock], list[WireSpan]]:
    """Return the spans of a traces body, those that look alike in blocks; raises DecodeError.

    JSON makes no blocks, nor do spans of which there are few; those come in the body's order.
    """
    if body.content_type == "application/json":
        return [], list(json_body.spans(body.body))
    blocks, rest = protobuf.blocks(body.body)
    for block in blocks:
        if len(block) < FEW:
            rest += zip(block.positions, block.spans(), strict=True)
    rest.sort(key=itemgetter(0))
    return [block for block in blocks if len(block) >= FEW], [span for _, span in rest]


def parse_logs(body: RawBody) -> Iterator[WireLog]:
    """Yield the records of a logs body; raises DecodeError."""
    return json_body.logs(body.body) if body.content_type == "application/json" else protobuf.logs(body.body)


def check_metrics(body: RawBody) -> int:
    """Return how many metrics a body holds; raises DecodeError. Metrics are counted, not stored."""
    return json_body.metrics(body.body) if body.content_type == "application/json" else protobuf.metrics(body.body)
