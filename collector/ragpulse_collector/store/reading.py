"""What every open store answers: queries, users' SQL, snapshots, exports (written to a folder beside the file)."""

from __future__ import annotations

import bisect
import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4
from weakref import WeakSet

import duckdb

from ragpulse_collector.records import RawBody, Receipt
from ragpulse_collector.refusals import Busy, TooSlow
from ragpulse_collector.store.connection import (
    REOPENING,
    Deadline,
    fetch,
    first_line,
    is_invalidated,
    is_short_of_memory,
    literal,
)
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.protocol import (
    Backlog,
    CannotWrite,
    Parameters,
    Refused,
    Rows,
    Store,
    StoreError,
    Transaction,
)
from ragpulse_collector.store.sql.limits import Limited, Question, answer

T = TypeVar("T")
Format = Literal["parquet", "jsonl"]

EXPORTED = ("traces", "spans", "contexts", "scores", "decisions")

_FORMATS: dict[str, str] = {
    "parquet": "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 8192",
    "jsonl": "FORMAT json",
}
"""A group of rows stays in memory until it is written: the default of 122,880 rows with long answers does not fit."""


def outbox_folder(path: Path) -> Path:
    """Return the folder beside a store's file that its SQL may write to; it exists only while something is written."""
    return path.absolute().parent / f".{path.name}.out"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, below one like it; raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise StoreError(f"{target} exists already: choose another name")


