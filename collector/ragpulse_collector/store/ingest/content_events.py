"""Texts and exceptions that came on log events: joined to their spans whichever came first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from ragpulse_collector.records import ContentRecord, ContextRecord, SpanBatch
from ragpulse_collector.store.ingest.recent import content_key, span_key, span_keys
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.rows import EVENT_FIELDS, TableRows, contexts_state, instant, top_score

_WAIT = timedelta(hours=1)
"""A log event whose span did not come within this time waits no longer in memory; it stays in the table."""

_MAX_WAITING = 50_000

_LONGEST_SPAN = timedelta(days=1)
"""How long before its log event a span may have started; bounds the look into the table."""

_WAITING = """
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

_FILL_TEXTS = """
    UPDATE raw.contents
    SET query = coalesce(CASE WHEN contents.query_from IS NULL THEN contents.query END, n.query, contents.query),
        response = coalesce(CASE WHEN contents.response_from IS NULL THEN contents.response END, n.response,
                            contents.response),
        query_from = CASE WHEN n.query IS NULL THEN contents.query_from END,
        response_from = CASE WHEN n.response IS NULL THEN contents.response_from END
    FROM (SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
                 unnest($starts::TIMESTAMP[]) AS start_time, unnest($queries::VARCHAR[]) AS query,
                 unnest($responses::VARCHAR[]) AS response) n
    WHERE contents.start_time BETWEEN $first AND $last AND contents.trace_id = n.trace_id
      AND contents.span_id = n.span_id AND contents.start_time = n.start_time"""

_FILL_STATES = """
    UPDATE raw.spans SET contexts_state = n.state, n_contexts = n.count, top_score = n.top
    FROM (SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
                 unnest($starts::TIMESTAMP[]) AS start_time, unnest($states::VARCHAR[]) AS state,
                 unnest($counts::INTEGER[]) AS count, unnest($tops::DOUBLE[]) AS top) n
    WHERE spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_FILL_ERRORS = """
    UPDATE raw.spans SET error_type = coalesce(spans.error_type, n.type),
                         status_message = coalesce(nullif(spans.status_message, ''), n.message)
    FROM (SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
                 unnest($starts::TIMESTAMP[]) AS start_time, unnest($types::VARCHAR[]) AS type,
                 unnest($messages::VARCHAR[]) AS message) n
    WHERE spans.status = 'error' AND spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_Found = tuple[dict[str, Any], ContentRecord]
"""A stored span, as `_SPANS` returns it, and the event that names it."""


@dataclass(slots=True)
class _Change:
    waiting: dict[int, ContentRecord] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)


class ContentEvents:
    """Events that wait for their span in memory (durable in `content_events`), by its key; filled in when it comes."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, ContentRecord] | None = None
        self._change = _Change()

    def join(
        self,
        transaction: Transaction,
        rows: TableRows,
        events: list[ContentRecord],
        batches: Iterable[SpanBatch],
    ) -> None:
        """Fill new spans from events that waited or came along; add texts to spans stored before."""
        waiting = self._load(transaction)
        come = _by_span(events)
        if come or waiting:
            self._fill_new(batches, come, waiting)
        left = {key: event for key, event in come.items() if key not in self._change.joined}
        if left:
            self._fill_stored(transaction, rows, left)
        for event in events:
            key = content_key(event)
            joined = key in self._change.joined
            rows.add_content_event(event, transaction.at, joined=joined)
            if not joined:
                self._change.waiting[key] = _merged(waiting.get(key), come[key])

    def remember(self) -> None:
        """The transaction is on disk."""
        waiting = self._waiting
        if waiting is not None and (self._change.waiting or self._change.joined):
            waiting.update(self._change.waiting)
            for key in self._change.joined:
                waiting.pop(key, None)
            while len(waiting) > _MAX_WAITING:
                waiting.popitem(last=False)
        self._change = _Change()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._change = _Change()

    def _load(self, transaction: Transaction) -> OrderedDict[int, ContentRecord]:
        if self._waiting is None:
            found = transaction.execute(_WAITING, {"since": transaction.at - _WAIT}).rows
            self._waiting = OrderedDict(_by_span(map(_record, found)))
        return self._waiting

    def _fill_new(
        self, batches: Iterable[SpanBatch], come: dict[int, ContentRecord], waiting: dict[int, ContentRecord]
    ) -> None:
        for batch in batches:
            for row, key in enumerate(span_keys(batch)):
                event = come.get(key)
                if event is not None or key in waiting:
                    _fill(batch, row, _merged(waiting.get(key), event))
                    self._change.joined.add(key)

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
                self._change.joined.add(key)
                pairs[key, span["start_time"]] = (span, event)
        _add_texts(transaction, rows, pairs.values())
        _add_contexts(transaction, rows, pairs.values())
        _add_errors(transaction, pairs.values())


def _by_span(events: Iterable[ContentRecord]) -> dict[int, ContentRecord]:
    """Return one event for each span, what several hold merged."""
    found: dict[int, ContentRecord] = {}
    for event in events:
        key = content_key(event)
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
        if text is not None and batch.values(name)[row] is None:
            batch.set(name, row, text)
    if batch.values("status")[row] == "error":
        for name, text in (("error_type", event.error_type), ("status_message", event.status_message)):
            if text is not None and not batch.values(name)[row]:
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
