"""What all writable stores share (the queue, its two threads, reopening), and the file that one process owns."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import duckdb

from ragpulse_collector.records import RawBody, Receipt
from ragpulse_collector.refusals import Busy, TooSlow
from ragpulse_collector.store.connection import (
    attach_file,
    duckdb_settings,
    first_line,
    is_invalidated,
    lock_down,
    open_file,
)
from ragpulse_collector.store.ingest.queue import BodyItem, Decoder, WorkItem, WriterQueue
from ragpulse_collector.store.ingest.writer import WriteOptions, Writer
from ragpulse_collector.store.log import LogWatch, log_bytes
from ragpulse_collector.store.migrations import check_version, is_older, open_current, version_of
from ragpulse_collector.store.protocol import Backlog, Rows, StoreError, Transaction
from ragpulse_collector.store.reading import Reading, outbox_folder
from ragpulse_collector.store.schema import SCHEMA_VERSION
from ragpulse_collector.store.sql.limits import Question
from ragpulse_collector.store.sql.process import POSSIBLE, Readers

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
            new_cursor=self._cursor,
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
        """End users' queries and copies at once, and accept no more: a stop does not wait for them."""
        super().end_queries()
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
        with contextlib.suppress(Busy, TooSlow):
            self.write(_touch).result(_REVIVE_S)


_log = logging.getLogger(__name__)

SHORT_LOG_BYTES = 16 * 2**20
"""The file is reopened to free memory only while its log is at most this long: reading it takes a tenth of a second."""
CHECKPOINT_ON_CLOSE_S = 3.0
"""Closing makes a checkpoint if the disk can write the log within this time; a stop may take 5 s in all.

DuckDB does not interrupt a checkpoint, so its time is estimated first: a log of 56 MB takes 0.2 s on an idle disk, but
a busy disk once took 4 MB a second. A log that stays is as durable, and the next start reads it.
"""
_PROBE_BYTES = 2**20
_OPENS_UNLOCKED = not duckdb.__version__.startswith("1.")
"""duckdb 1.5 shortens `unlocked:///x` to `unlocked:/x`, which nothing opens: users' queries run in the collector."""


class EmbeddedStore(Writing):
    """The file that one process owns; `submit` and `write` go through one writer thread, `read` is answered at once.

    `options` are the fields of WriteOptions (decode, price, clock, ...). Raises StoreError when the file is locked,
    unreadable or of a newer version, or when the disk has no room to copy an older file before its migration. A
    statement runs on its caller's thread alone (`threads`): others run beside it anyway, and handing pieces of an
    INSERT to a second thread costs a third of it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int = 1,
        memory_limit: str = "128MB",
        wal_limit: str = "64MB",
        **options: Any,
    ) -> None:
        self._config = duckdb_settings(threads=threads, memory_limit=memory_limit, wal_limit=wal_limit)
        super().__init__(Path(path), WriteOptions(**options))
        shutil.rmtree(outbox_folder(self.path), ignore_errors=True)  # what a killed process left
        if POSSIBLE and _OPENS_UNLOCKED:
            self._readers = Readers(self._source, self.path.with_name(f"{self.path.name}.sql"))

    def _source(self, scratch: Path) -> object:
        from ragpulse_collector.store.sql.child import FileSource

        return FileSource(self.path, self._name, str(self._config["memory_limit"]), scratch)

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection, _ = open_current(self.path, lambda: attach_file(self.path, self._name, self._config))
        lock_down(connection, writable=outbox_folder(self.path))
        self._identity = _identity(self.path)
        self._log = LogWatch(self.path)
        return connection

    def _check(self) -> None:
        super()._check()
        self._keep_log()

    def _keep_log(self) -> None:
        """If the log was removed or cut, write what it held into the file: memory still has it. Raises StoreError."""
        if not self._log.is_whole():
            try:
                with contextlib.closing(self._make_cursor()) as cursor:
                    cursor.execute("CHECKPOINT")
            except duckdb.Error as error:
                if not is_invalidated(error):
                    raise StoreError(f"the log of {self.path} was removed or cut: {first_line(error)}") from error
                _log.error("the log of %s was removed or cut, and cannot be written again: %s", self.path, error)
        self._log.look()

    def check_files(self) -> None:
        """Let the writer save what the log held if it was removed or cut since the last commit."""
        if not self._log.is_whole():
            self._revive()

    def problem(self) -> str | None:
        """Return why nothing more is stored: the file was removed or replaced; None otherwise."""
        try:
            if _identity(self.path) == self._identity:
                return None
            event = "was replaced by another file"
        except FileNotFoundError:
            event = "was removed"
        except OSError as error:
            event = f"cannot be reached: {error.strerror}"
        return (
            f"{self.path} {event} while this collector runs; nothing is stored until it is back. To save what it held, "
            "run `ragpulse snapshot` before the collector stops (see Recovery in docs/recovery.md)"
        )

    def used_bytes(self) -> int:
        """Return the bytes that hold data, after a checkpoint, which frees the blocks of deleted rows."""
        self.read("CHECKPOINT")
        return super().used_bytes()

    def _is_quiet(self) -> bool:
        return not self._read_cursors and log_bytes(self.path) <= SHORT_LOG_BYTES

    def _before_close(self, connection: duckdb.DuckDBPyConnection) -> None:
        if (problem := self.problem()) is not None:
            _log.error("%s", problem)
            return
        with contextlib.suppress(duckdb.Error, OSError, StoreError, Busy):
            self._keep_log()
            if 0 < log_bytes(self.path) <= CHECKPOINT_ON_CLOSE_S * _write_rate(self.path.absolute().parent):
                connection.execute("CHECKPOINT")


def _identity(path: Path) -> tuple[int, int]:
    """Return what identifies a file beside its name."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _write_rate(folder: Path) -> float:
    """Return the bytes that the disk writes in a second now."""
    data, start = os.urandom(_PROBE_BYTES), time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(data)
        probe.flush()
        os.fsync(probe.fileno())
    return _PROBE_BYTES / (time.perf_counter() - start)


def _check_current(path: Path, version: int) -> None:
    check_version(version, name=str(path))
    if is_older(version):
        raise StoreError(
            f"{path} has schema version {version}, this ragpulse reads {SCHEMA_VERSION}: "
            f"run `ragpulse migrate --db {shlex.quote(str(path))}`"
        )


class FileReader(Reading):
    """A closed file, read-only, for the command line with `--db`. Raises StoreError like EmbeddedStore."""

    def __init__(self, path: str | Path) -> None:
        self._connection = open_file(Path(path), {"threads": 2}, read_only=True)
        try:
            _check_current(Path(path), version_of(self._connection))
            lock_down(self._connection, writable=outbox_folder(Path(path)))
        except BaseException:
            self._connection.close()
            raise
        super().__init__(Path(path), self._connection.cursor)
        self._name = str(self._connection.execute("SELECT current_catalog()").fetchall()[0][0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
