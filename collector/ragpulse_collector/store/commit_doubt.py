"""A commit to the lake whose answer was lost: PostgreSQL may have it, although its sender is told to retry.

DuckLake takes such a commit as failed and deletes its Parquet files. If PostgreSQL has the commit, the catalog names
files that do not exist, and no process can read the table. So the commit is undone as soon as PostgreSQL answers.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Any
from uuid import uuid4

import duckdb

from ragpulse_collector.store.connection import first_line, quoted
from ragpulse_collector.store.protocol import StoreError

_log = logging.getLogger(__name__)
_SHARED = "ducklake:postgres:"
_WAIT = "SET LOCAL lock_timeout = '5s'; LOCK TABLE ducklake_snapshot_changes IN SHARE MODE"
"""PostgreSQL may still be at work on the commit: the lock is granted once every transaction under way has ended."""
_FOUND = "SELECT snapshot_id FROM ducklake_snapshot_changes WHERE commit_extra_info = %s"
_HOLD = "SELECT table_name FROM information_schema.columns WHERE table_schema = current_schema() AND column_name = %s"
_AGAIN_S = 1.0
_OF_FILES = ("ducklake_file_column_stats", "ducklake_file_partition_value")
_COUNTS = """
    UPDATE ducklake_table_stats t
    SET record_count = t.record_count - f.records, file_size_bytes = t.file_size_bytes - f.bytes
    FROM (SELECT table_id, sum(record_count) AS records, sum(file_size_bytes) AS bytes
          FROM ducklake_data_file WHERE begin_snapshot = %s GROUP BY table_id) f
    WHERE f.table_id = t.table_id"""


class Doubt:
    """Marks each transaction, and undoes the last one where its COMMIT failed and PostgreSQL has it.

    Only a catalog in PostgreSQL can lose an answer; other catalogs are left alone.
    """

    def __init__(self, catalog: str) -> None:
        self._dsn = catalog.removeprefix(_SHARED) if catalog.startswith(_SHARED) else None
        self._settling = threading.Lock()
        self._mark = ""
        self._failed: str | None = None

    def mark(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Mark the transaction that the cursor has begun, so that its snapshot can be found in the catalog."""
        if self._dsn is not None:
            self._mark = uuid4().hex
            cursor.execute(f"CALL lake.set_commit_message('ragpulse', NULL, extra_info => '{quoted(self._mark)}')")

    def __enter__(self) -> None:
        """The COMMIT begins."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The COMMIT has ended; where it failed, its outcome is unknown."""
        if isinstance(error, duckdb.Error) and self._dsn is not None:
            self._failed = self._mark
            # Others must not wait until this process is sent something again.
            threading.Thread(target=self._settle_soon, name="ragpulse-doubt", daemon=True).start()

    def _settle_soon(self) -> None:
        while True:
            try:
                return self.settle()
            except StoreError:
                time.sleep(_AGAIN_S)

    def settle(self) -> None:
        """Undo the commit whose answer was lost; raises StoreError while PostgreSQL does not answer."""
        with self._settling:
            if self._failed is not None and self._dsn is not None:
                _settle(self._dsn, self._failed)
                self._failed = None


def _settle(dsn: str, mark: str) -> None:
    import psycopg  # type: ignore[import-not-found, unused-ignore]

    try:
        with psycopg.connect(dsn, connect_timeout=5) as catalog:
            catalog.execute(_WAIT)
            for (snapshot,) in catalog.execute(_FOUND, [mark]).fetchall():
                _undo(catalog, snapshot)
                _log.warning("snapshot %d was committed, but its answer was lost: undone", snapshot)
    except psycopg.Error as error:
        raise StoreError(f"the catalog does not answer: {first_line(error)}") from error


def _undo(catalog: Any, snapshot: int) -> None:
    """Remove what a snapshot added, and bring back what it removed: files, rows kept in PostgreSQL, deletions."""
    catalog.execute(_COUNTS, [snapshot])
    files = "SELECT data_file_id FROM ducklake_data_file WHERE begin_snapshot = %s"
    for table in _OF_FILES:
        catalog.execute(f"DELETE FROM {table} WHERE data_file_id IN ({files})", [snapshot])
    for (table,) in catalog.execute(_HOLD, ["begin_snapshot"]).fetchall():
        catalog.execute(f'DELETE FROM "{table}" WHERE begin_snapshot = %s', [snapshot])
    for (table,) in catalog.execute(_HOLD, ["end_snapshot"]).fetchall():
        catalog.execute(f'UPDATE "{table}" SET end_snapshot = NULL WHERE end_snapshot = %s', [snapshot])
