"""Texts that come on log events: joined whichever came first, never over what the span says itself."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

import pytest

from ragpulse_collector.records import ContentRecord, ContextRecord, DecodeError


def event(kit: Any, number: int = 1, **texts: Any) -> ContentRecord:
    """A log event of the span with this number."""
    return ContentRecord(trace_id=kit.trace, span_id=f"{number:016x}", time_ns=kit.start_ns, **texts)


def test_an_event_waits_for_its_span_across_a_restart(kit: Any, rows: Any) -> None:
    """What waits is on disk, not only in memory."""
    store = kit.store()
    kit.send(store, contents=[event(kit, query="q")])
    store.close()
    again = kit.store()
    kit.send(again, kit.span(1))
    assert rows(again, "SELECT query FROM spans") == [("q",)]


def test_a_span_keeps_its_own_words(kit: Any, rows: Any) -> None:
    """The event supplies what the span lacks, be it before or after."""
    store = kit.store()
    kit.send(store, contents=[event(kit, 1, query="event", response="event")])
    kit.send(store, kit.span(1, query="span"), kit.span(2, query="span"))
    kit.send(store, contents=[event(kit, 2, query="event", response="event")])
    assert rows(store, "SELECT query, response FROM spans ORDER BY span_id") == [("span", "event"), ("span", "event")]
    assert rows(store, "SELECT count(*) FROM raw.contents") == [(2,)]


@pytest.mark.parametrize("first", ["event", "span"])
def test_contexts_on_an_event_are_contexts_of_the_span(kit: Any, rows: Any, first: str) -> None:
    """Texts, scores and the span's state are the same in either order."""
    store = kit.store()
    found = event(kit, contexts=[ContextRecord(rank=1, id="a", text="t", score=0.5)])
    if first == "event":
        kit.send(store, contents=[found])
        kit.send(store, kit.span(1))
    else:
        kit.send(store, kit.span(1))
        kit.send(store, contents=[found])
    assert rows(store, "SELECT id, text, score FROM contexts") == [("a", "t", 0.5)]
    assert rows(store, "SELECT contexts_state, n_contexts, top_score FROM raw.spans") == [("text", 1, 0.5)]


def test_an_event_that_came_twice_joins_once(kit: Any, rows: Any) -> None:
    """A re-sent log record adds no second row to its span."""
    store = kit.store()
    kit.send(store, kit.span(1))
    for _ in range(2):
        kit.send(store, contents=[event(kit, query="q")])
    assert rows(store, "SELECT query FROM spans") == [("q",)]
    assert rows(store, "SELECT count(*) FROM raw.contents") == [(1,)]


def test_a_rolled_back_span_leaves_its_event_waiting(kit: Any, rows: Any) -> None:
    """The event is joined by the span that is stored in the end."""
    store = kit.store()
    kit.send(store, contents=[event(kit, query="q")])
    refused = store.submit(kit.body(kit.span(1), kit.span(2, metadata="\ud800")))
    assert isinstance(refused.exception(60), DecodeError)
    kit.send(store, kit.span(1))
    assert rows(store, "SELECT query FROM spans") == [("q",)]


@pytest.mark.parametrize("order", [("query", "response"), ("response", "query")])
@pytest.mark.parametrize("span_at", [0, 1, 2])
@pytest.mark.parametrize("bodies", [1, 2])
def test_two_events_of_one_span_add_up(kit: Any, rows: Any, order: tuple[str, str], span_at: int, bodies: int) -> None:
    """The question on one event and the answer on another, in any order, in one body or two, before or after."""
    store = kit.store()
    events = [event(kit, **{name: name}) for name in order]
    parts = [events] if bodies == 1 else [[events[0]], [events[1]]]
    for at in range(3):
        if at == span_at:
            kit.send(store, kit.span(1))
        for part in parts[at : at + 1]:
            kit.send(store, contents=part)
    assert rows(store, "SELECT query, response FROM spans") == [("query", "response")]
    assert rows(store, "SELECT count(*) FROM raw.contents") == [(1,)]


