"""What every open file can answer: queries, users' SQL, snapshots, exports."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.connection import ANEW, Deadline, fetch, given_up
from ragpulse_collector.store.guard import UserSql
from ragpulse_collector.store.outbox import Format, Outbox
from ragpulse_collector.store.protocol import Busy, Parameters, Rows

_NO_MEMORY = "the store's memory is in use by what arrives and is asked meanwhile: ask again, or for a shorter time"
_PATIENCE_S = 10.0


class _OpenedAnew(Exception):
    """The query met a store that was given up, or was interrupted for it to be opened anew."""


class Reading:
    """The reading half of a store; each answer comes from a cursor of its own, so that reading never waits."""

    def __init__(self, path: Path, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self.path = path
        self._new_cursor = cursor
        self._alone = threading.Lock()
        self._user_sql = UserSql(cursor)
        self._outbox = Outbox(path, cursor)

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query from a fresh cursor (any thread); raises TimeoutError, Busy where memory is short."""
        try:
            return self._answer_alone(sql, parameters, timeout_s)
        except _OpenedAnew:
            self._revive()
        try:
            return self._answer_alone(sql, parameters, timeout_s)
        except _OpenedAnew as error:
            raise Busy(ANEW) from error

    def _revive(self) -> None:
        """Have the engine opened anew where it has given the store up."""

    def _answer_alone(self, sql: str, parameters: Parameters, timeout_s: float | None) -> Rows:
        try:
            return self._answer(sql, parameters, timeout_s)
        except duckdb.OutOfMemoryException as error:
            # Readers that meet take one another's memory; what does not fit beside others may fit alone.
            if not self._alone.acquire(timeout=_PATIENCE_S):
                raise Busy(_NO_MEMORY, retry_after_s=2) from error
        try:
            return self._answer(sql, parameters, timeout_s)
        except duckdb.OutOfMemoryException as error:
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
        return self._user_sql.run(sql, parameters, timeout_s=timeout_s, max_rows=max_rows)

    def snapshot(self, path: str | Path) -> Path:
        """Write a copy of the whole file that any process may open, while spans keep coming.

        Raises StoreError where `path` exists already or cannot be written.
        """
        return self._outbox.snapshot(Path(path))

    def export(self, path: str | Path, *, format: Format = "parquet") -> list[Path]:
        """Write the stable views as one file each into the folder `path`; returns the files. Raises StoreError."""
        return self._outbox.export(Path(path), format)

    def parquet(self, path: str | Path, sql: str, parameters: Parameters = ()) -> Path:
        """Write the answer of a query as a Parquet file, row by row and not through memory. Raises StoreError."""
        return self._outbox.parquet(Path(path), sql, parameters)

    def size_bytes(self) -> int:
        """Return the bytes on disk, the log included."""
        files = (self.path, self.path.with_name(self.path.name + ".wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def used_bytes(self) -> int:
        """Return the bytes that hold data; blocks freed by a deletion do not count."""
        rows = self.read("SELECT used_blocks * block_size FROM pragma_database_size()").rows
        return max((int(row[0]) for row in rows), default=0)
