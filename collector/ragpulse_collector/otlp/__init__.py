"""OTLP 1.11: request bodies to batches of spans and log records, and the answers of the protocol. Pure.

body ─ inflate (capped) ─▶ the parser of its content type ─▶ wire shapes ─▶ conventions
answer ◀─ success | partial_success | failure, in the encoding of the request
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from ragpulse_collector.otlp import json_body, protobuf
from ragpulse_collector.otlp.wire import WireBatch, WireLog
from ragpulse_collector.records import ContentType


class Parser(Protocol):
    """Reads the bodies of one encoding; raises DecodeError for other bytes, TooLarge for a body that holds too much."""

    def spans(self, body: bytes) -> tuple[list[WireBatch], int]:
        """Return the spans, a batch for each scope, and how many were rejected for their ids."""

    def logs(self, body: bytes) -> Iterator[WireLog]:
        """Yield the log records."""

    def metrics(self, body: bytes) -> dict[str, int]:
        """Return how many metrics of each service there are: they are counted, not stored."""


PARSERS: Mapping[ContentType, Parser] = {"application/json": json_body, "application/x-protobuf": protobuf}
