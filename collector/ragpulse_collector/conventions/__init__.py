"""Dialects in, one shape out.

    RawBody ─ otlp ─▶ WireBatch ─ rules of all dialects, in order ─▶ SpanBatch, ContentRecord, ScoreRecord

Everything here is a pure function of its arguments; docs/conventions.md tells users what is read from where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragpulse_collector.conventions.redaction import Redactor
    from ragpulse_collector.records import Batch, RawBody


def decode(body: RawBody, redactor: Redactor | None = None) -> Batch:
    """Return the content of a body in canonical columns, its texts masked; raises DecodeError.

    Metrics are only checked.
    """
    from ragpulse_collector.conventions.bodies import batch_of  # with the first body: the port opens before

    return batch_of(body, redactor)
