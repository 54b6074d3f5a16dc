"""Batches into tables: once each, texts beside figures, log events joined to their spans in either order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from ragpulse_collector.records import Batch, Receipt, SpanRecord
from ragpulse_collector.store.content_events import ContentEvents
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.recent import RecentSpans, span_key
from ragpulse_collector.store.response_scores import ResponseScores
from ragpulse_collector.store.rows import Appendable, instant
from ragpulse_collector.store.schema import columns

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
        self._now_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        rows = Appendable()
        stored = self._stored_before(transaction, batches)
        receipts = [self._take(batch, stored) for batch in batches]
        contents = [record for batch in batches for record in batch.contents]
        self._events.join(transaction, rows, contents, self._fresh.values())
        for span in self._fresh.values():
            rows.add_span(span, transaction.at)
        scores = [score for batch in batches for score in batch.scores]
        self._scores.join(transaction, scores, self._fresh.values())
        for score in scores:
            rows.add_score(score, transaction.at)
        for table, table_rows in rows.tables():
            transaction.append(table, columns(table), table_rows)
        self._now_ns = _nanoseconds(transaction.at)
        return receipts

    def remember(self) -> None:
        """The transaction is on disk."""
        self._recent.add(self._fresh, self._now_ns)
        self._events.remember()
        self._scores.remember()
        self._fresh = {}

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._scores.forget()
        self._fresh = {}

    def _take(self, batch: Batch, stored: set[tuple[str, int]]) -> Receipt:
        """Note the spans that are new; returns the receipt of their body."""
        before = len(self._fresh)
        for span in batch.spans:
            key = span_key(span)
            if key not in self._recent and not (stored and (span.trace_id, int(span.span_id, 16)) in stored):
                self._fresh.setdefault(key, span)
        new = len(self._fresh) - before
        return Receipt(
            rejected=batch.rejected,
            message=batch.message,
            duplicates=len(batch.spans) - new,
            accepted=new + len(batch.contents) + len(batch.scores),
        )

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[tuple[str, int]]:
        """Look up the spans that memory cannot vouch for, bounded by their start times."""
        doubtful = [
            span
            for batch in batches
            for span in batch.spans
            if not self._recent.covers(span) and span_key(span) not in self._recent
        ]
        if not doubtful:
            return set()
        starts = [span.start_ns for span in doubtful]
        found = transaction.execute(
            _KNOWN,
            {
                "lo": instant(min(starts)),
                "hi": instant(max(starts)),
                "traces": list({span.trace_id for span in doubtful}),
            },
        )
        return {(row[0], row[1]) for row in found.rows}


def _nanoseconds(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
