"""Joins to their spans what arrives apart from them: texts and exceptions on log events, scores of a response id.

Either may arrive first. Events and scores that wait for their span are stored in tables; their keys are in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import orjson

from ragpulse_collector.instants import instant
from ragpulse_collector.records import ContentRecord, ContextRecord, ScoreRecord, SpanBatch, span_key
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.rows import EVENT_FIELDS, TableRows, contexts_state, top_score

_WAIT_FOR_EVENT = timedelta(hours=1)
"""How long a log event waits in memory for its span; it stays in the table."""
_WAIT_FOR_SCORE = timedelta(days=1)
"""How long before or after a score its span may arrive."""
_MAX_WAITING = 50_000
_LONGEST_SPAN = timedelta(days=1)
"""How long before its log event a span may have started; bounds the look-up in the table."""

_UNJOINED_EVENTS = """
    SELECT replace(e.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', e.span_id) AS span_id, e.received_at
    FROM raw.content_events e
    WHERE NOT e.joined AND e.received_at >= $since AND NOT EXISTS (
        SELECT 1 FROM raw.spans s WHERE s.trace_id = e.trace_id AND s.span_id = e.span_id)
    ORDER BY e.received_at"""

_EVENTS = """
    SELECT replace(trace_id::VARCHAR, '-', ''), printf('%016x', span_id), record FROM raw.content_events
    WHERE NOT joined AND received_at >= $since AND trace_id IN (SELECT unnest($traces::UUID[])) ORDER BY received_at"""

_SPANS = """
    SELECT replace(s.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', s.span_id) AS span_id, s.start_time,
           s.service, s.environment, s.contexts_state, c.trace_id IS NOT NULL AS has_row
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time
    WHERE s.start_time >= $since AND s.trace_id IN (SELECT unnest($traces::UUID[]))"""

_SPAN_ROWS = """unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
                 unnest($starts::TIMESTAMP[]) AS start_time"""

_FILL_TEXTS = f"""
    UPDATE raw.contents
    SET query = coalesce(CASE WHEN contents.query_from IS NULL THEN contents.query END, n.query, contents.query),
        response = coalesce(CASE WHEN contents.response_from IS NULL THEN contents.response END, n.response,
                            contents.response),
        query_from = CASE WHEN n.query IS NULL THEN contents.query_from END,
        response_from = CASE WHEN n.response IS NULL THEN contents.response_from END
    FROM (SELECT {_SPAN_ROWS}, unnest($queries::VARCHAR[]) AS query, unnest($responses::VARCHAR[]) AS response) n
    WHERE contents.start_time BETWEEN $first AND $last AND contents.trace_id = n.trace_id
      AND contents.span_id = n.span_id AND contents.start_time = n.start_time"""

_FILL_STATES = f"""
    UPDATE raw.spans SET contexts_state = n.state, n_contexts = n.count, top_score = n.top
    FROM (SELECT {_SPAN_ROWS}, unnest($states::VARCHAR[]) AS state, unnest($counts::INTEGER[]) AS count,
                 unnest($tops::DOUBLE[]) AS top) n
    WHERE spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_FILL_ERRORS = f"""
    UPDATE raw.spans SET error_type = coalesce(spans.error_type, n.type),
                         status_message = coalesce(nullif(spans.status_message, ''), n.message)
    FROM (SELECT {_SPAN_ROWS}, unnest($types::VARCHAR[]) AS type, unnest($messages::VARCHAR[]) AS message) n
    WHERE spans.status = 'error' AND spans.start_time BETWEEN $first AND $last AND spans.trace_id = n.trace_id
      AND spans.span_id = n.span_id AND spans.start_time = n.start_time"""

_UNJOINED_SCORES = """
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
_Events = dict[int, list[ContentRecord]]
"""The events of each span, by its key."""
_Match = tuple[dict[str, Any], ContentRecord]
"""A stored span, as `_SPANS` returns it, and its event."""
_SpanIds = tuple[str, str]
"""A trace and a span."""


class _Waiting(Generic[_Key]):
    """What waits for a span, by key, and since when; changes take effect when their transaction is on disk."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, datetime] | None = None
        """None until the first transaction reads the table."""
        self._added: dict[_Key, datetime] = {}
        self._joined: set[_Key] = set()

    def remember(self) -> None:
        """The transaction is on disk."""
        if (waiting := self._waiting) is not None:
            waiting |= self._added
            for key in self._joined:
                waiting.pop(key, None)
            while len(waiting) > _MAX_WAITING:
                waiting.pop(next(iter(waiting)))
        self.forget()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._added, self._joined = {}, set()


class ContentEvents(_Waiting[int]):
    """The keys of spans with log events that wait for them; the events themselves are in `raw.content_events`.

    An application that drops most traces but no log events would fill the memory with their texts.
    """

    def join(
        self, transaction: Transaction, rows: TableRows, events: list[ContentRecord], batches: Iterable[SpanBatch]
    ) -> None:
        """Fill new spans from waiting and new events; add texts to stored spans."""
        if self._waiting is None:
            unjoined = transaction.execute(_UNJOINED_EVENTS, {"since": transaction.at - _WAIT_FOR_EVENT}).rows
            self._waiting = {_key(trace_id, span_id): received for trace_id, span_id, received in unjoined}
        waiting, by_span = self._waiting, _by_span(events)
        if by_span or waiting:
            self._fill_new(transaction, batches, by_span, waiting)
        unmatched = {key: event for key, event in by_span.items() if key not in self._joined}
        if unmatched:
            self._fill_stored(transaction, rows, unmatched)
        for event in events:
            key = event.key
            rows.add_content_event(event, transaction.at, joined=key in self._joined)
            if key not in self._joined:
                self._added[key] = waiting.get(key, transaction.at)

    def _fill_new(
        self,
        transaction: Transaction,
        batches: Iterable[SpanBatch],
        new_events: _Events,
        waiting: dict[int, datetime],
    ) -> None:
        spans = {
            key: (batch, row)
            for batch in batches
            for row, key in enumerate(batch.keys())
            if key in new_events or key in waiting
        }
        traces = {batch.trace_ids[row].hex() for key, (batch, row) in spans.items() if key in waiting}
        stored: _Events = {}
        if traces:
            # Earlier, because a clock that was ahead has its times of receipt corrected afterwards.
            since = min(transaction.at, *(waiting[key] for key in spans if key in waiting)) - _WAIT_FOR_EVENT
            stored = _by_span(map(_record, transaction.execute(_EVENTS, {"since": since, "traces": list(traces)}).rows))
        for key, (batch, row) in spans.items():
            if key in stored or key in new_events:  # retention may have deleted a waiting one
                events = [*stored.get(key, []), *new_events.get(key, [])]
                origin = batch.value("service", row), batch.value("environment", row)
                _fill(batch, row, _merged(events, *origin))
            self._joined.add(key)

    def _fill_stored(self, transaction: Transaction, rows: TableRows, events: _Events) -> None:
        since = instant(min(event.time_ns for of_span in events.values() for event in of_span)) - _LONGEST_SPAN
        traces = list({of_span[0].trace_id for of_span in events.values()})
        spans = transaction.execute(_SPANS, {"since": since, "traces": traces})
        pairs: dict[tuple[int, datetime], _Match] = {}  # two collectors may have stored one span in a lake
        for span in spans.dicts():
            key = _key(span["trace_id"], span["span_id"])
            if key in events:
                self._joined.add(key)
                pairs[key, span["start_time"]] = (span, _merged(events[key], span["service"], span["environment"]))
        _add_texts(transaction, rows, pairs.values())
        _add_contexts(transaction, rows, pairs.values())
        _add_errors(transaction, pairs.values())


class ResponseScores(_Waiting[str]):
    """Response ids with scores that wait for their span; the scores themselves are in `raw.feedback`."""

    def join(self, transaction: Transaction, scores: Iterable[ScoreRecord], batches: Iterable[SpanBatch]) -> None:
        """Set trace and span of new scores, and of waiting scores whose span is new."""
        since = {"since": transaction.at - _WAIT_FOR_SCORE}
        if self._waiting is None:
            unjoined = transaction.execute(_UNJOINED_SCORES, since).values
            self._waiting = dict.fromkeys(unjoined, transaction.at)
        unplaced = [score for score in scores if score.trace_id is None and score.response_id is not None]
        if not (unplaced or self._waiting):
            return
        new_spans: dict[str, _SpanIds] = {}
        for batch in batches:
            new_spans |= _span_ids_by_response(batch)
        self._joined = self._waiting.keys() & new_spans.keys()
        if self._joined:
            _join_scores(transaction, {response: new_spans[response] for response in self._joined})
        if unplaced:
            ids = list({score.response_id for score in unplaced})
            stored = transaction.execute(_RESPONSES, since | {"ids": ids}).rows
            span_ids = {response: (trace, span) for response, trace, span in stored} | new_spans
            for score in unplaced:
                response = score.response_id or ""
                if response in span_ids:
                    score.trace_id, score.span_id = span_ids[response]
                else:
                    self._added[response] = transaction.at


def _key(trace_id: str, span_id: str) -> int:
    return span_key(bytes.fromhex(trace_id), bytes.fromhex(span_id))


def _by_span(events: Iterable[ContentRecord]) -> _Events:
    by_span: _Events = {}
    for event in events:
        by_span.setdefault(event.key, []).append(event)
    return by_span


def _merged(events: Iterable[ContentRecord], service: str | None, environment: str | None) -> ContentRecord:
    """Return one event of those whose sender may write to a span of this service and environment.

    The first one that has a field wins, as a stored text does.
    """
    events = list(events)
    allowed = [event for event in events if event.binding is None or event.binding.allows(service, environment)]
    fields: dict[str, Any] = {name: next((v for event in allowed if (v := getattr(event, name)) is not None), None)
              for name in EVENT_FIELDS}  # fmt: skip
    return replace(events[0], **fields)


def _record(row: tuple[Any, ...]) -> ContentRecord:
    body = orjson.loads(row[2])
    contexts, binding = body.pop("contexts"), body.pop("binding", None)
    return ContentRecord(
        trace_id=row[0],
        span_id=row[1],
        time_ns=0,
        contexts=None if contexts is None else [ContextRecord(**context) for context in contexts],
        binding=binding and Binding(**binding),
        **body,
    )


def _fill(batch: SpanBatch, row: int, event: ContentRecord) -> None:
    """Fill the fields of a span that are empty from its event."""
    for name, text in (("query", event.query), ("response", event.response)):
        if text is not None and batch.value(name, row) is None:
            batch.set(name, row, text)
    if batch.value("status", row) == "error":
        for name, text in (("error_type", event.error_type), ("status_message", event.status_message)):
            if text is not None and not batch.value(name, row):
                batch.set(name, row, text)
    if event.contexts is not None and batch.contexts_of(row) is None:
        batch.set_contexts(row, event.contexts)


def _add_texts(transaction: Transaction, rows: TableRows, pairs: Iterable[_Match]) -> None:
    """Add texts to stored spans: one UPDATE for the spans that have a row of texts, new rows for the others."""
    filled: list[_Match] = []
    for span, event in pairs:
        if event.query is None and event.response is None:
            continue
        if span["has_row"]:
            filled.append((span, event))
        else:
            rows.add_row("contents", **_ids(span), query=event.query, response=event.response)
    if filled:
        texts = {"queries": [event.query for _, event in filled], "responses": [event.response for _, event in filled]}
        transaction.execute(_FILL_TEXTS, _span_parameters(filled) | texts)


def _add_contexts(transaction: Transaction, rows: TableRows, pairs: Iterable[_Match]) -> None:
    """Add contexts to stored spans that have none, in one statement."""
    filled = [(span, event) for span, event in pairs if event.contexts is not None and span["contexts_state"] is None]
    if not filled:
        return
    contexts = [event.contexts or [] for _, event in filled]
    for (span, _), documents in zip(filled, contexts, strict=True):
        ids = _ids(span)
        rows.add_contexts(ids["trace_id"], ids["span_id"], ids["start_time"], documents)
    states = {
        "states": [contexts_state(documents) for documents in contexts],
        "counts": [len(documents) for documents in contexts],
        "tops": [top_score(documents) for documents in contexts],
    }
    transaction.execute(_FILL_STATES, _span_parameters(filled) | states)


def _add_errors(transaction: Transaction, pairs: Iterable[_Match]) -> None:
    """Add exceptions to stored spans that failed without naming one."""
    filled = [
        (span, event) for span, event in pairs if event.error_type is not None or event.status_message is not None
    ]
    if filled:
        texts = {
            "types": [event.error_type for _, event in filled],
            "messages": [event.status_message for _, event in filled],
        }
        transaction.execute(_FILL_ERRORS, _span_parameters(filled) | texts)


def _ids(span: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace_id": bytes.fromhex(span["trace_id"]),
        "span_id": bytes.fromhex(span["span_id"]),
        "start_time": span["start_time"],
    }


def _span_parameters(pairs: Iterable[_Match]) -> dict[str, Any]:
    """Return the parameters of a statement about these spans."""
    spans = [span for span, _ in pairs]
    starts = [span["start_time"] for span in spans]
    return {
        "traces": [span["trace_id"] for span in spans],
        "spans": [int(span["span_id"], 16) for span in spans],
        "starts": starts,
        "first": min(starts),
        "last": max(starts),
    }


def _join_scores(transaction: Transaction, span_ids: dict[str, _SpanIds]) -> None:
    """Set trace and span of the stored scores of these responses."""
    parameters = {
        "responses": list(span_ids),
        "traces": [trace for trace, _ in span_ids.values()],
        "spans": [int(span, 16) for _, span in span_ids.values()],
    }
    transaction.execute(_JOIN_SCORES, parameters | {"at": transaction.at})


def _span_ids_by_response(batch: SpanBatch) -> dict[str, _SpanIds]:
    pairs = zip(batch.values("response_id"), batch.ids(), strict=True)
    return {response: span for response, span in pairs if response is not None}
