"""Scores that name a response instead of a trace: joined to the span that gave it, whichever came first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ragpulse_collector.records import ScoreRecord, SpanBatch
from ragpulse_collector.store.protocol import Transaction

_WAIT = timedelta(days=1)
"""How far before a score its span is looked for, and how long after it a span may still come."""
_MAX_WAITING = 50_000

_WAITING = """
    SELECT DISTINCT response_id FROM raw.feedback
    WHERE trace_id IS NULL AND response_id IS NOT NULL AND received_at >= $since"""

_STORED = """
    SELECT response_id, replace(trace_id::VARCHAR, '-', ''), printf('%016x', span_id) FROM raw.spans
    WHERE received_at >= $since AND response_id IN (SELECT unnest($ids::VARCHAR[])) ORDER BY start_time DESC"""

_JOIN = """
    UPDATE raw.feedback SET trace_id = n.trace_id, span_id = n.span_id, received_at = $at
    FROM (SELECT unnest($responses::VARCHAR[]) AS response_id, unnest($traces::UUID[]) AS trace_id,
                 unnest($spans::UBIGINT[]) AS span_id) n
    WHERE feedback.trace_id IS NULL AND feedback.response_id = n.response_id"""

Place = tuple[str, str]


class ResponseScores:
    """Which responses have scores that wait for their span; the scores themselves wait in `raw.feedback`."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] | None = None
        self._come: set[str] = set()
        self._left: list[str] = []

    def join(
        self,
        transaction: Transaction,
        scores: Iterable[ScoreRecord],
        batches: Iterable[SpanBatch],
    ) -> None:
        """Give scores their trace and span; let those find it that waited for one of these spans."""
        waiting = self._load(transaction)
        lost = [score for score in scores if score.trace_id is None and score.response_id is not None]
        if not (lost or waiting):
            return
        come: dict[str, Place] = {}
        for batch in batches:
            come |= _responses(batch)
        self._come = waiting.keys() & come.keys()
        if self._come:
            _join(transaction, {response: come[response] for response in self._come})
        if lost:
            self._place(lost, _stored(transaction, lost) | come)

    def remember(self) -> None:
        """The transaction is on disk."""
        if self._waiting is not None:
            self._waiting |= dict.fromkeys(self._left)
            for response in (*self._come, *list(self._waiting)[: max(0, len(self._waiting) - _MAX_WAITING)]):
                self._waiting.pop(response, None)
        self.forget()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._come, self._left = set(), []

    def _load(self, transaction: Transaction) -> dict[str, None]:
        if self._waiting is None:
            found = transaction.execute(_WAITING, {"since": transaction.at - _WAIT}).rows
            self._waiting = {row[0]: None for row in found}
        return self._waiting

    def _place(self, scores: Iterable[ScoreRecord], known: dict[str, Place]) -> None:
        for score in scores:
            response = score.response_id or ""
            if response in known:
                score.trace_id, score.span_id = known[response]
            else:
                self._left.append(response)


def _join(transaction: Transaction, places: dict[str, Place]) -> None:
    """Give the scores that waited for these responses their trace and span."""
    found = {
        "responses": list(places),
        "traces": [trace for trace, _ in places.values()],
        "spans": [int(span, 16) for _, span in places.values()],
    }
    transaction.execute(_JOIN, found | {"at": transaction.at})


def _responses(batch: SpanBatch) -> dict[str, Place]:
    places = zip(map(bytes.hex, batch.trace_ids), map(bytes.hex, batch.span_ids), strict=True)
    answers = zip(batch.values("response_id"), places, strict=True)
    return {response: place for response, place in answers if response is not None}


def _stored(transaction: Transaction, scores: Iterable[ScoreRecord]) -> dict[str, Place]:
    ids = list({score.response_id for score in scores})
    found = transaction.execute(_STORED, {"since": transaction.at - _WAIT, "ids": ids})
    return {response: (trace, span) for response, trace, span in found.rows}
