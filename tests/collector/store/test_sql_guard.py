"""SQL that users write runs within limits of time, memory, rows and bytes, in a process of its own."""

from __future__ import annotations

import resource
import sys
import threading
from typing import Any

import pytest

from ragpulse_collector.refusals import TooSlow
from ragpulse_collector.store import Busy, FileReader, Refused
from ragpulse_collector.store.reading import outbox_folder


def test_the_export_folder_is_no_way_to_read_files(kit: Any) -> None:
    """Nothing lies in the one folder that SQL may touch, and `..` does not lead out of it."""
    store = kit.store()
    secret = kit.path.parent / "secret.csv"
    secret.write_text("a\n1\n")
    out = outbox_folder(kit.path)
    with pytest.raises(Refused, match="not allowed"):
        store.run_user_sql(f"SELECT * FROM read_csv('{out}/../secret.csv')")
    assert not out.exists()


def test_selects_with_parameters_are_answered(kit: Any) -> None:
    """CTEs, views, macros and parameters work; instants with a zone come as UTC."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", query="it's"))
    assert store.run_user_sql("WITH a AS (SELECT query FROM spans) FROM a WHERE query = ?", ["it's"]).rows == [
        ("it's",)
    ]
    assert store.run_user_sql("SELECT span_id FROM trace(?);", [kit.trace]).rows == [(f"{1:016x}",)]
    shown = store.run_user_sql("SELECT TIMESTAMPTZ '2026-03-01 12:00:00+02' AS \"a b\", 1 AS n")
    assert (shown.columns, str(shown.rows[0][0])) == (("a b", "n"), "2026-03-01 10:00:00")


def test_a_query_past_its_time_is_interrupted(kit: Any) -> None:
    """It ends soon after its time, and the next query runs."""
    store = kit.store()
    with pytest.raises(TooSlow):
        store.run_user_sql("SELECT count(*) FROM range(1000000000) a, range(1000000000) b", timeout_s=0.05)
    assert store.run_user_sql("SELECT 1").rows == [(1,)]


def test_rows_and_bytes_are_capped(kit: Any) -> None:
    """A cut answer says so; an answer of exactly the limit is whole."""
    store = kit.store()
    cut = store.run_user_sql("SELECT * FROM range(1000000)", max_rows=10)
    assert (len(cut.rows), cut.truncated) == (10, True)
    assert not store.run_user_sql("SELECT * FROM range(10)", max_rows=10).truncated
    big = store.run_user_sql("SELECT repeat('x', 1000000) FROM range(200)")
    assert big.truncated
    assert sum(len(row[0]) for row in big.rows) < 2**27


def test_a_query_that_needs_too_much_memory_is_refused(kit: Any) -> None:
    """The collector's memory limit ends the query, not the collector."""
    store = kit.store(memory_limit="60MB")
    with pytest.raises(Refused, match="memory"):
        store.run_user_sql("SELECT list(repeat('x', 1000) || i) FROM range(1000000) t(i)")
    assert store.run_user_sql("SELECT 1").rows == [(1,)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the ceiling is the kernel's account of memory")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 2000000000))",
        "SELECT repeat('x', 60000000) FROM range(50)",
        "SELECT list_sum(range(100000000))",
        "SELECT format('{:>2000000000}', 'a')",
        "SELECT [repeat('x', 100000) FOR i IN range(20000)]",
        "WITH RECURSIVE t AS (SELECT 'x' a UNION ALL SELECT a || a FROM t WHERE length(a) < 1e10) SELECT max(a) FROM t",
    ],
)
def test_what_functions_make_is_bounded_too(kit: Any, sql: str) -> None:
    """Memory that the engine's own limit does not see: refused at once, and everything else goes on."""
    store = kit.store()
    with pytest.raises(Refused, match="memory"):
        store.run_user_sql(sql)
    store.write(lambda transaction: transaction.append("meta", ("key", "value"), [("a", "b")])).result()
    assert store.run_user_sql("SELECT value FROM raw.meta WHERE key = 'a'").rows == [("b",)]
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def test_two_queries_run_at_a_time(kit: Any) -> None:
    """A third is told to come again when neither ends in its time; writing is never held up by them."""
    store = kit.store()
    slow = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    ends: list[str] = []

    def run() -> None:
        try:
            store.run_user_sql(slow, timeout_s=0.3)
        except (Busy, TooSlow) as error:
            ends.append(type(error).__name__)

    started = [threading.Thread(target=run) for _ in range(3)]
    for thread in started:
        thread.start()
    kit.send(store, kit.span(1))
    for thread in started:
        thread.join(60)
    assert ends.count("TooSlow") >= 2
    assert len(ends) == 3


def test_a_closed_file_answers_too(kit: Any) -> None:
    """The command line reads a closed file with the same fences."""
    kit.send(kit.store(), kit.span(1))
    kit.close()
    reader = FileReader(kit.path)
    assert reader.run_user_sql("SELECT count(*) FROM spans").rows == [(1,)]
    with pytest.raises(Refused):
        reader.run_user_sql("SELECT * FROM read_text('/etc/passwd')")
    reader.close()
