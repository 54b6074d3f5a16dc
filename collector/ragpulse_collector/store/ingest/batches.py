"""Batches into tables: once each, texts beside figures, log events joined to their spans in either order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from ragpulse_collector.records import Batch, Receipt, ScoreRecord, SpanBatch, span_key
from ragpulse_collector.store.ingest.joins import ContentEvents, ResponseScores
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.rows import TableRows, instant

_NEWEST = "SELECT max(start_time) FROM raw.spans"
_KNOWN = """
    SELECT replace(trace_id::VARCHAR, '-', ''), span_id FROM raw.spans
    WHERE start_time BETWEEN $lo AND $hi AND trace_id IN (SELECT unnest($traces::UUID[]))"""

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
    table. An identity takes 95 bytes; the chance of taking a new span for an old one is 1e-14.
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


class Ingest:
    """Writes batches inside a transaction; what it learnt is kept by `remember` or dropped by `forget`."""

    def __init__(self, *, recent_spans: int, opened: datetime) -> None:
        self._recent = RecentSpans(generation=recent_spans, since_ns=_nanoseconds(opened))
        self._events = ContentEvents()
        self._scores = ResponseScores()
        self._keys: set[int] = set()
        """The spans that this transaction adds; two spans of one key are taken for one."""
        self._newest_ns = self._at_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        if not self._recent.begun:
            self._recent.begin(_newest_ns(transaction))
        rows = TableRows()
        stored = self._stored_before(transaction, batches)
        taken = [self._take(batch, stored) for batch in batches]
        fresh = [spans for new, _, _ in taken for spans in new]
        contents = [record for batch in batches for record in batch.contents]
        self._events.join(transaction, rows, contents, fresh)
        for spans in fresh:
            rows.add_spans(spans, transaction.at)
        scores = [score for _, new, _ in taken for score in new]
        self._scores.join(transaction, scores, fresh)
        for score in scores:
            rows.add_score(score, transaction.at)
        rows.append_to(transaction)
        self._at_ns = _nanoseconds(transaction.at)
        self._newest_ns = max((max(spans.values("start_ns")) for spans in fresh), default=0)
        return [receipt for _, _, receipt in taken]

    def remember(self) -> None:
        """The transaction is on disk."""
        self._recent.add(self._keys, newest_ns=self._newest_ns, now_ns=self._at_ns)
        self._events.remember()
        self._scores.remember()
        self._keys = set()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._scores.forget()
        self._keys = set()

    def _take(self, batch: Batch, stored: set[int]) -> tuple[list[SpanBatch], list[ScoreRecord], Receipt]:
        """Return the spans of a body that are new, its scores without those of repeated spans, and its receipt."""
        fresh = [new for spans in batch.spans if len(new := self._new(spans, stored))]
        accepted, sent = sum(map(len, fresh)), sum(map(len, batch.spans))
        scores = batch.scores if accepted == sent else _of_new_spans(batch.scores, fresh)
        return (
            fresh,
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
        """Return the spans that are in no table yet; the first of several with the same ids."""
        rows = []
        for row, key in enumerate(spans.keys()):
            if key not in self._keys and key not in self._recent and key not in stored:
                self._keys.add(key)
                rows.append(row)
        return spans if len(rows) == len(spans) else spans.take(rows)

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[int]:
        """Look up the spans that are not in the recent-span cache but may be stored, bounded by their start times."""
        starts: list[int] = []
        traces: set[str] = set()
        for spans in (spans for batch in batches for spans in batch.spans):
            times = zip(spans.values("start_ns"), spans.values("end_ns"), strict=True)
            rows = [row for row, (start, end) in enumerate(times) if not self._recent.covers(start, end)]
            starts += [spans.values("start_ns")[row] for row in rows]
            traces.update(spans.trace_ids[row].hex() for row in rows)
        if not starts:
            return set()
        between = {"lo": instant(min(starts)), "hi": instant(max(starts)), "traces": list(traces)}
        found = transaction.execute(_KNOWN, between).rows
        return {span_key(bytes.fromhex(trace_id), span_id.to_bytes(8, "big")) for trace_id, span_id in found}


def _of_new_spans(scores: Iterable[ScoreRecord], fresh: Iterable[SpanBatch]) -> list[ScoreRecord]:
    """Return the scores without those that were written on spans stored before."""
    new = {span_id.hex() for spans in fresh for span_id in spans.span_ids}
    return [score for score in scores if score.written_on is None or score.written_on in new]


def _newest_ns(transaction: Transaction) -> int:
    """Return when the newest stored span starts; the table keeps whole microseconds."""
    newest = transaction.execute(_NEWEST).rows[0][0]
    return 0 if newest is None else _nanoseconds(newest) + 999


def _nanoseconds(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