def test_texts_of_waiting_events_are_not_held_in_memory(kit: Any, rows: Any) -> None:
    """An application may drop most of its traces but none of its log events."""
    store = kit.store()
    kit.send(store, contents=[event(kit, number, query="q" * 1000) for number in range(1, 50)])
    gc.collect()
    assert [record for record in gc.get_objects() if isinstance(record, ContentRecord)] == []
    kit.send(store, kit.span(7))
    assert rows(store, "SELECT length(query) FROM spans") == [(1000,)]


def test_a_deleted_event_fills_no_span(kit: Any, rows: Any) -> None:
    """Its text may be that of a person who was forgotten."""
    store = kit.store()
    kit.send(store, contents=[event(kit, 1, query="deleted")])
    store.write(lambda transaction: transaction.execute("DELETE FROM raw.content_events")).result()
    kit.send(store, kit.span(1))
    assert rows(store, "SELECT query FROM spans") == [(None,)]


def test_two_events_wait_together_across_a_restart(kit: Any, rows: Any) -> None:
    """Both are read from disk again, and the earlier of two that say the same wins."""
    store = kit.store()
    for texts in ({"query": "first"}, {"response": "r"}, {"query": "second"}):
        kit.later(1)
        kit.send(store, contents=[event(kit, **texts)])
    store.close()
    again = kit.store()
    kit.send(again, kit.span(1))
    assert rows(again, "SELECT query, response FROM spans") == [("first", "r")]


def _update_ms(kit: Any, store: Any, count: int, first: int) -> float:
    """Store spans, then send an event about each in one body; return the CPU time that the events took."""
    numbers = range(first, first + count)
    kit.send(store, *(kit.span(number, query="q") for number in numbers))
    events = [
        event(kit, number, response=f"r{number}", contexts=[ContextRecord(rank=1, text="t")]) for number in numbers
    ]
    body = kit.body(contents=events)
    gc.disable()  # a collection walks the heap of all tests before this one
    try:
        begun = time.process_time()
        store.submit(body).result(60)
        return 1000 * (time.process_time() - begun)
    finally:
        gc.enable()


def test_many_events_of_one_body_are_joined_together(kit: Any, rows: Any, statements: list[str]) -> None:
    """As many statements for 4,000 events as for one; eight times the events take eight times the time, not 64."""
    store = kit.store()
    _update_ms(kit, store, 1, 1)
    alone, small = len(statements), _update_ms(kit, store, 500, 10_000)
    statements.clear()
    large = _update_ms(kit, store, 4_000, 20_000)
    assert len(statements) <= alone
    assert large < 24 * small
    assert rows(store, "SELECT count(*), count(DISTINCT response), min(query) FROM spans") == [(4501, 4501, "q")]
    assert rows(store, "SELECT count(*), max(n_contexts) FROM raw.spans WHERE contexts_state = 'text'") == [(4501, 1)]


@pytest.mark.parametrize("first", ["span", "event"])
def test_an_exception_on_a_log_event_names_the_error_of_a_failed_span(kit: Any, rows: Any, first: str) -> None:
    """Whichever comes first; a span that did not fail logged an exception that it handled."""
    store = kit.store()
    events = [
        ContentRecord(
            trace_id=kit.trace, span_id=f"{number:016x}", time_ns=kit.start_ns, error_type="E", status_message="why"
        )
        for number in (1, 2, 3)
    ]
    spans = [kit.span(1, status="error"), kit.span(2), kit.span(3, status="error", error_type="own")]
    sent: list[Any] = [partial(kit.send, store, *spans), partial(kit.send, store, contents=events)]
    for send in sent if first == "span" else sent[::-1]:
        send()
    found = rows(store, "SELECT error_type, status_message FROM spans ORDER BY span_id")
    assert found == [("E", "why"), (None, None), ("own", "why")]
