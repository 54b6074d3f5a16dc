"""The process that answers users' queries: killed in time, replaced, consistent beside a busy writer."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from ragpulse_collector.refusals import TooSlow
from ragpulse_collector.store import Busy, Refused
from ragpulse_collector.store.sql.process import Readers

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere users' SQL runs in the collector itself")

STUBBORN = "SELECT max(levenshtein(repeat('a', 1e6::INTEGER), repeat('b', 1e6::INTEGER) || i)) FROM range(9) r(i)"
"""DuckDB looks at an interruption between rows, not within one that takes minutes."""


def _pids(store: Any) -> list[int]:
    found: list[int] = store._readers.pids()
    return found


def test_a_query_that_cannot_be_interrupted_ends_at_its_limit(kit: Any) -> None:
    """It is killed; other queries are answered meanwhile, spans are stored, and the log is as small as before."""
    store = kit.store()
    with ThreadPoolExecutor(2) as pool:
        eventually(lambda: list(pool.map(store.run_user_sql, ["SELECT 1"] * 2)) and len(_pids(store)) == 2)
        going_on = pool.submit(store.run_user_sql, STUBBORN, timeout_s=600.0)
        kit.send(store, kit.span(1))
        assert store.run_user_sql("SELECT count(*) FROM spans").rows == [(1,)]
        with pytest.raises(TooSlow, match="longer than 1 s"):
            store.run_user_sql(STUBBORN, timeout_s=1.0)
        assert store.run_user_sql("SELECT count(*) FROM spans").rows == [(1,)]
        assert store.size_bytes() < 20 * 2**20
        assert not going_on.done()
        store.close()


def test_closing_does_not_wait_for_a_query(kit: Any) -> None:
    """The collector ends while a query of thirty seconds runs; whoever asked is told to come again."""
    store = kit.store()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.run_user_sql, STUBBORN)
        eventually(lambda: _pids(store))
        store.close()
        with pytest.raises(Busy, match="closed"):
            slow.result(60)
    assert _pids(store) == []


def test_a_killed_process_is_replaced_and_its_query_asked_again(kit: Any) -> None:
    """A crash costs nobody an answer; a query that crashes every process is refused."""
    store = kit.store()
    kit.send(store, kit.span(1))
    question = "SELECT count(*) FROM spans"
    assert store.run_user_sql(question).rows == [(1,)]
    (pid,) = _pids(store)
    os.kill(pid, signal.SIGKILL)
    assert store.run_user_sql(question).rows == [(1,)]
    assert pid not in _pids(store)
    going, ends = threading.Event(), []

    def ask() -> None:
        try:
            store.run_user_sql("SELECT count(*) FROM range(1000000000) a, range(1000000000) b")
        except Refused as error:
            ends.append(str(error))
        going.set()

    thread = threading.Thread(target=ask)
    thread.start()
    killed: set[int] = set()

    def kill() -> bool:
        for running in _pids(store):
            killed.add(running)
            with contextlib.suppress(ProcessLookupError):  # the store has noticed that it ended, and waited for it
                os.kill(running, signal.SIGKILL)
        return going.is_set()

    eventually(kill)
    thread.join(60)
    assert len(killed) >= 2
    assert "SIGKILL" in ends[0]


def test_no_process_without_a_query_and_none_after_a_while(kit: Any, tmp_path: Path) -> None:
    """It starts with the first query and ends when nobody asks, so that an idle collector is as small as before."""
    store = kit.store()
    assert _pids(store) == []
    store._readers = Readers(store._source, tmp_path / "soon", idle_s=0.1)
    assert store.run_user_sql("SELECT 1").rows == [(1,)]
    eventually(lambda: _pids(store) == [])
    assert store.run_user_sql("SELECT 2").rows == [(2,)]


def test_what_a_query_writes_aside_is_gone_after_a_kill(kit: Any) -> None:
    """Whatever did not fit into memory lies beside the file only while a process runs."""
    store = kit.store(memory_limit="40MB")
    with pytest.raises((TooSlow, Refused)):
        store.run_user_sql("SELECT hash(i) AS h FROM range(30000000) r(i) ORDER BY h", timeout_s=1.5)
    store.close()
    assert [path.name for path in kit.path.parent.iterdir() if ".sql" in path.name] == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_a_large_query_does_not_take_the_servers_memory(kit: Any) -> None:
    """What functions make is made elsewhere."""
    store = kit.store()
    store.run_user_sql("SELECT 1")
    gc.collect()
    before = _resident()
    for _ in range(3):
        with pytest.raises(Refused, match="memory"):
            store.run_user_sql("SELECT length(repeat('x', 2000000000))")
        store.run_user_sql("SELECT length(repeat('x', 200000000))")
    assert _resident() - before < 50 * 2**20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_too_many_queries_are_busy_at_once(kit: Any) -> None:
    """Two run, a few wait; the rest is told to come again, so that queries never hold all of the server's threads."""
    store = kit.store()
    with ThreadPoolExecutor(30) as pool:
        asked = [pool.submit(_how, store, STUBBORN, 1.0) for _ in range(30)]
        ends = [one.result(60) for one in asked]
    assert ends.count("Busy") >= 12
    assert ends.count("TooSlow") >= 2


