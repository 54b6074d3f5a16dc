"""Writes batches to tables: each span once, texts apart from figures, log events joined to their spans."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ragpulse_collector.instants import instant, unix_ns
from ragpulse_collector.records import Batch, Receipt, ScoreRecord, SpanBatch, span_key
from ragpulse_collector.store.ingest.joins import ContentEvents, ResponseScores
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.queries.forgotten import without_forgotten
from ragpulse_collector.store.rows import TableRows

_NEWEST = "SELECT max(start_time) FROM raw.spans"
_STORED = """
    SELECT replace(trace_id::VARCHAR, '-', ''), span_id FROM raw.spans
    WHERE start_time BETWEEN $lo AND $hi AND trace_id IN (SELECT unnest($traces::UUID[]))"""

CLOCK_SLACK_NS = 5_000_000_000
"""How far a client's clock may be ahead of ours before a span that is sent again after a restart may look new."""

_FAR = 2**64


@dataclass(slots=True)
class _Group:
    """Spans that the cache forgets together."""

    keys: list[int]
    newest_ns: int
    """The start of the newest span."""
    stored_ns: int
    """When the last span was stored."""


class RecentSpans:
    """The recent-span cache: the keys of at least the last `generation` spans, forgotten a hundredth at a time.

    `covers` returns whether a stored span of these times must be in the cache: it ended after the time since which all
    spans are remembered, or it starts after every span that is stored and not remembered. Other spans are looked up in
    the table. A key takes 95 bytes; the chance that a new span is taken for an old one is 1e-14.
    """

    def __init__(self, *, generation: int, since_ns: int) -> None:
        self._generation = generation
        self._remembered: set[int] = set()
        self._groups: deque[_Group] = deque()
        self._covered_ns = since_ns
        self._forgotten_ns = _FAR
        self.begun = False

    def begin(self, newest_ns: int) -> None:
        """Set the start of the newest span that was stored before this process began; needed once."""
        self._forgotten_ns = newest_ns
        self.begun = True

    def __contains__(self, key: int) -> bool:
        return key in self._remembered

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether a span of these times that is not in the cache is not stored either."""
        return end_ns >= self._covered_ns + CLOCK_SLACK_NS or start_ns > self._forgotten_ns

    def add(self, keys: Iterable[int], *, newest_ns: int, now_ns: int) -> None:
        """Remember the keys of spans that are on disk now; the newest span starts at `newest_ns`."""
        if not self._groups or len(self._groups[-1].keys) >= self._generation // 100:
            self._groups.append(_Group([], newest_ns, now_ns))
        group = self._groups[-1]
        first = len(group.keys)
        group.keys += keys
        group.newest_ns, group.stored_ns = max(group.newest_ns, newest_ns), now_ns
        self._remembered.update(group.keys[first:])
        while len(self._remembered) - len(self._groups[0].keys) >= self._generation:
            oldest = self._groups.popleft()
            self._remembered.difference_update(oldest.keys)
            self._forgotten_ns = max(self._forgotten_ns, oldest.newest_ns)
            self._covered_ns = oldest.stored_ns


class Ingest:
    """Writes batches inside a transaction; `remember` or `forget` follows its end."""

    def __init__(self, *, recent_spans: int, opened: datetime) -> None:
        self._recent = RecentSpans(generation=recent_spans, since_ns=unix_ns(opened))
        self._events = ContentEvents()
        self._scores = ResponseScores()
        self._keys: set[int] = set()
        """The keys of the spans that this transaction adds."""
        self._newest_ns = self._stored_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        if not self._recent.begun:
            self._recent.begin(_newest_ns(transaction))
        rows = TableRows()
        stored = self._stored_before(transaction, batches)
        results = [self._take(batch, stored) for batch in batches]
        new_spans = [spans for new, _, _ in results for spans in new]
        contents = [record for batch in batches for record in batch.contents]
        self._events.join(transaction, rows, contents, new_spans)
        for spans in new_spans:
            rows.add_spans(spans, transaction.at)
        scores = without_forgotten(transaction, [score for _, new, _ in results for score in new])
        self._scores.join(transaction, scores, new_spans)
        for score in scores:
            rows.add_score(score, transaction.at)
        rows.append_to(transaction)
        self._stored_ns = unix_ns(transaction.at)
        self._newest_ns = max((max(spans.values("start_ns")) for spans in new_spans), default=0)
        return [receipt for _, _, receipt in results]

    def remember(self) -> None:
        """The transaction is on disk."""
        self._recent.add(self._keys, newest_ns=self._newest_ns, now_ns=self._stored_ns)
        self._events.remember()
        self._scores.remember()
        self._keys = set()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._scores.forget()
        self._keys = set()

    def _take(self, batch: Batch, stored: set[int]) -> tuple[list[SpanBatch], list[ScoreRecord], Receipt]:
        """Return the new spans of a body, its scores without those of repeated spans, and its receipt."""
        new_spans = [new for spans in batch.spans if len(new := self._new(spans, stored))]
        accepted, sent = sum(map(len, new_spans)), sum(map(len, batch.spans))
        scores = batch.scores if accepted == sent else _of_new_spans(batch.scores, new_spans)
        return (
            new_spans,
            scores,
            Receipt(
                rejected=batch.rejected,
                message=batch.message,
                unmapped=batch.unmapped,
                not_stored=batch.not_stored,
                duplicates=sent - accepted,
                accepted=accepted + len(batch.contents) + len(scores),
            ),
        )

    def _new(self, spans: SpanBatch, stored: set[int]) -> SpanBatch:
        """Return the spans that are not stored yet, each once."""
        rows = []
        for row, key in enumerate(spans.keys()):
            if key not in self._keys and key not in self._recent and key not in stored:
                self._keys.add(key)
                rows.append(row)
        return spans if len(rows) == len(spans) else spans.take(rows)

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[int]:
        """Return the keys of stored spans in these traces, looked up where the recent-span cache does not suffice."""
        starts: list[int] = []
        traces: set[str] = set()
        for spans in (spans for batch in batches for spans in batch.spans):
            times = zip(spans.values("start_ns"), spans.values("end_ns"), strict=True)
            rows = [row for row, (start, end) in enumerate(times) if not self._recent.covers(start, end)]
            starts += [spans.values("start_ns")[row] for row in rows]
            traces.update(spans.trace_ids[row].hex() for row in rows)
        if not starts:
            return set()
        parameters = {"lo": instant(min(starts)), "hi": instant(max(starts)), "traces": list(traces)}
        matches = transaction.execute(_STORED, parameters).rows
        return {span_key(bytes.fromhex(trace_id), span_id.to_bytes(8, "big")) for trace_id, span_id in matches}


def _of_new_spans(scores: Iterable[ScoreRecord], new_spans: Iterable[SpanBatch]) -> list[ScoreRecord]:
    """Return the scores without those that were written on spans stored before."""
    span_ids = {ids for spans in new_spans for ids in spans.ids()}
    return [score for score in scores if score.written_on is None or score.written_on in span_ids]


def _newest_ns(transaction: Transaction) -> int:
    """Return the start of the newest stored span; the table has whole microseconds."""
    newest = transaction.execute(_NEWEST).value
    return 0 if newest is None else unix_ns(newest) + 999
