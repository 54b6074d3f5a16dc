"""Undoes commits to the lake whose answer was lost: PostgreSQL may have them, although the senders retry.

DuckLake treats such a commit as failed and deletes its Parquet files. If PostgreSQL has the commit, the catalog names
files that do not exist, and no process can read the table. So the commit is undone as soon as PostgreSQL answers: by
the process itself or, if it has ended, by the next one that opens or maintains the lake.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import duckdb

from ragpulse_collector.store.connection import first_line, literal
from ragpulse_collector.store.protocol import StoreError

_log = logging.getLogger(__name__)
_SHARED = "ducklake:postgres:"
_LOCK = "SET LOCAL lock_timeout = '5s'; LOCK TABLE ducklake_snapshot_changes IN SHARE ROW EXCLUSIVE MODE"
"""PostgreSQL may still work on the commit: it grants the lock when all running transactions have ended.

Only one process has the lock, so that nothing is subtracted twice from the counts."""
_MARKED = "SELECT snapshot_id FROM ducklake_snapshot_changes WHERE commit_extra_info = %s"
_FILES = """
    WITH folder AS (
        SELECT t.table_id,
               CASE WHEN NOT t.path_is_relative THEN t.path WHEN NOT s.path_is_relative THEN s.path || t.path
                    ELSE m.value || s.path || t.path END AS path
        FROM ducklake_table t JOIN ducklake_schema s USING (schema_id) CROSS JOIN ducklake_metadata m
        WHERE m.key = 'data_path' AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL),
    file AS (
        SELECT table_id, begin_snapshot, path, path_is_relative FROM ducklake_data_file
        UNION ALL SELECT table_id, begin_snapshot, path, path_is_relative FROM ducklake_delete_file),
    files AS (
        SELECT file.begin_snapshot AS snapshot_id,
               CASE WHEN file.path_is_relative THEN folder.path || file.path ELSE file.path END AS path
        FROM file JOIN folder USING (table_id)),
    last AS (
        SELECT max(snapshot_id) AS snapshot_id FROM ducklake_snapshot_changes
        WHERE author = 'ragpulse' AND commit_extra_info LIKE '%:%'
        GROUP BY split_part(commit_extra_info, ':', 1))"""
_LAST_FILES = f"{_FILES} SELECT snapshot_id, path FROM files JOIN last USING (snapshot_id)"
"""The files of the last commit of each process: a process makes no commit after one in doubt."""
_OTHER_FILES = f"""{_FILES}
    SELECT snapshot_id, path FROM files WHERE snapshot_id NOT IN (SELECT snapshot_id FROM last)
    ORDER BY snapshot_id DESC LIMIT 5"""
_TABLES_WITH = (
    "SELECT table_name FROM information_schema.columns WHERE table_schema = current_schema() AND column_name = %s"
)
_RETRY_S = 1.0
_FILE_TABLES = ("ducklake_file_column_stats", "ducklake_file_partition_value")
_SUBTRACT_COUNTS = """
    UPDATE ducklake_table_stats t
    SET record_count = t.record_count - f.records, file_size_bytes = t.file_size_bytes - f.bytes
    FROM (SELECT table_id, sum(record_count) AS records, sum(file_size_bytes) AS bytes
          FROM ducklake_data_file WHERE begin_snapshot = %s GROUP BY table_id) f
    WHERE f.table_id = t.table_id"""


class Doubt:
    """Marks each transaction, and undoes the last one if its COMMIT failed but PostgreSQL has it.

    Only a catalog in PostgreSQL can lose an answer; nothing is done for others.
    """

    def __init__(self, catalog: str) -> None:
        self._dsn = catalog.removeprefix(_SHARED) if catalog.startswith(_SHARED) else None
        self._process = uuid4().hex
        self._settling = threading.Lock()
        self._mark = ""
        self._failed: str | None = None

    def mark(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Mark the transaction that the cursor has begun, so that its snapshot can be found in the catalog."""
        if self._dsn is not None:
            self._mark = f"{self._process}:{uuid4().hex}"
            cursor.execute(f"CALL lake.set_commit_message('ragpulse', NULL, extra_info => {literal(self._mark)})")

    def __enter__(self) -> None:
        """The COMMIT begins."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """The COMMIT has ended; if it failed, its outcome is unknown."""
        if isinstance(error, duckdb.Error) and self._dsn is not None:
            self._failed = self._mark
            # Other processes must not wait until this one receives something again.
            threading.Thread(target=self._settle_soon, name="ragpulse-doubt", daemon=True).start()

    def _settle_soon(self) -> None:
        while True:
            try:
                return self.settle()
            except StoreError:
                time.sleep(_RETRY_S)

    def settle(self) -> None:
        """Undo the commit whose answer was lost; raises StoreError while PostgreSQL does not answer."""
        with self._settling:
            if self._failed is not None and self._dsn is not None:
                _settle(self._dsn, self._failed)
                self._failed = None

    def recover(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Undo the commits in doubt of processes that have ended; `connection` reads the lake's files.

        Raises StoreError if PostgreSQL does not answer or no file of the lake exists, duckdb.Error if the files cannot
        be listed.
        """
        if self._dsn is not None:
            _recover(self._dsn, connection)


