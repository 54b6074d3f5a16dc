"""Which spans were stored lately: the memory half of idempotence on (trace_id, span_id)."""

from __future__ import annotations

from collections.abc import Iterable

from ragpulse_collector.records import SpanRecord

CLOCK_SLACK_NS = 5_000_000_000
"""How far a client's clock may run ahead of ours before a re-send across a restart could be taken as new."""


class RecentSpans:
    """Two generations of span identities; the older is dropped when the younger is full.

    `covers` says whether a span must be in memory if it was ever stored: it ended after everything since then is
    remembered. Spans it does not cover need a look into the table. Identities are kept as Python's keyed 64-bit hash
    (35 bytes each): the chance of taking a new span for an old one is 1e-14, and nobody outside can aim for it.
    """

    def __init__(self, *, generation: int, since_ns: int) -> None:
        self._generation = generation
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._old_since_ns = self._young_since_ns = since_ns

    def __contains__(self, key: int) -> bool:
        return key in self._young or key in self._old

    def covers(self, span: SpanRecord) -> bool:
        """Return whether absence here proves that the span was never stored."""
        return span.end_ns >= self._old_since_ns + CLOCK_SLACK_NS

    def add(self, keys: Iterable[int], now_ns: int) -> None:
        """Remember spans that are on disk now, by their keys."""
        self._young.update(keys)
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, set()
            self._old_since_ns, self._young_since_ns = self._young_since_ns, now_ns


def span_key(span: SpanRecord) -> int:
    """Return what a span is known by."""
    return hash((span.trace_id, span.span_id))
