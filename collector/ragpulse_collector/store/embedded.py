"""The embedded store: one DuckDB file, one writer thread, group commit, readers on cursors of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import duckdb

from ragpulse_collector.records import Batch, RawBody, Receipt, SpanRecord
from ragpulse_collector.store.connection import lock_down, open_file, settings
from ragpulse_collector.store.migrations import check_version, file_version, migrate
from ragpulse_collector.store.outbox import outbox_folder
from ragpulse_collector.store.protocol import Busy, Transaction
from ragpulse_collector.store.queue import BodyItem, WorkItem, WriterQueue
from ragpulse_collector.store.reading import Reading
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.writer import Writer

T = TypeVar("T")


class EmbeddedStore(Reading):
    """One process owns the file; `submit` and `write` go through one writer thread, `read` is answered at once.

    `decode` turns an accepted body into records (on the writer thread), `price` fills a span's cost, `clock` gives
    UTC without a zone. Raises StoreError when the file is locked, unreadable or of a newer version.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        decode: Callable[[RawBody], Batch],
        price: Callable[[SpanRecord], None] | None = None,
        clock: Callable[[], datetime] = utc_now,
        threads: int = 2,
        memory_limit: str = "128MB",
        wal_limit: str = "256MB",
        queue_bytes: int = 64 * 2**20,
        queue_items: int = 10_000,
        group_bytes: int = 2 * 2**20,
        recent_spans: int = 200_000,
    ) -> None:
        super().__init__(Path(path), self._cursor)
        self._config = settings(threads=threads, memory_limit=memory_limit, wal_limit=wal_limit)
        self._opening = threading.Lock()
        self._connection = self._open()
        self._queue = WriterQueue(max_bytes=queue_bytes, max_items=queue_items, group_bytes=group_bytes)
        self._writer = Writer(
            self._queue, self._cursor, self._reopen, decode=decode, price=price, clock=clock, recent_spans=recent_spans
        )
        self._thread = threading.Thread(target=self._writer.run, name="ragpulse-writer", daemon=True)
        self._thread.start()

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

    @property
    def waiting_bytes(self) -> int:
        """Bytes of bodies that were accepted and are not on disk yet."""
        return self._queue.waiting_bytes

    def close(self) -> None:
        """Refuse new work, drain the queue, close the file. May be called twice."""
        self._queue.close()
        self._thread.join()
        with self._opening:
            self._connection.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = open_file(self.path, self._config)
        try:
            migrate(connection.execute, lambda sql: connection.execute(sql).fetchall(), name=str(self.path))
        except BaseException:
            connection.close()
            raise
        lock_down(connection, writable=outbox_folder(self.path))
        return connection

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            try:
                return self._connection.cursor()
            except duckdb.ConnectionException as error:
                raise Busy("the store is closed") from error

    def _reopen(self) -> None:
        """Open the file anew after the engine gave it up (a disk that was full or failed)."""
        with self._opening:
            self._connection.close()
            self._connection = self._open()


class FileReader(Reading):
    """A closed file, read-only: what the command line uses with `--db`. Raises StoreError like EmbeddedStore."""

    def __init__(self, path: str | Path) -> None:
        self._connection = open_file(Path(path), {"threads": 2}, read_only=True)
        try:
            check_version(file_version(lambda sql: self._connection.execute(sql).fetchall()), name=str(path))
            lock_down(self._connection, writable=outbox_folder(Path(path)))
        except BaseException:
            self._connection.close()
            raise
        super().__init__(Path(path), self._connection.cursor)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