def _move(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    return target


_OUT_OF_MEMORY = "ingest and other queries use the store's memory: ask again, or for a shorter time"
_WAIT_S = 10.0
_USED = """
    SELECT (SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = current_catalog()),
        (SELECT count(*) FROM raw.spans),
        (SELECT estimated_size FROM duckdb_tables()
         WHERE database_name = current_catalog() AND schema_name = 'raw' AND table_name = 'spans')"""
"""Used bytes; spans; spans including deleted ones that still take space."""
_MAX_QUERIES = 2
_NEEDS_COLLECTOR = "this changes something: start `ragpulse serve` and omit --db"


@dataclass(slots=True)
class QueryTimes:
    """A histogram of the durations of queries since the start."""

    bounds: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    counts: list[int] = field(default_factory=lambda: [0] * 5)
    """Queries up to each bound and above the previous one; the last counts those above all bounds."""
    seconds: float = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Count one query, whether it is answered or not."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.counts[bisect.bisect_left(self.bounds, elapsed)] += 1
            self.seconds += elapsed


class _Reopened(Exception):
    """The store was invalidated, or it was reopened during the query."""


class Reading:
    """A store that answers and refuses each write; each query has a cursor of its own and does not wait for others."""

    _name = "ragpulse"
    """The catalog that users' SQL may name."""

    def __init__(self, path: Path, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self.path = path
        self._new_cursor = cursor
        self._memory_lock = threading.Lock()
        self._query_slots = threading.BoundedSemaphore(_MAX_QUERIES)
        self.query_times = QueryTimes()
        self._copying = WeakSet[duckdb.DuckDBPyConnection]()
        self._ended = False

    def end_queries(self) -> None:
        """End copies at once, and begin no more: a stop does not wait for them."""
        self._ended = True
        for cursor in list(self._copying):
            with contextlib.suppress(duckdb.ConnectionException):  # it was closed meanwhile
                cursor.interrupt()

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query from a fresh cursor (any thread); raises TooSlow, Busy where memory is short."""
        with self.query_times.measured():
            return self._read(sql, parameters, timeout_s)

    def _read(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            return self._answer_in_memory(sql, parameters, timeout_s)
        except _Reopened:
            self._revive()
        try:
            return self._answer_in_memory(sql, parameters, timeout_s)
        except _Reopened as error:
            raise Busy(REOPENING) from error

    def _revive(self) -> None:
        """Reopen an invalidated store."""

    def _answer_in_memory(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            return self._answer(sql, parameters, timeout_s)
        except (duckdb.Error, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
            # A query that does not fit into memory beside others may fit alone.
            if not self._memory_lock.acquire(timeout=_WAIT_S):
                raise Busy(_OUT_OF_MEMORY, retry_after_s=2) from error
        try:
            return self._answer(sql, parameters, timeout_s)
        except (duckdb.Error, MemoryError) as error:
            if not is_short_of_memory(error):
                raise
            raise Busy(_OUT_OF_MEMORY, retry_after_s=2) from error
        finally:
            self._memory_lock.release()

    def _answer(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            with contextlib.closing(self._new_cursor()) as cursor, Deadline(cursor, timeout_s) as deadline:
                return fetch(cursor, sql, parameters)
        except duckdb.InterruptException as error:
            if deadline.passed:
                raise TooSlow(f"the query took longer than {timeout_s:g} s") from error
            raise _Reopened from error
        except duckdb.Error as error:
            if is_invalidated(error):
                raise _Reopened from error
            if isinstance(error, duckdb.IOException):
                raise self._refused(error) from error
            raise

    def _refused(self, error: duckdb.IOException) -> Busy:
        return Busy(f"the disk refuses: {first_line(error)}", retry_after_s=10)

    def run_user_sql(
        self, sql: str, parameters: Sequence[Any] = (), *, timeout_s: float = 30.0, max_rows: int = 100_000
    ) -> Rows:
        """Answer one read-only SELECT that a user wrote; raises Refused with the reason, TooSlow, Busy."""
        with self.query_times.measured():
            return self._answer_question(
                Question(sql=sql, parameters=parameters, timeout_s=timeout_s, max_rows=max_rows)
            )

    def limited(self) -> Store:
        """Return this store with reads under the limits of users' SQL: for queries that hold a user's `where`."""
        return Limited(self, self._answer_question).limited()

    def _answer_question(self, question: Question) -> Rows:
        """Answer a user's query in this process; `Writing` has processes for it."""
        if not self._query_slots.acquire(timeout=min(question.timeout_s, _WAIT_S)):
            raise Busy("other queries are running: ask again")
        try:
            with contextlib.closing(self._new_cursor()) as cursor:
                return answer(cursor, question, self._name)
        except duckdb.Error as error:
            if is_invalidated(error):
                raise Busy(REOPENING) from error
            raise
        finally:
            self._query_slots.release()

    def purge(self) -> None:
        """Write the log, which holds deleted rows, into the file; `vacuum` rewrites the closed file."""
        self.read("CHECKPOINT")

    def snapshot(self, path: str | Path) -> Path:
        """Write a copy of the whole file that any process may open, while spans keep coming.

        Raises StoreError where `path` exists already or cannot be written.
        """
        target = Path(path)
        _refuse_existing(target)
        with self._outbox() as (folder, cursor):
            copy, name = folder / "snapshot.duckdb", f"snapshot_{uuid4().hex[:8]}"
            source = cursor.execute("SELECT current_catalog()").fetchall()[0][0]
            cursor.execute(f"ATTACH {literal(copy)} AS {name} (READ_WRITE)")
            try:
                cursor.execute(f'COPY FROM DATABASE "{source}" TO {name}')
                cursor.execute(f"CHECKPOINT {name}")  # the engine does not when a file is closed
            finally:
                cursor.execute(f"DETACH {name}")
            return _move(copy, target)

    def export(self, path: str | Path, *, format: Format = "parquet") -> list[Path]:
        """Write the stable views as one file each into the folder `path`; returns the files. Raises StoreError."""
        if format not in _FORMATS:
            raise StoreError(f"format is parquet or jsonl, not {format!r}")
        targets = {view: Path(path) / f"{view}.{format}" for view in EXPORTED}
        for target in targets.values():
            _refuse_existing(target)
        with self._outbox() as (folder, cursor):
            # One transaction: the files agree with one another.
            cursor.begin()
            for view, target in targets.items():
                cursor.execute(f"COPY (FROM {view}) TO {literal(folder / target.name)} ({_FORMATS[format]})")
            cursor.commit()
            return [_move(folder / target.name, target) for target in targets.values()]

    def parquet(self, path: str | Path, sql: str, parameters: Parameters = ()) -> Path:
        """Write the answer of a query as a Parquet file, row by row and not through memory. Raises StoreError."""
        target = Path(path)
        with self._outbox() as (folder, cursor):
            copy = folder / target.name
            cursor.execute(f"COPY ({sql}) TO {literal(copy)} ({_FORMATS['parquet']})", parameters or None)
            return _move(copy, target)

    @contextlib.contextmanager
    def _outbox(self) -> Iterator[tuple[Path, duckdb.DuckDBPyConnection]]:
        """Make a folder that SQL may write to, and a cursor; raises StoreError where the disk refuses."""
        folder = outbox_folder(self.path) / uuid4().hex
        try:
            with contextlib.closing(self._new_cursor()) as cursor:
                make_private(folder)
                self._copying.add(cursor)
                if self._ended:
                    raise Busy("the collector is shutting down")
                yield folder, cursor
        except duckdb.InterruptException as error:
            raise Busy("the collector is shutting down") from error
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise CannotWrite(f"cannot write: {first_line(error)}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Queue a body; the future resolves after COMMIT, or raises DecodeError or Busy. Raises Busy when full."""
        raise Refused("a closed file accepts no spans: start `ragpulse serve`")

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a unit of work for the writer; the future resolves after COMMIT. Failing work fails alone.

        Work shares its transaction with others and may run a second time when one of them fails, so it must change
        nothing outside the transaction.
        """
        raise Refused(_NEEDS_COLLECTOR)

    def check_files(self) -> None:
        """Check that data files can be written, where a transaction alone does not show it; raises StoreError."""
        raise Refused(_NEEDS_COLLECTOR)

    def backlog(self) -> Backlog:
        """Return the bodies that were accepted and are not on disk yet."""
        return Backlog()

    def used_bytes(self) -> int:
        """Return the bytes that hold data; deleted rows do not count, even in blocks that hold other rows."""
        used, spans, slots = self.read(_USED).rows[0]
        return int(used * spans / slots) if slots else int(used)

    def problem(self) -> str | None:
        """Return why the store accepts no more writes although its disk works, or None."""
        return None

    def size_bytes(self) -> int:
        """Return the bytes on disk, the log included."""
        return (self.path.stat().st_size if self.path.exists() else 0) + log_bytes(self.path)