def _how(store: Any, sql: str, timeout_s: float) -> str:
    try:
        store.run_user_sql(sql, timeout_s=timeout_s)
    except (Busy, TooSlow) as error:
        return type(error).__name__
    return "answered"


TWO_TABLES = """
    SELECT (SELECT [count(*), coalesce(sum(length(value)), 0)] FROM raw.meta WHERE key = 'n'),
           (SELECT [count(*), coalesce(sum(length(detail)), 0)] FROM raw.audit WHERE action = 'n')"""


def test_each_answer_is_one_state_of_the_store(kit: Any) -> None:
    """Rows of two tables that are written together agree, and none is missing that was acknowledged before.

    Meanwhile the log is written into the file all the time, which moves what lies in it.
    """
    store = kit.store(wal_limit="200KB")
    acknowledged, answers, stop = [0], [0], threading.Event()
    texts = [os.urandom(200).hex() for _ in range(50)]

    def write() -> None:
        while not stop.is_set():
            store.write(_both(kit, texts)).result(60)
            acknowledged[0] += len(texts)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while (agreeing := _checked_answers(store, acknowledged, answers)) < 10:
            pass
    finally:
        stop.set()
        writer.join(60)
    assert agreeing == 10
    assert store.run_user_sql(TWO_TABLES).rows[0][0][0] == acknowledged[0]


def _checked_answers(store: Any, acknowledged: list[int], answers: list[int]) -> int:
    """Ask once and check; returns how many were answered so far. Busy where the file changed each time."""
    before = acknowledged[0]
    with contextlib.suppress(Busy):
        first, second = store.run_user_sql(TWO_TABLES).rows[0]
        answers[0] += 1
        assert first == second
        assert first[0] >= before
        assert first[1] == 400 * first[0]
    return answers[0]


def _both(kit: Any, texts: list[str]) -> Any:
    def work(transaction: Any) -> None:
        transaction.append("meta", ("key", "value"), [("n", text) for text in texts])
        rows = [(kit.start, "a", "n", text) for text in texts]
        transaction.append("audit", ("created_at", "actor", "action", "detail"), rows)

    return work


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_a_reader_process_has_no_secrets_of_the_collector(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment has what a process needs to run, and no key; the query is answered as before."""
    secrets = ("RAGPULSE_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
    for name in secrets:
        monkeypatch.setenv(name, "a-secret")
    store = kit.store()
    assert store.run_user_sql("SELECT 1").rows == [(1,)]
    (pid,) = _pids(store)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"a-secret" not in b"".join(environment)
    assert f"PATH={os.environ['PATH']}".encode() in environment


def test_a_reader_process_loads_little() -> None:
    """The first query waits for what it imports: not the writer, the settings or the evaluators."""
    heavy = "{'pydantic', 'nanoarrow', 'ragpulse_evaluators', 'ragpulse_collector.store.embedded'}"
    code = f"import sys, ragpulse_collector.store.sql.child; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
