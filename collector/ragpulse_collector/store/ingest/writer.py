"""The writer: takes the decoded items, writes them in one transaction, commits, then answers.

When the transaction fails, its items are tried one by one, so that the faulty one fails alone. When the disk fails,
every item of the group gets Busy. After many bytes the store is reopened at a quiet moment.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any

import duckdb

from ragpulse_collector.instants import EPOCH
from ragpulse_collector.records import Batch, DecodeError, RawBody
from ragpulse_collector.refusals import Busy
from ragpulse_collector.store.connection import fetch, first_line, is_short_of_memory
from ragpulse_collector.store.ingest.batches import Ingest
from ragpulse_collector.store.ingest.prices import Prices
from ragpulse_collector.store.ingest.queue import BodyItem, Item, WriterQueue
from ragpulse_collector.store.ingest.transaction import WriterTransaction
from ragpulse_collector.store.protocol import Clock, StoreError, utc_now

_log = logging.getLogger(__name__)
_MAX_CLOCK_STEP = timedelta(seconds=10)
"""A clock that is set back by at most this much stands still until it has caught up; a larger step is followed."""


class _CommitFailed(Exception):
    """COMMIT failed: nothing of the group is on disk."""


_DISK = (
    _CommitFailed, duckdb.OperationalError, duckdb.FatalException, duckdb.InternalException, OSError, MemoryError,
    StoreError,
)  # fmt: skip
"""The errors of a full, failing or missing disk and of short memory: the sender may retry."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How a store writes: what turns bodies into records, and how much may be queued."""

    decode: Callable[[RawBody], Batch]
    """Runs on the decoding thread."""
    price: Prices | None = None
    """Fills a span's cost; None leaves costs as they came."""
    clock: Clock = utc_now
    """UTC without a zone."""
    queue_bytes: int = 64 * 2**20
    """Bodies beyond this are Busy."""
    queue_items: int = 10_000
    group_bytes: int = 3 * 2**20
    """A transaction takes about this much at a time: decoded records are several times as large."""
    renew_bytes: int = 64 * 2**20
    renew_s: float = 60.0
    """After this much and this long the file is reopened at a quiet moment, which frees DuckDB's statistics of rows."""
    recent_spans: int = 200_000
    """How many span identities are remembered at least, so that a repeated span costs no look-up in the table."""


