"""The embedded store: durable before answered, once each, one failing alone."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import duckdb
import forks
import pytest
from spans import batch_of

from ragpulse_collector.records import Batch, RawBody
from ragpulse_collector.store import Busy, EmbeddedStore, FileReader, StoreError, Transaction, embedded
from ragpulse_collector.store.connection import ROW_GROUP_SIZE


def test_close_drains_what_was_accepted(kit: Any) -> None:
    """Everything accepted before closing is on disk; later bodies are refused."""
    store = kit.store()
    with kit.held(store):
        futures = [store.submit(kit.body(kit.span(number))) for number in range(1, 50)]
    store.close()
    assert all(future.done() for future in futures)
    with pytest.raises(Busy):
        store.submit(kit.body(kit.span(99)))
    reader = FileReader(kit.path)
    assert reader.read("SELECT count(*) FROM spans").rows == [(49,)]
    reader.close()


def test_after_much_was_written_the_file_is_opened_anew_when_nobody_reads(kit: Any) -> None:
    """What the engine keeps of written rows ends so; nothing is lost, and an answer under way comes first."""
    store = kit.store(renew_bytes=1, renew_s=0)
    transactions = "SELECT txid_current()"  # counted again where a file is opened

    def counted(number: int) -> list[tuple[Any, ...]]:
        kit.send(store, kit.span(number))
        store.write(lambda _: None).result(60)  # by then the file was reopened, if it was
        return store.read("SELECT count(*) FROM spans", timeout_s=60).rows

    assert [counted(number) for number in range(1, 21)] == [[(number,)] for number in range(1, 21)]
    begun = store.read(transactions).rows[0][0]
    cursor = store._read_cursor()
    assert [counted(number) for number in range(21, 41)] == [[(number,)] for number in range(21, 41)]
    went_on = cursor.execute(transactions).fetchall()[0][0]
    assert went_on >= begun + 40
    cursor.close()
    del cursor
    assert counted(41) == [(41,)]
    assert store.read(transactions).rows[0][0] < went_on


def test_a_file_in_use_names_the_mend(kit: Any) -> None:
    """Opening a file that a collector holds tells to ask the collector."""
    kit.store()
    script = (
        "import sys; from ragpulse_collector.store import FileReader, StoreError\n"
        "try: FileReader(sys.argv[1])\nexcept StoreError as error: print(error)"
    )
    assert "--url" in _python(script, str(kit.path))


def test_a_file_of_a_newer_version_is_refused(kit: Any) -> None:
    """A file written by a later ragpulse is left alone and the upgrade is named."""
    store = kit.store()
    store.write(lambda t: t.execute("INSERT INTO raw.meta VALUES ('schema_version', '999')")).result(60)
    store.close()
    with pytest.raises(StoreError, match="pip install -U"):
        kit.store()
    with pytest.raises(StoreError, match="999"):
        FileReader(kit.path)


def test_something_else_is_not_taken_for_a_store(kit: Any) -> None:
    """A file that is no database is named in the error and not changed."""
    kit.path.write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError, match=r"t\.duckdb"):
        kit.store()
    assert kit.path.read_bytes() == b"x" * 10_000


def test_a_file_is_opened_once_at_a_time(kit: Any) -> None:
    """A second store over it is refused in the same process too, and the first goes on."""
    store = kit.store()
    with pytest.raises(StoreError, match="in use"):
        EmbeddedStore(kit.path, decode=lambda _: Batch())
    kit.send(store, kit.span(1))


def test_a_broken_file_names_itself(kit: Any) -> None:
    """Bytes that are not what was written are told from a file of something else, and not changed."""
    broken = bytearray(kit.path.read_bytes())
    broken[4096:8192] = b"x" * 4096
    kit.path.write_bytes(broken)
    with pytest.raises(StoreError, match=r"t\.duckdb is not a file this duckdb .* can read"):
        kit.store()
    assert kit.path.read_bytes() == broken


def test_the_file_is_an_ordinary_one(kit: Any) -> None:
    """DuckDB itself makes, reads and extends what a store does, whatever the size of its groups of rows."""
    path = kit.path.with_name('it\'s "a" file.duckdb')
    with duckdb.connect(str(path)) as plain:
        plain.execute("CREATE TABLE mine (text VARCHAR)")
        plain.execute(_MORE, [0, 50_000])
        version = plain.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchall()
    with contextlib.closing(EmbeddedStore(path, decode=lambda _: Batch())) as store:
        for low in range(50_000, 90_000, 1_000):
            store.write(partial(_more, low=low)).result(60)
        assert store.read(_COUNT).rows == [(90_000, 90_000)]
    with duckdb.connect(str(path)) as plain:
        assert plain.execute(_COUNT).fetchall() == [(90_000, 90_000)]
        groups = (
            "SELECT sum(count) FROM pragma_storage_info('mine') WHERE segment_type = 'VARCHAR' GROUP BY row_group_id"
        )
        assert [count for (count,) in plain.execute(f"{groups} ORDER BY row_group_id").fetchall()] == [
            50_000, *[ROW_GROUP_SIZE] * (40_000 // ROW_GROUP_SIZE), 40_000 % ROW_GROUP_SIZE
        ]  # fmt: skip
        assert plain.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchall() == version


_MORE = "INSERT INTO mine SELECT 'x' || i FROM range(?, ?) r(i)"
_COUNT = "SELECT count(*), count(DISTINCT text) FROM mine"


def _more(transaction: Transaction, low: int) -> None:
    transaction.execute(_MORE, [low, low + 1_000])


@pytest.mark.skipif("RAGPULSE_TEST_LAKE" in os.environ, reason="a lake has a catalog beside its files")
def test_nothing_but_the_file_is_open(kit: Any) -> None:
    """Who asks what there is finds one database, and what does not fit into memory is written beside the file."""
    store = kit.store()
    listed = "SELECT database_name, path FROM duckdb_databases() WHERE NOT internal"
    assert store.read(listed).rows == [("ragpulse", str(kit.path))]
    assert len(store.read("SELECT * FROM pragma_database_size()").rows) == 1
    assert store.read("SELECT current_setting('temp_directory')").rows == [(f"{kit.path}.tmp",)]


def test_a_new_file_is_whole_after_its_first_moment(kit: Any) -> None:
    """Tables, views and macros that are in the log alone when the process dies are there for the next."""
    path = kit.path.with_name("new.duckdb")
    script = "import os, sys; from ragpulse_collector.store import EmbeddedStore\n"
    script += "EmbeddedStore(sys.argv[1], decode=None); os._exit(0)"
    assert _python(script, str(path)) == ""
    assert path.with_name("new.duckdb.wal").stat().st_size > 0
    with contextlib.closing(EmbeddedStore(path, decode=lambda _: Batch())) as store:
        assert store.read("SELECT count(*) FROM traces, quality('e', '2026-01-01', '2027-01-01')").rows == [(0,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_a_full_disk_is_busy_and_recovers_without_restart(kit: Any) -> None:
    """While the file cannot grow, bodies are Busy; when it can again, they are stored and nothing is lost."""
    answer = _python(_FULL_DISK, str(kit.path))
    assert answer.split() == ["Busy", "True", "1", "2", "None"]


@pytest.mark.skipif("RAGPULSE_TEST_LAKE" in os.environ, reason="a lake holds nothing in a file of its own")
def test_a_question_beyond_the_memory_is_busy_and_large_groups_are_not(kit: Any) -> None:
    """What can be written out meanwhile is answered; what cannot is Busy, says the fix, and the next is answered."""
    store = kit.store(memory_limit="40MB")
    with pytest.raises(Busy, match="shorter time") as refused:
        store.read("SELECT list(repeat('x', 1000) || i) FROM range(1000000) t(i)")
    assert refused.value.retry_after_s > 0
    groups = store.read("SELECT count(*) FROM (SELECT i, count(*) FROM range(1000000) t(i) GROUP BY i)")
    assert groups.rows == [(1_000_000,)]


@pytest.mark.skipif("RAGPULSE_TEST_LAKE" in os.environ, reason="a lake has no log of its own")
@pytest.mark.parametrize(("disk_s", "left"), [(60.0, False), (0.0, True)])
def test_a_log_goes_into_the_file_at_the_end_where_the_disk_is_fast_enough(
    kit: Any, monkeypatch: pytest.MonkeyPatch, disk_s: float, left: bool
) -> None:
    """20 MB go into the file if the disk takes them in time; otherwise they stay, and the next to open reads them."""
    monkeypatch.setattr(embedded, "CHECKPOINT_ON_CLOSE_S", disk_s)
    store, rows = kit.store(), 10_000
    insert = "INSERT INTO raw.meta SELECT 'k', repeat('x', 2000) || i FROM range($n) r(i)"
    store.write(lambda t: t.execute(insert, {"n": rows})).result(60)
    store.close()
    assert kit.path.with_name(kit.path.name + ".wal").exists() is left
    count = "SELECT count(*) FROM raw.meta WHERE key = 'k'"
    reader = FileReader(kit.path)
    assert reader.read(count).rows == [(rows,)]
    reader.close()
    assert kit.store().read(count).rows == [(rows,)]


@pytest.mark.skipif("RAGPULSE_TEST_LAKE" in os.environ, reason="a lake may be opened twice")
def test_closing_does_not_wait_for_readers(kit: Any) -> None:
    """A query under way is interrupted and told so; the file is free at once."""
    store = kit.store()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.read, "SELECT count(*) FROM range(10000000000) r(i) WHERE hash(i) = 1")
        while not store.read("SELECT 1").rows or not slow.running():
            pass
        store.close()
        with pytest.raises(Busy, match="closed"):
            slow.result(60)
    FileReader(kit.path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_readers_go_on_after_the_engine_gave_the_store_up(kit: Any) -> None:
    """A checkpoint that fails is fatal to the engine: it is reopened beside a long query, and both are answered."""
    assert _python(_FATAL, str(kit.path)).split() == ["IOException", "5000", "5001", "0"]


_FATAL = """
import logging, pickle, resource, signal, sys, threading
from concurrent.futures import ThreadPoolExecutor
from ragpulse_collector.store import EmbeddedStore
logging.disable(logging.CRITICAL)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = EmbeddedStore(sys.argv[1], decode=lambda body: pickle.loads(body.body))
store.write(lambda t: t.execute("INSERT INTO raw.labels (comment) SELECT 'x' || i FROM range(5000) r(i)")).result(60)
pool = ThreadPoolExecutor(1)
slow = pool.submit(store.read, "SELECT count(*) FROM range(100000000) r(i) WHERE hash(i) = 1")
while not slow.running():
    pass
