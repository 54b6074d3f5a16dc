"""The embedded store: one DuckDB file that one process owns, readers on cursors of their own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.connection import attach_file, lock_down, open_file, settings
from ragpulse_collector.store.migrations import check_version, file_version, migrate
from ragpulse_collector.store.outbox import outbox_folder
from ragpulse_collector.store.reader_process import Readers
from ragpulse_collector.store.reading import Reading
from ragpulse_collector.store.writing import Ways, Writing

LOG_AT_END_BYTES = 16 * 2**20
"""A log up to this goes into the file at the end: seconds on the busiest disk, and the file alone is everything then.

A larger one stays: it is as durable, the next start reads it (41 MB: a fifth of a second), and who ends a service does
not wait: a busy disk once took 4 MB a second, and Docker allows ten seconds.
"""


class EmbeddedStore(Writing):
    """One process owns the file; `submit` and `write` go through one writer thread, `read` is answered at once.

    Takes the options of `Ways` (decode, price, clock, ...). Raises StoreError when the file is locked, unreadable or of
    a newer version. A statement runs on its caller's thread alone (`threads`): others run beside it anyway, and handing
    pieces of an INSERT to a second one costs a third of it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int = 1,
        memory_limit: str = "128MB",
        wal_limit: str = "64MB",
        **ways: Any,
    ) -> None:
        self._config = settings(threads=threads, memory_limit=memory_limit, wal_limit=wal_limit)
        super().__init__(Path(path), Ways(**ways))
        if os.name == "posix":
            self._readers = Readers(self._source, self.path.with_name(f"{self.path.name}.sql"))

    def _source(self, scratch: Path) -> object:
        from ragpulse_collector.store.reader_child import FileSource

        return FileSource(self.path, self._name, str(self._config["memory_limit"]), scratch)

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = attach_file(self.path, self._name, self._config)
        try:
            migrate(connection.execute, lambda sql: connection.execute(sql).fetchall(), name=str(self.path))
        except BaseException:
            connection.close()
            raise
        lock_down(connection, writable=outbox_folder(self.path))
        return connection

    def _is_quiet(self) -> bool:
        return not self._lent and self._log_bytes() <= LOG_AT_END_BYTES

    def _finish(self, connection: duckdb.DuckDBPyConnection) -> None:
        with contextlib.suppress(duckdb.Error):
            if 0 < self._log_bytes() <= LOG_AT_END_BYTES:
                connection.execute("CHECKPOINT")

    def _log_bytes(self) -> int:
        log = self.path.with_name(self.path.name + ".wal")
        return log.stat().st_size if log.exists() else 0


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
        self._name = str(self._connection.execute("SELECT current_catalog()").fetchall()[0][0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
