"""What every open file can answer: queries, users' SQL, snapshots, exports (written to a folder beside the file)."""

from __future__ import annotations

import bisect
import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import duckdb

from ragpulse_collector.store.connection import REOPENING, Deadline, fetch, first_line, given_up, literal
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.protocol import Busy, Parameters, Rows, Store, StoreError
from ragpulse_collector.store.sql.limits import Limited, Question, answer

Format = Literal["parquet", "jsonl"]

EXPORTED = ("traces", "spans", "contexts", "scores", "decisions")

_FORMATS: dict[str, str] = {
    "parquet": "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 8192",
    "jsonl": "FORMAT json",
}
"""A group of rows is held in memory until it is written: the default of 122,880 with long answers does not fit."""


def outbox_folder(path: Path) -> Path:
    """Return the folder beside a store's file that its SQL may write to; it exists only while something is written."""
    return path.absolute().parent / f".{path.name}.out"


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise StoreError(f"{target} exists already: choose another name")


def _move(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    return target


_NO_MEMORY = "the store's memory is in use by what arrives and is asked meanwhile: ask again, or for a shorter time"
_PATIENCE_S = 10.0
_USED = """
    SELECT (SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = current_catalog()),
        (SELECT count(*) FROM raw.spans),
        (SELECT estimated_size FROM duckdb_tables()
         WHERE database_name = current_catalog() AND schema_name = 'raw' AND table_name = 'spans')"""
"""Used space; spans; spans with those that were deleted and still take space."""
_AT_A_TIME = 2


@dataclass(slots=True)
class QueryTimes:
    """How long queries took since the start."""

    bounds: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    counts: list[int] = field(default_factory=lambda: [0] * 5)
    """Queries up to each bound and above the one before; the last above all."""
    seconds: float = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Count one query, whether it is answered or not."""
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.counts[bisect.bisect_left(self.bounds, took)] += 1
            self.seconds += took


class _OpenedAnew(Exception):
    """The query met a store that was given up, or was interrupted for it to be reopened."""


class Reading:
    """The reading half of a store; each answer comes from a cursor of its own, so that reading never waits."""

    _name = "ragpulse"
    """The catalog that users' SQL may name."""

    def __init__(self, path: Path, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self.path = path
        self._new_cursor = cursor
        self._alone = threading.Lock()
        self._asking = threading.BoundedSemaphore(_AT_A_TIME)
        self.query_times = QueryTimes()

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query from a fresh cursor (any thread); raises TimeoutError, Busy where memory is short."""
        with self.query_times.measured():
            return self._read(sql, parameters, timeout_s)

    def _read(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            return self._answer_alone(sql, parameters, timeout_s)
        except _OpenedAnew:
            self._revive()
        try:
            return self._answer_alone(sql, parameters, timeout_s)
        except _OpenedAnew as error:
            raise Busy(REOPENING) from error

    def _revive(self) -> None:
        """Have the engine reopened where it has given the store up."""

    def _answer_alone(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            return self._answer(sql, parameters, timeout_s)
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            # Readers that meet take one another's memory; what does not fit beside others may fit alone.
            if not self._alone.acquire(timeout=_PATIENCE_S):
                raise Busy(_NO_MEMORY, retry_after_s=2) from error
        try:
            return self._answer(sql, parameters, timeout_s)
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise Busy(_NO_MEMORY, retry_after_s=2) from error
        finally:
            self._alone.release()

    def _answer(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            with contextlib.closing(self._new_cursor()) as cursor, Deadline(cursor, timeout_s) as deadline:
                return fetch(cursor, sql, parameters)
        except duckdb.InterruptException as error:
            if deadline.passed:
                raise TimeoutError(f"the query took longer than {timeout_s:g} s") from error
            raise _OpenedAnew from error
        except duckdb.Error as error:
            if given_up(error):
                raise _OpenedAnew from error
            raise

    def run_user_sql(
        self, sql: str, parameters: Sequence[Any] = (), *, timeout_s: float = 30.0, max_rows: int = 100_000
    ) -> Rows:
        """Answer one read-only SELECT that a user wrote; raises Refused with the reason, TimeoutError, Busy."""
        with self.query_times.measured():
            return self._ask(Question(sql=sql, parameters=parameters, timeout_s=timeout_s, max_rows=max_rows))

    def limited(self) -> Store:
        """Return this store with reads under the limits of users' SQL."""
        return Limited(cast("Store", self), self._ask).limited()

    def _ask(self, question: Question) -> Rows:
        """Answer a user's question in this process; a store that is written to has a process for it."""
        if not self._asking.acquire(timeout=min(question.timeout_s, _PATIENCE_S)):
            raise Busy("other queries are running: ask again")
        try:
            with contextlib.closing(self._new_cursor()) as cursor:
                return answer(cursor, question, self._name)
        except duckdb.Error as error:
            if given_up(error):
                raise Busy(REOPENING) from error
            raise
        finally:
            self._asking.release()

    def purge(self) -> None:
        """Put the log, which holds deleted rows, into the file; `vacuum` rewrites the file when it is closed."""
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
                folder.mkdir(parents=True)
                yield folder, cursor
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise StoreError(f"cannot write: {first_line(error)}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()

    def used_bytes(self) -> int:
        """Return the bytes that hold data. Rows that were deleted do not count, also in blocks that hold other rows."""
        used, spans, slots = self.read(_USED).rows[0]
        return int(used * spans / slots) if slots else int(used)

    def problem(self) -> str | None:
        """Return why the store takes nothing more although its disk works, or None."""
        return None

    def size_bytes(self) -> int:
        """Return the bytes on disk, the log included."""
        return (self.path.stat().st_size if self.path.exists() else 0) + log_bytes(self.path)