cursor = store._cursor()
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
try:
    cursor.execute("CHECKPOINT")
except Exception as error:
    print(type(error).__name__)
cursor.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
count = "SELECT count(*) FROM raw.labels"
print(store.read(count).rows[0][0])
store.write(lambda t: t.execute("INSERT INTO raw.labels (comment) VALUES ('last')")).result(60)
print(store.read(count).rows[0][0])
print(slow.result(60).rows[0][0])
store.close()
"""

_FULL_DISK = """
import os, pickle, resource, signal, sys
from ragpulse_collector.records import Batch, RawBody, SpanBatch
from ragpulse_collector.store import Busy, EmbeddedStore
import logging; logging.disable(logging.CRITICAL)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = EmbeddedStore(sys.argv[1], decode=lambda body: pickle.loads(body.body))
def send(number):
    columns = {"name": ["x" * 100_000], "start_ns": [10**18], "end_ns": [10**18]}
    span = SpanBatch(trace_ids=[b"a" * 16], span_ids=[number.to_bytes(8)], parent_span_ids=[None], columns=columns)
    body = RawBody(signal="traces", content_type="application/json", body=pickle.dumps(Batch(spans=[span])))
    return store.submit(body).result(60)
send(1)
size = os.path.getsize(sys.argv[1] + ".wal")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
try:
    send(2); print("stored")
except Busy:
    print("Busy", bool(store.backlog().refused))
print(store.read("SELECT count(*) FROM raw.spans").rows[0][0])
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
send(2)
print(store.read("SELECT count(*) FROM raw.spans").rows[0][0], store.backlog().refused)
store.close()
"""


def _python(script: str, *arguments: str) -> str:
    done = forks.run(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("short", [MemoryError(), duckdb.OutOfMemoryException("Out of Memory Error: no room")])
def test_too_little_memory_is_nobodys_fault(kit: Any, short: Exception) -> None:
    """A body that memory was too short for is Busy, to be sent again, wherever it ran out; never a wrong body."""
    failing = [True]

    def decode(body: RawBody) -> Batch:
        if failing[0]:
            raise short
        return batch_of([kit.span(1)])

    store = kit.store(decode=decode)
    with pytest.raises(Busy):
        store.submit(kit.body()).result(60)
    failing[0] = False
    assert store.submit(kit.body()).result(60)

    def work(_: Transaction) -> None:
        raise short

    with pytest.raises(Busy):
        store.write(work).result(60)
    assert store.read("SELECT count(*) FROM raw.spans").rows == [(1,)]
