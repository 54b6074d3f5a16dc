"""Dialects in, one shape out.

    RawBody ─ otlp ─▶ WireBatch ─ rules of seven dialects, in order ─▶ SpanBatch, ContentRecord, ScoreRecord

Everything here is a pure function of its arguments; docs/conventions.md tells users what is read from where.
"""

from ragpulse_collector.conventions.decode import decode, remap
from ragpulse_collector.conventions.dedupe import Node, context_spans, silent_spans, token_spans
from ragpulse_collector.conventions.lifting import restore_attributes

__all__ = ["Node", "context_spans", "decode", "remap", "restore_attributes", "silent_spans", "token_spans"]
