"""What all writable stores share: the queue, its two threads, opening and reopening."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

import duckdb

from ragpulse_collector.records import RawBody, Receipt
from ragpulse_collector.store.ingest.queue import Backlog, BodyItem, Decoder, WorkItem, WriterQueue
from ragpulse_collector.store.ingest.writer import WriteOptions, Writer
from ragpulse_collector.store.protocol import Busy, Rows, StoreError, Transaction
from ragpulse_collector.store.reading import Reading
from ragpulse_collector.store.sql.limits import Question
from ragpulse_collector.store.sql.process import Readers

T = TypeVar("T")
_INTERRUPT_S, _POLL_S = 5.0, 0.005
"""How long cursors may take to end once they are interrupted, and how often this is checked."""
_REVIVE_S = 10.0


def _interrupted(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Interrupt a cursor's query; returns whether the cursor is still open."""
    try:
        cursor.interrupt()
    except duckdb.ConnectionException:
        return False
    return True


def _touch(transaction: Transaction) -> None:
    """Read a row: an empty transaction would not notice that the store is broken."""
    transaction.execute("SELECT count(*) FROM raw.meta")


class Writing(Reading):
    """A store with one decoding and one writing thread; subclasses open the connection."""

    _name = "ragpulse"
    """The catalog under which the store is attached; every cursor selects it first."""
    _readers: Readers | None = None
    """The processes that run users' queries; None where only this process can open the store."""

    def __init__(self, path: Path, options: WriteOptions) -> None:
        super().__init__(path, self._read_cursor)
        self._opening = threading.Lock()
        self._read_cursors = WeakSet[duckdb.DuckDBPyConnection]()
        self._connection = self._open()
        self._queue = WriterQueue(
            max_bytes=options.queue_bytes, max_items=options.queue_items, group_bytes=options.group_bytes
        )
        decoder = Decoder(self._queue, options.decode, options.price)
        writer = Writer(
            self._queue,
            options,
            cursor=self._cursor,
            reopen=self._reopen,
            begin=self._begin,
            commit=self._commit,
            is_quiet=self._is_quiet,
            check=self._check,
        )
        self._threads = [
            threading.Thread(target=decoder.run, name="ragpulse-decoder", daemon=True),
            threading.Thread(target=writer.run, name="ragpulse-writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Queue a body; the future resolves after COMMIT, or raises DecodeError or Busy. Raises Busy when full."""
        item = BodyItem(body)
        self._queue.put(item)
        return item.future

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a unit of work for the writer; the future resolves after COMMIT. Failing work fails alone."""
        item = WorkItem(work)
        self._queue.put(item)
        return item.future

    def _answer_question(self, question: Question) -> Rows:
        return super()._answer_question(question) if self._readers is None else self._readers.ask(question)

    def backlog(self) -> Backlog:
        """Return the bodies that were accepted and are not on disk yet."""
        return self._queue.backlog()

    def check_files(self) -> None:
        """Check that data files can be written, where a transaction alone does not show it; raises StoreError."""

    def close(self) -> None:
        """Refuse new work, drain the queue, close the store. May be called twice."""
        self.end_queries()
        self._queue.close()
        for thread in self._threads:
            thread.join()
        with self._opening:
            self._interrupt_reads()
            self._before_close(self._connection)
            self._connection.close()

    def _begin(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Begin the writer's transaction."""
        cursor.begin()

    def _commit(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Commit the writer's transaction; raises duckdb.Error."""
        cursor.commit()

    def end_queries(self) -> None:
        """End users' queries at once, and accept no more: a stop does not wait for them."""
        if self._readers is not None:
            self._readers.close()

    def _before_close(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Prepare a drained store for closing."""

    def _open(self) -> duckdb.DuckDBPyConnection:
        """Open the store and migrate it to this version; raises StoreError."""
        raise AssertionError("every store opens itself")

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            return self._make_cursor()

    def _read_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a cursor that is interrupted when the store is closed or reopened."""
        with self._opening:
            cursor = self._make_cursor()
            self._read_cursors.add(cursor)
            return cursor

    def _make_cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            cursor = self._connection.cursor()
        except duckdb.ConnectionException as error:
            raise Busy("the store is closed") from error
        try:
            cursor.execute(f"USE {self._name}")
        except BaseException:
            cursor.close()
            raise
        return cursor

    def _is_quiet(self) -> bool:
        """Return whether reopening is quick and interrupts no reader."""
        return False

    def _reopen(self) -> None:
        """Reopen after a fatal error (a disk that was full or failed); readers wait meanwhile."""
        self._check()
        with self._opening:
            self._interrupt_reads()
            self._connection.close()
            self._connection = self._open()

    def _check(self) -> None:
        """Raise StoreError where nothing may be acknowledged."""
        if (problem := self.problem()) is not None:
            raise StoreError(problem)

    def _interrupt_reads(self) -> None:
        """Interrupt all queries: DuckDB cannot be closed, nor the file reopened, beside a busy cursor."""
        deadline = time.monotonic() + _INTERRUPT_S
        while any([_interrupted(cursor) for cursor in self._read_cursors]) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _revive(self) -> None:
        """Make the writer use the store: it reopens a store that it cannot write to."""
        with contextlib.suppress(Busy, TimeoutError):
            self.write(_touch).result(_REVIVE_S)
