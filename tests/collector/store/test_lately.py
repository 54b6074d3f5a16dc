"""The newest traces with what is in memory: exactly as the tables alone tell them, whatever came in between."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.traffic import rag_trace
from tests.wire_support import PROTOBUF, as_protobuf

from ragpulse_collector.conventions import decode as decode_otlp
from ragpulse_collector.records import ContentRecord, ContextRecord, RawBody, SpanRecord
from ragpulse_collector.sampler import Sampler
from ragpulse_collector.store.lately import Key
from ragpulse_collector.store.newest import newest, newest_of_all
from ragpulse_collector.store.remap import remap
from ragpulse_collector.store.retention import prune_service
from ragpulse_collector.store.views import FACT_COLUMNS

COLUMNS = ", ".join(("trace_id", *FACT_COLUMNS))


class Asked:
    """A store that notes whether what waits was read from the tables."""

    def __init__(self, store: Any) -> None:
        self.store, self.lately, self.sql = store, store.lately, ""

    def read(self, sql: str, parameters: Any = ()) -> Any:
        self.sql += sql
        return self.store.read(sql, parameters)


def agrees(store: Any, limit: int, **given: Any) -> bool:
    """Whether memory held what was needed; either way the list is as the tables alone tell it."""
    asked = Asked(store)
    found = newest_of_all(asked, limit, **given)  # type: ignore[arg-type]
    first = given.get("first", datetime.min)
    assert found == [row for row in newest(store, COLUMNS, "true", {}, limit) if row["start_time"] >= first]
    return "undecided_since" not in asked.sql


def some_spans(kit: Any, seed: int, traces: int = 30) -> list[SpanRecord]:
    """Spans of so many traces in any order, each with some of what a span may state."""
    draw = random.Random(seed)

    def maybe(value: Any) -> Any:
        return value if draw.random() < 0.5 else None

    return draw.sample(found := [
        kit.span(
            number := trace * 8 + place, parent=trace * 8 if place and draw.random() < 0.8 else None,
            kind=draw.choice(("rag", "llm", "retriever", "other")), trace_id=f"{trace + 1:032x}",
            start_ns=kit.start_ns + (trace * 5 + draw.randrange(20)) * 1_000_000 + number,
            service=maybe("helpdesk"), environment=maybe("test"), model=maybe(draw.choice("ab")), status=maybe("error"),
            input_tokens=maybe(draw.randrange(99)), output_tokens=maybe(7), ttft_ms=maybe(1.5), session_id=maybe("s"),
            prompt_version=maybe(draw.choice("12")), query=maybe(f"why {number}"), response=maybe("because"),
            upstream_pi=draw.choice((1.0, 0.5)),
            contexts=maybe([ContextRecord(rank=1, id="d", score=draw.random(), text="t", metadata=None)]),
        )
        for trace in range(traces) for place in range(draw.randrange(1, 6))
    ], len(found))  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_list_is_that_of_the_tables(kit: Any, seed: int) -> None:
    """Traces that wait and that are decided, in bodies of any size, each column as the view has it."""
    store, spans = kit.store(), some_spans(kit, seed)
    third = len(spans) // 3
    kit.send(store, *spans[:third])
    Sampler(store, settle_s=0, quiet_s=0).decide(kit.later(1))
    for at in range(third, len(spans), 20):
        kit.send(store, *spans[at : at + 20])
        hits = [agrees(store, limit) for limit in (1, 2, 5)]
    assert all(hits)
    assert agrees(store, 5, first=kit.start + timedelta(milliseconds=125))


def test_spans_that_came_in_blocks_are_told_as_well(kit: Any) -> None:
    """What is kept of a protobuf body's columns, those that all spans share among them."""
    store = kit.store(decode=decode_otlp)
    odd: dict[str, Any] = {"query": 5, "response": 2.5, "model": 3, "prompt_version": 1}
    spans = [
        span
        for number in range(9)
        for span in rag_trace(number, start_ns=kit.start_ns + number * 10**9, **(odd if number == 7 else {}))
    ]
    request = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}
    body = as_protobuf(json.dumps(request).encode())
    store.submit(RawBody(signal="traces", content_type=PROTOBUF, body=body)).result(20)
    assert agrees(store, 3)
    assert newest_of_all(store, 1)[0]["query"] == "How tall is the Eiffel Tower?"


