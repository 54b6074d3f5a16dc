"""Which spans were stored lately: the memory half of idempotence on (trace_id, span_id)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ragpulse_collector.records import ContentRecord, SpanBatch

CLOCK_SLACK_NS = 5_000_000_000
"""How far a client's clock may run ahead of ours before a re-send across a restart could be taken as new."""

_FAR = 2**64


@dataclass(slots=True)
class _Group:
    """Spans that are forgotten together."""

    keys: list[int]
    newest_ns: int
    """When the newest of them starts."""
    at_ns: int
    """When the last of them was stored."""


class RecentSpans:
    """The identities of at least the last `generation` spans, forgotten a hundredth at a time.

    `covers` says whether spans must be in memory if they were ever stored: they ended after everything since then is
    remembered, or they start after all that is stored and not remembered. Spans it does not cover need a look into the
    table. Identities are kept as Python's keyed 64-bit hash (95 bytes each): the chance of taking a new span for an old
    one is 1e-14, and nobody outside can aim for it.
    """

    def __init__(self, *, generation: int, since_ns: int) -> None:
        self._least = generation
        self._known: set[int] = set()
        self._groups: deque[_Group] = deque()
        self._since_ns = since_ns
        self._forgotten_ns = _FAR
        self.begun = False

    def begin(self, newest_ns: int) -> None:
        """Tell when the newest span starts that was stored before anything is remembered; needed once."""
        self._forgotten_ns = newest_ns
        self.begun = True

    def __contains__(self, key: int) -> bool:
        return key in self._known

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether absence here proves that a span of these times was never stored."""
        return end_ns >= self._since_ns + CLOCK_SLACK_NS or start_ns > self._forgotten_ns

    def add(self, keys: Iterable[int], *, newest_ns: int, now_ns: int) -> None:
        """Remember spans that are on disk now, by their keys; the newest of them starts at `newest_ns`."""
        if not self._groups or len(self._groups[-1].keys) >= self._least // 100:
            self._groups.append(_Group([], newest_ns, now_ns))
        youngest = self._groups[-1]
        before = len(youngest.keys)
        youngest.keys += keys
        youngest.newest_ns, youngest.at_ns = max(youngest.newest_ns, newest_ns), now_ns
        self._known.update(youngest.keys[before:])
        while len(self._known) - len(self._groups[0].keys) >= self._least:
            oldest = self._groups.popleft()
            self._known.difference_update(oldest.keys)
            self._forgotten_ns = max(self._forgotten_ns, oldest.newest_ns)
            self._since_ns = oldest.at_ns


def span_key(trace_id: bytes, span_id: bytes) -> int:
    """Return what a span is known by."""
    return hash((trace_id, span_id))


def span_keys(batch: SpanBatch) -> list[int]:
    """Return the keys of a batch's spans."""
    return list(map(hash, zip(batch.trace_ids, batch.span_ids, strict=True)))


def content_key(record: ContentRecord) -> int:
    """Return the key of the span that a log event belongs to."""
    return span_key(bytes.fromhex(record.trace_id), bytes.fromhex(record.span_id))
