"""What came apart from its span: texts and exceptions on log events, scores that name a response.

Each is joined to its span whichever came first. What waits is durable in its table; memory knows its keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import orjson

from ragpulse_collector.records import ContentRecord, ContextRecord, ScoreRecord, SpanBatch, span_key
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.rows import EVENT_FIELDS, TableRows, contexts_state, instant, top_score

_WAIT_FOR_EVENT = timedelta(hours=1)
"""A log event whose span did not come within this time waits no longer in memory; it stays in the table."""
_WAIT_FOR_SCORE = timedelta(days=1)
"""How far before a score its span is looked for, and how long after it a span may still come."""
_MAX_WAITING = 50_000
_LONGEST_SPAN = timedelta(days=1)
"""How long before its log event a span may have started; bounds the look into the table."""

_WAITING_EVENTS = """
    SELECT replace(e.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', e.span_id) AS span_id, e.record
    FROM raw.content_events e
    WHERE NOT e.joined AND e.received_at >= $since AND NOT EXISTS (
        SELECT 1 FROM raw.spans s WHERE s.trace_id = e.trace_id AND s.span_id = e.span_id)
    ORDER BY e.received_at"""

_SPANS = """
    SELECT replace(s.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', s.span_id) AS span_id, s.start_time,
           s.contexts_state, c.trace_id IS NOT NULL AS has_row
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time
    WHERE s.start_time >= $since AND s.trace_id IN (SELECT unnest($traces::UUID[]))"""

_PLACES = """unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
                 unnest($starts::TIMESTAMP[]) AS start_time"""

_FILL_TEXTS = f"""
    UPDATE raw.contents
    SET query = coalesce(CASE WHEN contents.query_from IS NULL THEN contents.query END, n.query, contents.query),
        response = coalesce(CASE WHEN contents.response_from IS NULL THEN contents.response END, n.response,
                            contents.response),
        query_from = CASE WHEN n.query IS NULL THEN contents.query_from END,
        response_from = CASE WHEN n.response IS NULL THEN contents.response_from END
    FROM (SELECT {_PLACES}, unnest($queries::VARCHAR[]) AS query, unnest($responses::VARCHAR[]) AS response) n
    WHERE contents.start_time BETWEEN $first AND $last AND contents.trace_id = n.trace_id
      AND contents.span_id = n.span_id AND contents.start_time = n.start_time"""

_FILL_STATES = f"""
    UPDATE raw.spans SET contexts_state = n.state, n_contexts = n.count, top_score = n.top
    FROM (SELECT {_PLACES}, unnest($states::VARCHAR[]) AS state, unnest($counts::INTEGER[]) AS count,
                 unnest($tops::DOUBLE[]) AS top) n
    WHERE spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_FILL_ERRORS = f"""
    UPDATE raw.spans SET error_type = coalesce(spans.error_type, n.type),
                         status_message = coalesce(nullif(spans.status_message, ''), n.message)
    FROM (SELECT {_PLACES}, unnest($types::VARCHAR[]) AS type, unnest($messages::VARCHAR[]) AS message) n
    WHERE spans.status = 'error' AND spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_WAITING_SCORES = """
    SELECT DISTINCT response_id FROM raw.feedback
    WHERE trace_id IS NULL AND response_id IS NOT NULL AND received_at >= $since"""

_RESPONSES = """
    SELECT response_id, replace(trace_id::VARCHAR, '-', ''), printf('%016x', span_id) FROM raw.spans
    WHERE received_at >= $since AND response_id IN (SELECT unnest($ids::VARCHAR[])) ORDER BY start_time DESC"""

_JOIN_SCORES = """
    UPDATE raw.feedback SET trace_id = n.trace_id, span_id = n.span_id, received_at = $at
    FROM (SELECT unnest($responses::VARCHAR[]) AS response_id, unnest($traces::UUID[]) AS trace_id,
                 unnest($spans::UBIGINT[]) AS span_id) n
    WHERE feedback.trace_id IS NULL AND feedback.response_id = n.response_id"""

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_Found = tuple[dict[str, Any], ContentRecord]
"""A stored span, as `_SPANS` returns it, and the event that names it."""
_Place = tuple[str, str]
"""A trace and a span."""


class _Waiting(Generic[_Key, _Value]):
    """What waits for a span; what a transaction changes counts once it is on disk."""

    def __init__(self) -> None:
        self._known: dict[_Key, _Value] | None = None
        """None until the first transaction has read the table."""
        self._left: dict[_Key, _Value] = {}
        self._joined: set[_Key] = set()

    def remember(self) -> None:
        """The transaction is on disk."""
        if (known := self._known) is not None:
            known |= self._left
            for key in self._joined:
                known.pop(key, None)
            while len(known) > _MAX_WAITING:
                known.pop(next(iter(known)))
        self.forget()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._left, self._joined = {}, set()


class ContentEvents(_Waiting[int, ContentRecord]):
    """Log events by the key of their span, which is filled in when it comes."""

    def join(
        self, transaction: Transaction, rows: TableRows, events: list[ContentRecord], batches: Iterable[SpanBatch]
    ) -> None:
        """Fill new spans from events that waited or came along; add texts to spans stored before."""
        if self._known is None:
            found = transaction.execute(_WAITING_EVENTS, {"since": transaction.at - _WAIT_FOR_EVENT}).rows
            self._known = _by_span(map(_record, found))
        waiting, come = self._known, _by_span(events)
        if come or waiting:
            self._fill_new(batches, come, waiting)
        left = {key: event for key, event in come.items() if key not in self._joined}
        if left:
            self._fill_stored(transaction, rows, left)
        for event in events:
            key = event.key
            rows.add_content_event(event, transaction.at, joined=key in self._joined)
            if key not in self._joined:
                self._left[key] = _merged(waiting.get(key), come[key])

    def _fill_new(
        self, batches: Iterable[SpanBatch], come: dict[int, ContentRecord], waiting: dict[int, ContentRecord]
    ) -> None:
        for batch in batches:
            for row, key in enumerate(batch.keys()):
                event = come.get(key)
                if event is not None or key in waiting:
                    _fill(batch, row, _merged(waiting.get(key), event))
                    self._joined.add(key)

    def _fill_stored(self, transaction: Transaction, rows: TableRows, events: dict[int, ContentRecord]) -> None:
        since = instant(min(event.time_ns for event in events.values())) - _LONGEST_SPAN
        found = transaction.execute(
            _SPANS, {"since": since, "traces": list({event.trace_id for event in events.values()})}
        )
        pairs: dict[tuple[int, datetime], _Found] = {}  # two collectors may have stored one span in a lake
        for span in found.dicts():
            key = span_key(bytes.fromhex(span["trace_id"]), bytes.fromhex(span["span_id"]))
            event = events.get(key)
            if event is not None:
                self._joined.add(key)
                pairs[key, span["start_time"]] = (span, event)
        _add_texts(transaction, rows, pairs.values())
        _add_contexts(transaction, rows, pairs.values())
        _add_errors(transaction, pairs.values())


class ResponseScores(_Waiting[str, None]):
    """Responses with scores that wait for their span; the scores themselves wait in `raw.feedback`."""

    def join(self, transaction: Transaction, scores: Iterable[ScoreRecord], batches: Iterable[SpanBatch]) -> None:
        """Give scores their trace and span; let those find it that waited for one of these spans."""
        since = {"since": transaction.at - _WAIT_FOR_SCORE}
        if self._known is None:
            self._known = dict.fromkeys(row[0] for row in transaction.execute(_WAITING_SCORES, since).rows)
        lost = [score for score in scores if score.trace_id is None and score.response_id is not None]
        if not (lost or self._known):
            return
        come: dict[str, _Place] = {}
        for batch in batches:
            come |= _responses(batch)
        self._joined = self._known.keys() & come.keys()
        if self._joined:
            _join_scores(transaction, {response: come[response] for response in self._joined})
        if lost:
            ids = list({score.response_id for score in lost})
            stored = transaction.execute(_RESPONSES, since | {"ids": ids}).rows
            self._place(lost, {response: (trace, span) for response, trace, span in stored} | come)

    def _place(self, scores: Iterable[ScoreRecord], known: dict[str, _Place]) -> None:
        for score in scores:
            response = score.response_id or ""
            if response in known:
                score.trace_id, score.span_id = known[response]
            else:
                self._left[response] = None


def _by_span(events: Iterable[ContentRecord]) -> dict[int, ContentRecord]:
    """Return one event for each span, what several hold merged."""
    found: dict[int, ContentRecord] = {}
    for event in events:
        key = event.key
        found[key] = _merged(found.get(key), event)
    return found


def _merged(first: ContentRecord | None, second: ContentRecord | None) -> ContentRecord:
    """Return an event with what either holds; of two texts for the same field the first wins, as a stored one does."""
    if first is None or second is None:
        found = first or second
        assert found is not None, "one of the two is given"
        return found
    missing = {name: getattr(second, name) for name in EVENT_FIELDS if getattr(first, name) is None}
    return replace(first, **missing)


def _record(row: tuple[Any, ...]) -> ContentRecord:
    body = orjson.loads(row[2])
    contexts = body.pop("contexts")
    return ContentRecord(
        trace_id=row[0],
        span_id=row[1],
        time_ns=0,
        contexts=None if contexts is None else [ContextRecord(**context) for context in contexts],
        **body,
    )


def _fill(batch: SpanBatch, row: int, event: ContentRecord) -> None:
    """What the span says itself wins; the event supplies what is missing."""
    for name, text in (("query", event.query), ("response", event.response)):
        if text is not None and batch.value(name, row) is None:
            batch.set(name, row, text)
    if batch.value("status", row) == "error":
        for name, text in (("error_type", event.error_type), ("status_message", event.status_message)):
            if text is not None and not batch.value(name, row):
                batch.set(name, row, text)
    if event.contexts is not None and batch.contexts_of(row) is None:
        batch.set_contexts(row, event.contexts)


def _add_texts(transaction: Transaction, rows: TableRows, pairs: Iterable[_Found]) -> None:
    """Add texts to stored spans: one statement for the spans that have a row of texts, new rows for the others."""
    filled: list[_Found] = []
    for span, event in pairs:
        if event.query is None and event.response is None:
            continue
        if span["has_row"]:
            filled.append((span, event))
        else:
            cells = _ids(span) | {"query": event.query, "response": event.response}
            rows.add("contents", **{name: [value] for name, value in cells.items()})
    if filled:
        texts = {"queries": [event.query for _, event in filled], "responses": [event.response for _, event in filled]}
        transaction.execute(_FILL_TEXTS, _places(filled) | texts)


def _add_contexts(transaction: Transaction, rows: TableRows, pairs: Iterable[_Found]) -> None:
    """Add contexts to stored spans that have none, in one statement."""
    filled = [(span, event) for span, event in pairs if event.contexts is not None and span["contexts_state"] is None]
    if not filled:
        return
    contexts = [event.contexts or [] for _, event in filled]
    for (span, _), found in zip(filled, contexts, strict=True):
        ids = _ids(span)
        rows.add_contexts(ids["trace_id"], ids["span_id"], ids["start_time"], found)
    states = {
        "states": [contexts_state(found) for found in contexts],
        "counts": [len(found) for found in contexts],
        "tops": [top_score(found) for found in contexts],
    }
    transaction.execute(_FILL_STATES, _places(filled) | states)


def _add_errors(transaction: Transaction, pairs: Iterable[_Found]) -> None:
    """Add exceptions to stored spans that failed and do not name them."""
    filled = [
        (span, event) for span, event in pairs if event.error_type is not None or event.status_message is not None
    ]
    if filled:
        texts = {
            "types": [event.error_type for _, event in filled],
            "messages": [event.status_message for _, event in filled],
        }
        transaction.execute(_FILL_ERRORS, _places(filled) | texts)


def _ids(span: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace_id": bytes.fromhex(span["trace_id"]),
        "span_id": bytes.fromhex(span["span_id"]),
        "start_time": span["start_time"],
    }


def _places(pairs: Iterable[_Found]) -> dict[str, Any]:
    """Return the parameters that name the spans of a statement."""
    spans = [span for span, _ in pairs]
    starts = [span["start_time"] for span in spans]
    return {
        "traces": [span["trace_id"] for span in spans],
        "spans": [int(span["span_id"], 16) for span in spans],
        "starts": starts,
        "first": min(starts),
        "last": max(starts),
    }


def _join_scores(transaction: Transaction, places: dict[str, _Place]) -> None:
    """Give the scores that waited for these responses their trace and span."""
    found = {
        "responses": list(places),
        "traces": [trace for trace, _ in places.values()],
        "spans": [int(span, 16) for _, span in places.values()],
    }
    transaction.execute(_JOIN_SCORES, found | {"at": transaction.at})


def _responses(batch: SpanBatch) -> dict[str, _Place]:
    places = zip(map(bytes.hex, batch.trace_ids), map(bytes.hex, batch.span_ids), strict=True)
    answers = zip(batch.values("response_id"), places, strict=True)
    return {response: place for response, place in answers if response is not None}