def remapped(kit: Any, store: Any) -> None:
    """Every span gets another service."""
    remap(store, lambda span: replace(span, service="moved"))


def pruned(kit: Any, store: Any) -> None:
    """One service's traces are deleted."""
    prune_service(store, "helpdesk")


def told_later(kit: Any, store: Any, which: str = "query IS NOT NULL") -> None:
    """Texts come on log events, for spans that have one of the two already."""
    found = store.read(f"SELECT trace_id, span_id FROM spans WHERE {which}").rows
    events = [
        ContentRecord(trace_id=trace_id, span_id=span_id, time_ns=kit.start_ns, query="late", response="later")
        for trace_id, span_id in found
    ]
    kit.send(store, contents=events)


def told_first(kit: Any, store: Any) -> None:
    """The same for spans that have none."""
    told_later(kit, store, "coalesce(query, response) IS NULL")


def inserted(kit: Any, store: Any) -> None:
    """Rows that nobody appended."""
    copied = "INSERT INTO raw.spans BY NAME SELECT * REPLACE (span_id + 1 AS span_id) FROM raw.spans"
    store.write(lambda transaction: transaction.execute(copied)).result(20)


def failed(kit: Any, store: Any) -> None:
    """A transaction of a good body and work that fails; the body is stored in the next."""
    with kit.held(store):
        sent = store.submit(kit.body(kit.span(900, kind="rag", trace_id=f"{900:032x}")))
        broken = store.write(lambda transaction: 1 / 0)
    sent.result(20)
    with pytest.raises(ZeroDivisionError):
        broken.result(20)


@pytest.mark.parametrize("change", [remapped, pruned, told_later, told_first, inserted, failed])
def test_what_changes_stored_spans_changes_the_list(kit: Any, change: Callable[[Any, Any], None]) -> None:
    """Nothing is shown from memory that the tables tell otherwise by now."""
    store = kit.store()
    kit.send(store, *some_spans(kit, 3))
    assert agrees(store, 8)
    before = newest_of_all(store, 8)
    change(kit, store)
    agrees(store, 8)
    assert newest_of_all(store, 8) != before
    kit.send(store, *some_spans(kit, 4, traces=40)[120:])
    agrees(store, 8)


def test_spans_that_came_after_the_look_are_left_out(kit: Any) -> None:
    """The table was asked before them; what is known of fewer spans than it has is not told."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", service="a"))
    (at,) = store.read("SELECT max(received_at) FROM raw.spans").rows[0]
    kit.send(store, kit.span(2, parent=1, kind="llm", model="m"))
    key = Key(bytes.fromhex(kit.trace), 1, at)
    (row,) = store.lately.rolled_up([key])
    assert (row["service"], row["model"]) == ("a", None)
    assert store.lately.rolled_up([key._replace(n_spans=2)]) is None


def test_little_is_kept_and_not_for_long(kit: Any) -> None:
    """No more spans or text than it may; after some seconds without a span the tables alone are quicker."""
    store = kit.store(lately_spans=8)
    for number in range(10, 14):
        kit.later(0.3)
        kit.send(store, *(kit.span(number * 3 + place) for place in range(3)))
    assert store.lately.begin(6) == kit.start + timedelta(milliseconds=36)
    assert store.lately.begin(7) is None
    for number in range(50, 53):
        kit.later(0.6)
        kit.send(store, kit.span(number, kind="rag", query="q", response="r" * 1_500_000))
    assert (store.lately.begin(1), store.lately.begin(2)) == (kit.start + timedelta(milliseconds=52), None)
    kit.later(6)
    assert store.lately.begin(1) is None


def test_nothing_is_kept_while_too_much_comes(kit: Any) -> None:
    """More than fits within half a second, for five seconds: it would cost throughput and be of no use."""
    store = kit.store(lately_spans=8)
    kit.send(store, *(kit.span(number) for number in range(9)))
    assert store.lately.begin(1) is None
    kit.later(4.9)
    kit.send(store, kit.span(20))
    assert store.lately.begin(1) is None
    kit.later(0.2)
    kit.send(store, kit.span(30))
    assert store.lately.begin(1) == kit.start + timedelta(milliseconds=30)
