"""The scale-out store: DuckLake (catalog in PostgreSQL, Parquet on S3 or a folder); any number of processes ingest.

SQL, views and writer are those of the file. Commits go through the catalog, so groups are larger. One process merges
and expires files. A span that two processes stored is removed once when its trace is decided.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb

from ragpulse_collector.refusals import Busy
from ragpulse_collector.store.commit_doubt import Doubt
from ragpulse_collector.store.connection import LAKE, Deadline, attach_lake, first_line
from ragpulse_collector.store.embedded import Writing
from ragpulse_collector.store.ingest.writer import WriteOptions
from ragpulse_collector.store.migrations import migrate
from ragpulse_collector.store.protocol import StoreError
from ragpulse_collector.store.schema import TIME_COLUMNS
from ragpulse_collector.store.sql.process import POSSIBLE, Readers

_log = logging.getLogger(__name__)
_TRIES = 10
_CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS raw\.(\w+)")
_KEEPALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""PostgreSQL frees the lease of a silent machine after 25 s; its default is two hours."""

_USED = """
    SELECT coalesce(sum(file.file_size_bytes * (1 - coalesce(gone.rows, 0) / greatest(file.record_count, 1))), 0)
    FROM __ducklake_metadata_lake.ducklake_data_file file
    LEFT JOIN (
        SELECT data_file_id, sum(delete_count) AS rows FROM __ducklake_metadata_lake.ducklake_delete_file
        WHERE end_snapshot IS NULL GROUP BY 1) gone USING (data_file_id)
    WHERE file.end_snapshot IS NULL"""
_CONNECTION_VARIABLES = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
)
_CHECK_S = 4.0
_ADD_ROWS = "INSERT INTO raw.meta SELECT 'probe', 'probe' FROM range(100)"
"""More rows than DuckLake keeps in PostgreSQL: they become a file at once, before COMMIT."""

_REWRITE = "ducklake_rewrite_data_files('lake', delete_threshold => 0)"
_FLUSH = "ducklake_flush_inlined_data('lake')"
_UPKEEP = (
    "ducklake_merge_adjacent_files('lake')",
    "ducklake_expire_snapshots('lake', older_than => now() - INTERVAL {keep_s} SECOND)",
    "ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL {keep_s} SECOND)",
    "ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL 1 DAY)",
)


_FLUSHES = 5
"""Attempts to write small commits into files beside other commits."""