@contextmanager
def _transaction(dsn: str) -> Iterator[Any]:
    """Provide one transaction over the catalog; raises StoreError if PostgreSQL does not answer."""
    import psycopg  # type: ignore[import-not-found, unused-ignore]

    try:
        with psycopg.connect(dsn, connect_timeout=5) as catalog:
            yield catalog
    except psycopg.Error as error:
        raise StoreError(f"the catalog does not answer: {first_line(error)}") from error


def _settle(dsn: str, mark: str) -> None:
    with _transaction(dsn) as catalog:
        catalog.execute(_LOCK)
        for (snapshot,) in catalog.execute(_MARKED, [mark]).fetchall():
            _undo(catalog, snapshot)
            _log.warning("snapshot %d was committed, but its answer was lost: undone", snapshot)


def _recover(dsn: str, connection: duckdb.DuckDBPyConnection) -> None:
    with _transaction(dsn) as catalog:
        files = catalog.execute(_LAST_FILES).fetchall()
        missing = _missing(connection, files)
        if not missing:
            return
        if _count(missing) == len(files):
            other_files = catalog.execute(_OTHER_FILES).fetchall()
            if other_files and _count(_missing(connection, other_files)) == len(other_files):
                raise StoreError("none of the files that the catalog names is there: is this the right bucket?")
        catalog.execute(_LOCK)
        for snapshot, paths in missing.items():
            _undo(catalog, snapshot)
            _log.warning(
                "snapshot %d was committed by a collector that ended before it had the answer, and its files are "
                "missing: undone; nothing of it was acknowledged. Missing: %s",
                snapshot,
                ", ".join(paths),
            )


def _missing(connection: duckdb.DuckDBPyConnection, files: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    """Return the snapshots with missing files, and the paths of these."""
    missing: dict[int, list[str]] = {}
    for snapshot, path in files:
        # DuckDB's glob does not check whether a path without a wildcard exists.
        if not connection.execute(f"SELECT 1 FROM glob({literal(f'{path}*')})").fetchall():
            missing.setdefault(snapshot, []).append(path)
    return missing


def _count(files: dict[int, list[str]]) -> int:
    return sum(map(len, files.values()))


def _undo(catalog: Any, snapshot: int) -> None:
    """Remove what a snapshot added and restore what it removed: files, rows in PostgreSQL, deletions."""
    catalog.execute(_SUBTRACT_COUNTS, [snapshot])
    files = "SELECT data_file_id FROM ducklake_data_file WHERE begin_snapshot = %s"
    for table in _FILE_TABLES:
        catalog.execute(f"DELETE FROM {table} WHERE data_file_id IN ({files})", [snapshot])
    for (table,) in catalog.execute(_TABLES_WITH, ["begin_snapshot"]).fetchall():
        catalog.execute(f'DELETE FROM "{table}" WHERE begin_snapshot = %s', [snapshot])
    for (table,) in catalog.execute(_TABLES_WITH, ["end_snapshot"]).fetchall():
        catalog.execute(f'UPDATE "{table}" SET end_snapshot = NULL WHERE end_snapshot = %s', [snapshot])
