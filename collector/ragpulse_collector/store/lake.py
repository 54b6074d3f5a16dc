"""The scale-out store: DuckLake (catalog in PostgreSQL, Parquet on S3 or a folder); any number of processes ingest.

Same SQL, same views, same writer. What differs: how it is opened, that commits go through the catalog (so groups are
larger), that files are merged and expired by one process, and that re-sends which reach another process are told apart
when traces are decided.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.guard import UserSql, refuse_files
from ragpulse_collector.store.migrations import migrate
from ragpulse_collector.store.protocol import StoreError
from ragpulse_collector.store.writing import Ways, Writing

_EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")
_TRIES = 10

_UPKEEP = (
    "ducklake_flush_inlined_data('lake')",
    "ducklake_merge_adjacent_files('lake')",
    "ducklake_expire_snapshots('lake', older_than => now() - INTERVAL {keep_s} SECOND)",
    "ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL {keep_s} SECOND)",
    "ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL {orphan_s} SECOND)",
)


class LakeStore(Writing):
    """A lake that several collectors share.

    `catalog` is what follows ATTACH: `ducklake:postgres:dbname=... host=...` or `ducklake:FILE`; `data_path` a folder
    or `s3://bucket/prefix`; `s3` the fields of DuckDB's S3 secret (KEY_ID, SECRET, ENDPOINT, ...). Raises StoreError.
    Users' SQL may name tables and views only: the engine itself needs its files and network here.
    """

    def __init__(
        self,
        catalog: str,
        *,
        data_path: str,
        s3: dict[str, str] | None = None,
        threads: int = 2,
        memory_limit: str = "512MB",
        **ways: Any,
    ) -> None:
        self._catalog, self._data_path, self._s3 = catalog, data_path, s3
        self._config: dict[str, Any] = {
            "threads": threads, "memory_limit": memory_limit, "python_enable_replacements": False
        }  # fmt: skip
        super().__init__(Path("ragpulse-lake"), Ways(**({"group_bytes": 16 * 2**20} | ways)))
        self._user_sql = UserSql(self._cursor, check=refuse_files)

    def maintain(self, *, keep_s: int = 3600, orphan_s: int = 86_400) -> None:
        """Merge small files, forget old snapshots, remove files nobody needs; one process at a time does this.

        Files younger than `orphan_s` that no snapshot names may belong to a commit in flight and are left alone.
        """
        cursor = self._cursor()
        try:
            for step in _UPKEEP:
                call = step.format(keep_s=int(keep_s), orphan_s=int(orphan_s))
                cursor.execute(f"SELECT count(*) FROM {call}").fetchall()
        finally:
            cursor.close()

    def size_bytes(self) -> int:
        """Return the bytes of the data files in force."""
        return int(self.read("SELECT coalesce(sum(file_size_bytes), 0) FROM ducklake_table_info('lake')").rows[0][0])

    def used_bytes(self) -> int:
        """Return the same as `size_bytes`: the lake has no free blocks."""
        return self.size_bytes()

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config=self._config)
        try:
            self._attach(connection)
            _migrate_together(connection, self._catalog)
        except duckdb.Error as error:
            connection.close()
            raise StoreError(f"cannot open {self._catalog}: {str(error).splitlines()[0]}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        load_extensions(connection)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        # Many small commits meet at the catalog; appends never truly conflict, so they are tried again inside.
        connection.execute("SET GLOBAL ducklake_max_retry_count = 100")
        if self._s3:
            fields = ", ".join(f"{name} '{_quoted(value)}'" for name, value in self._s3.items())
            connection.execute(f"CREATE SECRET lake_files (TYPE s3, {fields})")
        connection.execute(f"ATTACH '{_quoted(self._catalog)}' AS lake (DATA_PATH '{_quoted(self._data_path)}')")
        connection.execute("USE lake")

    def _new_connection(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        cursor = connection.cursor()
        cursor.execute("USE lake")
        return cursor


class Lease:
    """The right to evaluate and maintain: held by one process at a time, freed by PostgreSQL when that process dies."""

    def __init__(self, dsn: str, *, key: int = 0x7261_6770) -> None:
        self._connection = duckdb.connect()
        load_extensions(self._connection)
        self._connection.execute(f"ATTACH '{_quoted(dsn)}' AS catalog (TYPE postgres)")
        self._key = key
        self._held = False

    def take(self) -> bool:
        """Try to become the one, or see whether this process still is; returns whether it is."""
        try:
            if not self._held:
                # The lock belongs to a PostgreSQL transaction; keeping ours open keeps the session that took it.
                self._connection.begin()
            self._held = self._ask("SELECT true" if self._held else f"SELECT pg_try_advisory_xact_lock({self._key})")
        except duckdb.Error:
            self._held = False
        if not self._held:
            with contextlib.suppress(duckdb.Error):
                self._connection.rollback()
        return self._held

    def _ask(self, sql: str) -> bool:
        return bool(self._connection.execute(f"SELECT * FROM postgres_query('catalog', '{sql}')").fetchall()[0][0])

    def release(self) -> None:
        """Let another process take over."""
        self._connection.close()


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load what the lake needs, from installed packages where there are some; raises StoreError naming the mend."""
    for name in _EXTENSIONS:
        try:
            connection.execute(f"LOAD {_extension(name)}")
        except duckdb.Error as error:
            raise StoreError(
                f"duckdb {duckdb.__version__} has no extension {name}: pip install 'ragpulse[lake]' "
                f"or run INSTALL {name} with internet access"
            ) from error


def _extension(name: str) -> str:
    """Packages are loaded from where they lie: a service may not have a home folder that it can write to."""
    try:
        package = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return name
    file = package / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return f"'{_quoted(str(file))}'"


def _migrate_together(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Several processes may start at once: who loses the race finds the tables made."""
    for left in _attempts():
        try:
            migrate(connection.execute, lambda sql: connection.execute(sql).fetchall(), name=name)
            return
        except duckdb.Error:
            if not left:
                raise


def _attempts() -> Iterator[int]:
    for left in reversed(range(_TRIES)):
        yield left
        time.sleep(0.2)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
