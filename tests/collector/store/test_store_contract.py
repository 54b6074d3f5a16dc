"""What every store promises: the same tests run over the embedded file and over the lake (test_lake.py)."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import partial
from typing import Any

import duckdb
import pytest

from ragpulse_collector.records import ContextRecord, DecodeError, RawBody
from ragpulse_collector.refusals import TooSlow
from ragpulse_collector.store import Busy, Refused, Transaction

BROKEN = RawBody(signal="traces", content_type="application/x-protobuf", body=b"not a batch")


def test_an_answered_body_is_readable_at_once(kit: Any, rows: Any) -> None:
    """Reading right after the receipt sees the span with its texts and contexts."""
    store = kit.store()
    contexts = [ContextRecord(rank=1, id="a", text="Text", score=0.5), ContextRecord(rank=2, id="b")]
    kit.send(store, kit.span(1, kind="rag", query="q", response="r", contexts=contexts))
    assert rows(store, "SELECT trace_id, span_id, query, response, contexts_state FROM spans") == [
        (kit.trace, f"{1:016x}", "q", "r", "no_text")
    ]
    assert rows(store, "SELECT rank, id, text, hash IS NULL FROM contexts ORDER BY rank") == [
        (1, "a", "Text", False),
        (2, "b", None, True),
    ]


def test_a_span_sent_twice_is_stored_once(kit: Any, rows: Any) -> None:
    """The second copy is counted as a duplicate, within a body, across bodies and in one group."""
    store = kit.store()
    assert kit.send(store, kit.span(1), kit.span(1)).duplicates == 1
    assert kit.send(store, kit.span(1), kit.span(2)).duplicates == 1
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_span_sent_again_after_a_restart_is_stored_once(kit: Any, rows: Any) -> None:
    """Memory is gone after a restart; the table is asked instead."""
    first = kit.store()
    kit.send(first, kit.span(1), kit.span(2))
    first.close()
    again = kit.store()
    assert kit.send(again, kit.span(1), kit.span(3)).duplicates == 1
    assert rows(again, "SELECT count(*) FROM spans") == [(3,)]


def test_a_span_evicted_from_memory_is_still_a_duplicate(kit: Any, rows: Any) -> None:
    """What memory forgot under load is looked up in the table."""
    store = kit.store(recent_spans=2)
    for number in range(1, 9):
        kit.send(store, kit.span(number))
    kit.later(60)
    assert kit.send(store, *(kit.span(number) for number in range(1, 9))).duplicates == 8
    assert rows(store, "SELECT count(*) FROM spans") == [(8,)]


def test_one_span_id_in_two_traces_is_two_spans(kit: Any, rows: Any) -> None:
    """Identity is the pair of trace and span id."""
    store = kit.store()
    assert kit.send(store, kit.span(1), kit.span(1, trace_id="f" * 32)).duplicates == 0
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_malformed_body_fails_alone(kit: Any, rows: Any) -> None:
    """Its neighbours in the group are stored."""
    store = kit.store()
    with kit.held(store):
        futures = [store.submit(kit.body(kit.span(1))), store.submit(BROKEN), store.submit(kit.body(kit.span(2)))]
    assert isinstance(futures[1].exception(60), DecodeError)
    assert [futures[0].result(60).duplicates, futures[2].result(60).duplicates] == [0, 0]
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_a_body_that_no_table_takes_fails_alone(kit: Any, rows: Any) -> None:
    """A value that only the database refuses costs its own body, not the group's."""
    store = kit.store()
    with kit.held(store):
        bad = store.submit(kit.body(kit.span(1, metadata="\ud800")))
        good = store.submit(kit.body(kit.span(2)))
    assert isinstance(bad.exception(60), DecodeError)
    good.result(60)
    assert rows(store, "SELECT span_id FROM spans") == [(f"{2:016x}",)]


def test_failing_work_fails_alone(kit: Any, rows: Any) -> None:
    """Bodies and work that shared the transaction with it are stored."""
    store = kit.store()
    with kit.held(store):
        body = store.submit(kit.body(kit.span(1)))
        bad = store.write(lambda transaction: transaction.execute("INSERT INTO nowhere VALUES (1)"))
        good = store.write(lambda transaction: transaction.execute("INSERT INTO raw.meta VALUES ('a', 'b')"))
    body.result(60)
    good.result(60)
    assert isinstance(bad.exception(60), duckdb.CatalogException)
    assert rows(store, "SELECT value FROM raw.meta WHERE key = 'a'") == [("b",)]


def test_work_sees_what_came_before_it_and_is_one_transaction(kit: Any, rows: Any) -> None:
    """A body queued before the work is visible in it; an exception undoes the work whole."""
    store = kit.store()

    def work(transaction: Any) -> int:
        transaction.append("meta", ("key", "value"), [("half", "done")])
        count = transaction.execute("SELECT count(*) FROM raw.spans").rows[0][0]
        raise RuntimeError(str(count))

    with kit.held(store):
        store.submit(kit.body(kit.span(1)))
        failed = store.write(work)
    assert str(failed.exception(60)) == "1"
    assert rows(store, "SELECT count(*) FROM raw.meta WHERE key = 'half'") == [(0,)]