@dataclass(eq=False)
class Writer:
    """Runs on its own thread until the queue is closed and drained."""

    queue: WriterQueue
    options: WriteOptions
    _: KW_ONLY
    new_cursor: Callable[[], duckdb.DuckDBPyConnection]
    reopen: Callable[[], None]
    begin: Callable[[duckdb.DuckDBPyConnection], None]
    commit: Callable[[duckdb.DuckDBPyConnection], None]
    is_quiet: Callable[[], bool]
    check: Callable[[], None]

    def __post_init__(self) -> None:
        self._written, self._opened = 0, self.options.clock()
        self._open_cursor()
        self._last = self._last_time()
        self._ingest = Ingest(recent_spans=self.options.recent_spans, opened=self._opened)
        self._broken = False

    def run(self) -> None:
        """Commit group after group."""
        while group := self.queue.take():
            self._commit_or_split(group)
            self._written += sum(item.size for item in group)
            del group  # while this thread waits for the next, these bodies must not stay in memory
            if self._should_renew() and not self._broken and self.is_quiet():
                self._renew()
        self._transaction.close()

    def _open_cursor(self) -> None:
        self._cursor = self.new_cursor()
        self._transaction = WriterTransaction(self._cursor)

    def _should_renew(self) -> bool:
        open_s = (self.options.clock() - self._opened).total_seconds()
        return self._written >= self.options.renew_bytes and open_s >= self.options.renew_s

    def _renew(self) -> None:
        """Reopen the store as after a fault: DuckDB has statistics of rows in memory until the file is closed."""
        self._written, self._opened, self._broken = 0, self.options.clock(), True
        with contextlib.suppress(*_DISK):
            self._recover()

    def _commit_or_split(self, items: list[Item]) -> None:
        try:
            results = self._commit(items)
        except _DISK as error:
            self._refuse(items, error)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever an item raises belongs to its future
            if len(items) == 1:
                items[0].future.set_exception(_without_frames(_stored_error(items[0], error)))
                return
            for item in items:
                self._commit_or_split([item])
        else:
            self.queue.refused = None
            for item, result in zip(items, results, strict=True):
                item.future.set_result(result)

    def _commit(self, items: list[Item]) -> list[Any]:
        """Write the items in one transaction: all bodies first, then work in its order.

        Nothing is acknowledged unless the file still exists after COMMIT.
        """
        self.check()
        self._recover()
        transaction = self._transaction
        transaction.at = self._next_time()
        try:
            self.begin(self._cursor)
            batches = [item.batch for item in items if isinstance(item, BodyItem) and item.batch is not None]
            receipts = iter(self._ingest.write(transaction, batches))
            results: list[Any] = [
                next(receipts) if isinstance(item, BodyItem) else item.work(transaction) for item in items
            ]
            self._end()
        except BaseException:
            self._ingest.forget()
            self._roll_back()
            raise
        self._ingest.remember()
        self._last = transaction.at
        self.check()
        return results

    def _end(self) -> None:
        try:
            self.commit(self._cursor)
        except duckdb.Error as error:
            raise _CommitFailed(str(error)) from error

    def _roll_back(self) -> None:
        # A failed COMMIT has ended the transaction already.
        with contextlib.suppress(duckdb.Error):
            self._cursor.rollback()
        self._transaction.forget()

    def _refuse(self, items: list[Item], error: BaseException) -> None:
        _log.error("a group of %d was refused: %s", len(items), error)
        self._broken = not self._usable()
        with contextlib.suppress(*_DISK):  # at once: readers do not wait for the next write
            self._recover()
        self.queue.refused = first_line(error)
        busy = Busy(f"the store cannot write: {first_line(error)}")
        for item in items:
            item.future.set_exception(busy)

    def _usable(self) -> bool:
        """Return whether DuckDB still answers; after a fatal error it does not until the file is reopened."""
        try:
            fetch(self._cursor, "SELECT count(*) FROM raw.meta")
        except duckdb.OutOfMemoryException:
            return True  # other queries hold the memory: reopening would only interrupt them
        except duckdb.Error:
            return False
        return True

    def _recover(self) -> None:
        if not self._broken:
            return
        with contextlib.suppress(duckdb.Error):
            self._cursor.close()
        self.reopen()
        self._open_cursor()
        self._broken = False

    def _next_time(self) -> datetime:
        """Return a time after the last one, unless the clock was set back by more than `_MAX_CLOCK_STEP`."""
        now = self.options.clock()
        return now if self._last > now + _MAX_CLOCK_STEP else max(now, self._last + timedelta(microseconds=1))

    def _last_time(self) -> datetime:
        newest: datetime | None = fetch(self._cursor, "SELECT max(received_at) FROM raw.spans").value
        return max(newest or EPOCH, EPOCH)


def _without_frames(error: BaseException) -> BaseException:
    """Return the exception with its traceback as text: frames would keep the items in memory."""
    error.add_note("On the writer:\n" + "".join(traceback.format_tb(error.__traceback__)))
    return error.with_traceback(None)


def _stored_error(item: Item, error: BaseException) -> BaseException:
    """Return the error for the sender: a body that no table takes is treated like one that cannot be decoded."""
    if is_short_of_memory(error):
        return Busy(f"the store cannot write: {first_line(error)}")
    if isinstance(item, BodyItem) and isinstance(error, (duckdb.Error, OverflowError, ValueError)):
        _log.error("a body could not be stored: %s", error)
        return DecodeError(f"the body could not be stored: {first_line(error)}")
    return error
