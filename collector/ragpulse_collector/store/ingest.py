"""Batches into tables: once each, texts beside figures, log events joined to their spans in either order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from ragpulse_collector.records import Batch, Receipt, SpanRecord
from ragpulse_collector.store.content_events import ContentEvents
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.recent import RecentSpans
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
        self._fresh: list[SpanRecord] = []
        self._now_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        rows = Appendable()
        stored = self._stored_before(transaction, batches)
        taken: set[tuple[str, str]] = set()
        receipts: list[Receipt] = []
        for batch in batches:
            fresh = [span for span in batch.spans if self._is_new(span, stored, taken)]
            self._fresh += fresh
            duplicates = len(batch.spans) - len(fresh)
            accepted = len(fresh) + len(batch.contents) + len(batch.scores)
            receipts.append(
                Receipt(rejected=batch.rejected, message=batch.message, duplicates=duplicates, accepted=accepted)
            )
        contents = [record for batch in batches for record in batch.contents]
        self._events.join(transaction, rows, contents, self._fresh)
        for span in self._fresh:
            rows.add_span(span, transaction.at)
        for score in (score for batch in batches for score in batch.scores):
            rows.add_score(score, transaction.at)
        for table, table_rows in rows.tables():
            transaction.append(table, columns(table), table_rows)
        self._now_ns = _nanoseconds(transaction.at)
        return receipts

    def remember(self) -> None:
        """The transaction is on disk."""
        self._recent.add(self._fresh, self._now_ns)
        self._events.remember()
        self._fresh = []

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._fresh = []

    def _is_new(self, span: SpanRecord, stored: set[tuple[str, int]], taken: set[tuple[str, str]]) -> bool:
        key = (span.trace_id, span.span_id)
        if key in taken or span in self._recent or (stored and (key[0], int(key[1], 16)) in stored):
            return False
        taken.add(key)
        return True

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[tuple[str, int]]:
        """Look up the spans that memory cannot vouch for, bounded by their start times."""
        doubtful = [
            span
            for batch in batches
            for span in batch.spans
            if not self._recent.covers(span) and span not in self._recent
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