def test_appended_span_ids_may_be_hex_text(kit: Any, rows: Any) -> None:
    """Ids are hex text at every seam; the table holds numbers."""
    store = kit.store()
    ids = [(kit.trace, f"{2**64 - 2:016x}"), (kit.trace, f"{16:016x}"), (kit.trace, None)]
    store.write(lambda transaction: transaction.append("labels", ("trace_id", "span_id"), ids)).result(60)
    assert rows(store, "SELECT span_id FROM raw.labels ORDER BY 1") == [(16,), (2**64 - 2,), (None,)]


def test_transactions_have_instants_that_never_repeat(kit: Any) -> None:
    """A clock that stands still does not make two transactions simultaneous."""
    store = kit.store()
    instants = [store.write(lambda transaction: transaction.at).result(60) for _ in range(3)]
    assert instants == sorted(set(instants))
    assert instants[0] - kit.start < timedelta(seconds=1)


def test_a_full_queue_is_busy_and_recovers(kit: Any, rows: Any) -> None:
    """Bodies beyond the bound are refused with a time to come again, and taken once there is room."""
    store = kit.store(queue_bytes=3_000)
    with kit.held(store):
        first = [store.submit(kit.body(kit.span(1, name="x" * 2_000)))]
        with pytest.raises(Busy) as refused:
            store.submit(kit.body(kit.span(2, name="x" * 2_000)))
    first[0].result(60)
    assert refused.value.retry_after_s == 1
    kit.send(store, kit.span(2))
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_reading_while_writing_sees_whole_bodies_only(kit: Any) -> None:
    """A reader never sees half a body, whatever the writer does meanwhile."""
    store = kit.store()
    futures = [store.submit(kit.body(*(kit.span(n * 10 + i) for i in range(10)))) for n in range(1, 60)]
    seen = []
    while not futures[-1].done():
        seen.append(store.read("SELECT count(*) FROM raw.spans").rows[0][0])
    assert all(count % 10 == 0 for count in seen)
    assert [future.result(60).duplicates for future in futures] == [0] * 59


def test_a_slow_query_is_interrupted(kit: Any) -> None:
    """A read past its time raises TimeoutError and leaves the store usable."""
    store = kit.store()
    with pytest.raises(TooSlow):
        store.read("SELECT count(*) FROM range(1000000000) a, range(1000000000) b", timeout_s=0.05)
    assert store.read("SELECT 1").rows == [(1,)]


def test_users_sql_reads_and_never_writes(kit: Any, rows: Any) -> None:
    """One SELECT is answered, cut at the row limit; anything else is refused and changes nothing."""
    store = kit.store()
    kit.send(store, kit.span(1), kit.span(2))
    answer = store.run_user_sql("SELECT span_id FROM spans WHERE name <> ? ORDER BY 1", ["x"], max_rows=1)
    assert (answer.columns, answer.rows, answer.truncated) == (("span_id",), [(f"{1:016x}",)], True)
    for sql in ("DELETE FROM raw.spans", "SELECT 1; SELECT 2", "COPY raw.spans TO 'x.csv'"):
        with pytest.raises(Refused):
            store.run_user_sql(sql)
    assert rows(store, "SELECT count(*) FROM spans") == [(2,)]


def test_used_bytes_follow_what_is_stored(kit: Any) -> None:
    """More data means more bytes, once the file was closed or the commit is done."""
    store = kit.store()
    before = store.used_bytes()
    random_ = random.Random(1)
    kit.send(store, *(kit.span(number, query=random_.randbytes(500).hex()) for number in range(1, 2_001)))
    store.close()
    assert kit.store().used_bytes() > before + 500_000


def test_used_bytes_do_not_count_deleted_rows(kit: Any) -> None:
    """They fall with the deletion, by its share, whether or not the space can be used again yet."""
    store = kit.store()
    random_ = random.Random(1)
    kit.send(store, *(kit.span(number, query=random_.randbytes(500).hex()) for number in range(1, 2_001)))
    before = store.used_bytes()
    for table in ("spans", "contents"):
        delete = f"DELETE FROM raw.{table} WHERE span_id <= 1000"
        store.write(partial(_run, delete)).result(60)
    assert 0.4 * before < store.used_bytes() < 0.6 * before


def _run(statement: str, transaction: Transaction) -> None:
    transaction.execute(statement)


def test_closing_drains_and_refuses_what_comes(kit: Any, rows: Any) -> None:
    """What was accepted is on disk; afterwards everything is Busy; closing again does nothing."""
    store = kit.store()
    accepted = [store.submit(kit.body(kit.span(number))) for number in range(1, 6)]
    store.close()
    store.close()
    assert [future.result(0).accepted for future in accepted] == [1] * 5
    with pytest.raises(Busy):
        store.submit(kit.body(kit.span(9)))
    with pytest.raises(Busy):
        store.read("SELECT 1")
    assert rows(kit.store(), "SELECT count(*) FROM spans") == [(5,)]
