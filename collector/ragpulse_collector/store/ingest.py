"""Batches into tables: once each, texts beside figures, log events joined to their spans in either order."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import chain

from ragpulse_collector.records import Batch, Receipt, SpanBlock, SpanRecord
from ragpulse_collector.store.block_rows import table_parts
from ragpulse_collector.store.content_events import ContentEvents
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.recent import RecentSpans, identities, identity, span_key
from ragpulse_collector.store.response_scores import ResponseScores
from ragpulse_collector.store.rows import Appendable, instant

_NEWEST = "SELECT max(start_time) FROM raw.spans"
_KNOWN = """
    SELECT replace(trace_id::VARCHAR, '-', ''), span_id FROM raw.spans
    WHERE start_time BETWEEN $lo AND $hi AND trace_id IN (SELECT unnest($traces::UUID[]))"""


class Ingest:
    """Writes batches inside a transaction; what it learnt is kept by `remember` or dropped by `forget`."""

    def __init__(self, *, recent_spans: int, opened: datetime) -> None:
        self._recent = RecentSpans(generation=recent_spans, since_ns=_nanoseconds(opened))
        self._events = ContentEvents()
        self._scores = ResponseScores()
        self._fresh: dict[int, SpanRecord] = {}
        """What this transaction adds, by key; two spans of one key are taken for one."""
        self._blocks: list[SpanBlock] = []
        self._in_blocks: set[int] = set()
        """The keys of what it adds in blocks."""
        self._at_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        if not self._recent.begun:
            self._recent.begin(_newest_ns(transaction))
        rows = Appendable()
        contents = [record for batch in batches for record in batch.contents]
        stored = self._stored_before(transaction, batches)
        wanted = self._events.wanted(transaction, contents)
        for batch in batches:
            self._take_blocks(batch, stored, wanted)
        receipts = [self._take(batch, stored) for batch in batches]
        self._events.join(transaction, rows, contents, self._fresh.values())
        for span in self._fresh.values():
            rows.add_span(span, transaction.at)
        rows.parts = [table_parts(block, transaction.at) for block in self._blocks]
        scores = [score for batch in batches for score in batch.scores]
        self._scores.join(transaction, scores, self._fresh.values(), self._blocks)
        for score in scores:
            rows.add_score(score, transaction.at)
        rows.append_to(transaction)
        self._at_ns = _nanoseconds(transaction.at)
        return receipts

    def remember(self) -> None:
        """The transaction is on disk."""
        starts = [span.start_ns for span in self._fresh.values()]
        starts += [max(block.columns["start_ns"]) for block in self._blocks]
        keys = chain(self._fresh, self._in_blocks)
        self._recent.add(keys, newest_ns=max(starts, default=0), now_ns=self._at_ns)
        self._events.remember()
        self._scores.remember()
        self._clear()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._scores.forget()
        self._clear()

    def _clear(self) -> None:
        self._fresh, self._blocks, self._in_blocks = {}, [], set()

    def _take_blocks(self, batch: Batch, *known: AbstractSet[int]) -> None:
        """Take those blocks of a batch whole that hold no known span; take the others apart."""
        whole = []
        for block in batch.blocks:
            keys = identities(block)
            unseen = self._recent.isdisjoint(keys) and all(each.isdisjoint(keys) for each in (self._in_blocks, *known))
            if unseen and len(set(keys)) == len(keys):
                self._in_blocks.update(keys)
                whole.append(block)
            else:
                batch.records += block.records()
        batch.blocks = whole
        self._blocks += whole

    def _take(self, batch: Batch, stored: set[int]) -> Receipt:
        """Note the spans that are new; returns the receipt of their body."""
        before = len(self._fresh)
        for span in batch.records:
            key = identity(span)
            if not any(key in known for known in (self._recent, self._in_blocks, stored)):
                self._fresh.setdefault(key, span)
        new = len(self._fresh) - before
        return Receipt(
            rejected=batch.rejected,
            message=batch.message,
            failed_blocks=batch.failed_blocks,
            duplicates=len(batch.records) - new,
            accepted=new + sum(map(len, batch.blocks)) + len(batch.contents) + len(batch.scores),
        )

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[int]:
        """Look up the spans that memory cannot vouch for, bounded by their start times."""
        records = [
            span
            for batch in batches
            for span in batch.records
            if not self._recent.covers(span.start_ns, span.end_ns) and identity(span) not in self._recent
        ]
        blocks = [
            block
            for batch in batches
            for block in batch.blocks
            if not self._recent.covers(min(block.columns["start_ns"]), min(block.columns["end_ns"]))
        ]
        if not records and not blocks:
            return set()
        starts = [*(span.start_ns for span in records), *chain(*(block.columns["start_ns"] for block in blocks))]
        between = {"lo": instant(min(starts)), "hi": instant(max(starts))}
        traces = {*(span.trace_id for span in records), *(t.hex() for block in blocks for t in block.trace_ids)}
        found = transaction.execute(_KNOWN, between | {"traces": list(traces)}).rows
        return {span_key(bytes.fromhex(trace_id), span_id.to_bytes(8, "big")) for trace_id, span_id in found}


def _newest_ns(transaction: Transaction) -> int:
    """Return when the newest stored span starts; the table keeps whole microseconds."""
    newest = transaction.execute(_NEWEST).rows[0][0]
    return 0 if newest is None else _nanoseconds(newest) + 999


def _nanoseconds(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