class LakeStore(Writing):
    """A lake that several collectors share.

    `catalog` is what follows ATTACH: `ducklake:postgres:dbname=... host=...` or `ducklake:FILE`; `data_path` a folder
    or `s3://bucket/prefix`; `s3` the fields of DuckDB's S3 secret (KEY_ID, SECRET, ENDPOINT, ...). Raises StoreError.
    Only the guard limits users' SQL: DuckDB itself needs files and network here.
    """

    _name = LAKE

    def __init__(
        self,
        catalog: str,
        *,
        data_path: str,
        s3: dict[str, str] | None = None,
        threads: int = 2,
        memory_limit: str = "512MB",
        **options: Any,
    ) -> None:
        self._catalog, self._data_path, self._s3 = catalog, data_path, s3
        self._doubt = Doubt(catalog)
        self._config: dict[str, Any] = {
            "threads": threads, "memory_limit": memory_limit, "python_enable_replacements": False
        }  # fmt: skip
        super().__init__(Path("ragpulse-lake"), WriteOptions(**({"group_bytes": 16 * 2**20} | options)))
        # A catalog in a file is locked by this process; users' queries run in it then, with the same guard.
        if POSSIBLE and catalog.startswith("ducklake:postgres:"):
            scratch = Path(tempfile.gettempdir()) / f"ragpulse-lake-{os.getpid()}.sql"
            self._readers = Readers(self._source, scratch, needs=_is_connection_variable)

    def _source(self, scratch: Path) -> object:
        from ragpulse_collector.store.sql.child import LakeSource

        return LakeSource(self._catalog, self._data_path, self._s3, str(self._config["memory_limit"]), scratch)

    def maintain(self, *, keep_s: int = 3600) -> None:
        """Merge small files, expire old snapshots, remove unused files; only one process at a time may do this.

        Files younger than a day without a snapshot stay: they may belong to a commit in flight.
        """
        with contextlib.closing(self._cursor()) as cursor:
            self._recover(cursor)
            self._flush()
            for step in _UPKEEP:
                cursor.execute(f"SELECT count(*) FROM {step.format(keep_s=int(keep_s))}").fetchall()

    def purge(self) -> None:
        """Rewrite the files with deleted rows; `maintain` removes the old files when their snapshots expire."""
        if self._catalog.startswith("ducklake:postgres:"):
            self._flush()
        with contextlib.closing(self._cursor()) as cursor:
            cursor.execute(f"SELECT count(*) FROM {_REWRITE}").fetchall()

    def _flush(self) -> None:
        """Write the rows of small commits, which are in PostgreSQL, into files.

        If the answer to COMMIT is lost, DuckLake deletes these files although PostgreSQL may have removed the rows, and
        they are lost. So this connection, with a DuckDB of its own, has no access to files during COMMIT. A commit that
        another one overtook fails for the same reason, and is tried again.
        """
        for _ in range(_FLUSHES - 1):
            with contextlib.suppress(duckdb.TransactionException):
                return self._flush_once()
        return self._flush_once()

    def _flush_once(self) -> None:
        with duckdb.connect(config=self._config) as connection:
            attach_lake(connection, self._catalog, self._data_path, self._s3)
            connection.begin()
            connection.execute(f"SELECT count(*) FROM {_FLUSH}").fetchall()
            connection.execute("SET enable_external_access = false")
            connection.commit()

    def check_files(self) -> None:
        """Write a small file and remove it; raises StoreError with the reason.

        The rows of small commits go to PostgreSQL, so a commit does not prove that the bucket accepts files.
        """
        with contextlib.closing(self._cursor()) as cursor, Deadline(cursor, _CHECK_S):
            try:
                cursor.begin()
                cursor.execute(_ADD_ROWS)
                # DuckLake removes the files of a transaction that is rolled back.
                cursor.rollback()
            except duckdb.Error as error:
                raise StoreError(f"no file can be written to {self._data_path}: {first_line(error)}") from error

    def _refused(self, error: duckdb.IOException) -> Busy:
        return Busy(f"the lake does not answer: {first_line(error)}")

    def size_bytes(self) -> int:
        """Return the bytes of the current data files."""
        return int(self.read("SELECT coalesce(sum(file_size_bytes), 0) FROM ducklake_table_info('lake')").value)

    def used_bytes(self) -> int:
        """Return the bytes of live rows; a file does not shrink when rows are deleted."""
        return int(self.read(_USED).value)

    def _begin(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._doubt.settle()
        cursor.begin()
        self._doubt.mark(cursor)

    def _commit(self, cursor: duckdb.DuckDBPyConnection) -> None:
        with self._doubt:
            cursor.commit()

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config=self._config)
        try:
            attach_lake(connection, self._catalog, self._data_path, self._s3)
            self._recover(connection)
            _migrate_together(connection)
        except duckdb.Error as error:
            connection.close()
            raise StoreError(f"cannot open the lake: {first_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _recover(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the lake readable after a collector that ended while a commit was in doubt."""
        try:
            self._doubt.recover(connection)
        except (duckdb.Error, StoreError) as error:
            # The lake opens without its files, too; /readyz names what is missing.
            _log.warning("it is not known whether a commit must be undone: %s", first_line(error))

    def _reopen(self) -> None:
        """Open a second connection, which a lake allows: the old one ends with its last reader."""
        opened = self._open()
        with self._opening:
            self._connection = opened


def _is_connection_variable(variable: str) -> bool:
    """Whether libpq or the S3 client reads this variable; the S3 keys themselves are passed in another way."""
    return variable.startswith("PG") or variable.upper() in _CONNECTION_VARIABLES


_LEASE = 0x7261_6770
"""The number of the advisory lock."""


class Lease:
    """The right of one process at a time to evaluate and maintain; PostgreSQL frees it when that process dies.

    It is an advisory lock in a session of its own. No transaction stays open, because that would keep PostgreSQL from
    cleaning its tables. A pooler that shares sessions between clients breaks it.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._session: Any = None

    def take(self) -> bool:
        """Take the lease or check it; returns whether this process has it."""
        import psycopg  # type: ignore[import-not-found, unused-ignore]

        try:
            if self._session is None:
                self._session = psycopg.connect(self._dsn, autocommit=True, connect_timeout=5, options=_KEEPALIVE)
            # The session that has the lock gets it again.
            return bool(self._session.execute("SELECT pg_try_advisory_lock(%s)", [_LEASE]).fetchone()[0])
        except psycopg.Error as error:
            _log.warning("the catalog does not answer: %s", first_line(error))
            self.release()
            return False

    def release(self) -> None:
        """Let another process take over at once."""
        import psycopg  # type: ignore[import-not-found, unused-ignore]

        if self._session is not None:
            # After closing alone, PostgreSQL frees the lock only later.
            with contextlib.suppress(psycopg.Error):
                self._session.execute("SELECT pg_advisory_unlock_all()")
            self._session.close()
            self._session = None


def _migrate_together(connection: duckdb.DuckDBPyConnection) -> None:
    """Migrate; when several processes start at once, a conflict is tried again."""
    for retries in _attempts():
        try:
            migrate(partial(_execute, connection), lambda sql: connection.execute(sql).fetchall(), name="the lake")
            _compress(connection)
            return
        except duckdb.Error:
            if not retries:
                raise


def _execute(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Run a statement; a new table is partitioned by day, so that retention removes whole files.

    The partitions are set in the same transaction: a process that had the catalog open in between would miss the rows
    of small commits.
    """
    connection.execute(sql)
    match = _CREATE.match(sql)
    if match and match[1] in TIME_COLUMNS:
        day = "year({0}), month({0}), day({0})".format(TIME_COLUMNS[match[1]])
        connection.execute(f"ALTER TABLE raw.{match[1]} SET PARTITIONED BY ({day})")


def _compress(connection: duckdb.DuckDBPyConnection) -> None:
    options = connection.execute("SELECT 1 FROM ducklake_options('lake') WHERE option_name = 'parquet_compression'")
    if not options.fetchall():
        connection.execute("CALL ducklake_set_option('lake', 'parquet_compression', 'zstd')")


def _attempts() -> Iterator[int]:
    for retries in reversed(range(_TRIES)):
        yield retries
        time.sleep(0.2)


_PASSWORD = re.compile(r"\bpassword\s*=|//[^/@]*:[^/@]*@")


def lake_parts(db: str) -> tuple[str, str]:
    """Split a lake's `db` into the catalog and the path of its files; raises StoreError that names the fix."""
    words = db.split()
    paths = [word.removeprefix("data_path=") for word in words if word.startswith("data_path=")]
    if _PASSWORD.search(db):
        raise StoreError("no password in `db`, it is shown and logged: put it into PGPASSWORD or ~/.pgpass")
    if len(paths) != 1:
        raise StoreError("`db` does not say where its files are: add data_path=s3://bucket/prefix or data_path=FOLDER")
    return " ".join(word for word in words if not word.startswith("data_path=")), paths[0]


def s3_secret(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the fields of DuckDB's S3 secret from the usual variables; None where there are no keys."""
    if "AWS_ACCESS_KEY_ID" not in environ:
        return None
    secret = {"KEY_ID": environ["AWS_ACCESS_KEY_ID"], "SECRET": environ.get("AWS_SECRET_ACCESS_KEY", "")}
    if "AWS_REGION" in environ:
        secret["REGION"] = environ["AWS_REGION"]
    if "AWS_ENDPOINT_URL" in environ:
        endpoint = urlsplit(environ["AWS_ENDPOINT_URL"])
        secret |= {"ENDPOINT": endpoint.netloc, "URL_STYLE": "path"}
        secret["USE_SSL"] = "true" if endpoint.scheme == "https" else "false"
    return secret
