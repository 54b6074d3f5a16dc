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
_LENT_S, _LOOK_S = 5.0, 0.005
"""How long cursors may take to end once interrupted, and how often that is looked at."""
_REVIVED_S = 10.0


def _interrupted(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Interrupt what a cursor does; returns whether it is still open."""
    try:
        cursor.interrupt()
    except duckdb.ConnectionException:
        return False
    return True


def _look(transaction: Transaction) -> None:
    """Touch the store, without which a transaction does not meet what is wrong with it."""
    transaction.execute("SELECT count(*) FROM raw.meta")


class Writing(Reading):
    """A store with one decoding and one writing thread; how its connection is opened is the subclass's."""

    _name = "ragpulse"
    """What the store is attached as; every cursor chooses it first."""
    _readers: Readers | None = None
    """Where users' queries run; None where only this process can open the store."""

    def __init__(self, path: Path, options: WriteOptions) -> None:
        super().__init__(path, self._lend)
        self._opening = threading.Lock()
        self._lent = WeakSet[duckdb.DuckDBPyConnection]()
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

    def _ask(self, question: Question) -> Rows:
        return super()._ask(question) if self._readers is None else self._readers.ask(question)

    def backlog(self) -> Backlog:
        """Return what was accepted and is not on disk yet."""
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
            self._end_reading()
            self._finish(self._connection)
            self._connection.close()

    def _begin(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Begin the writer's transaction."""
        cursor.begin()

    def _commit(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Commit the writer's transaction; raises duckdb.Error."""
        cursor.commit()

    def end_queries(self) -> None:
        """End users' queries at once, and take no more of them: nobody waits for them at the end."""
        if self._readers is not None:
            self._readers.close()

    def _finish(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do what is left to do with a drained store before it is closed."""

    def _open(self) -> duckdb.DuckDBPyConnection:
        """Open the store, brought to this version; raises StoreError."""
        raise AssertionError("every store opens itself")

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            return self._new_cursor_of_now()

    def _lend(self) -> duckdb.DuckDBPyConnection:
        """Make a cursor that is interrupted when the store must be closed."""
        with self._opening:
            cursor = self._new_cursor_of_now()
            self._lent.add(cursor)
            return cursor

    def _new_cursor_of_now(self) -> duckdb.DuckDBPyConnection:
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
        """Return whether reopening takes no time and interrupts no reader."""
        return False

    def _reopen(self) -> None:
        """Reopen after a fatal error (a disk that was full or failed); readers wait meanwhile."""
        self._check()
        with self._opening:
            self._end_reading()
            self._connection.close()
            self._connection = self._open()

    def _check(self) -> None:
        """Raise StoreError where nothing may be acknowledged."""
        if (problem := self.problem()) is not None:
            raise StoreError(problem)

    def _end_reading(self) -> None:
        """Interrupt what is read: the engine cannot be closed, nor the file be reopened, beside a busy cursor."""
        until = time.monotonic() + _LENT_S
        while any([_interrupted(cursor) for cursor in self._lent]) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _revive(self) -> None:
        """Let the writer check the store: it reopens a store that it cannot write to."""
        with contextlib.suppress(Busy, TimeoutError):
            self.write(_look).result(_REVIVED_S)
