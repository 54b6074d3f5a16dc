"""Opening DuckDB: a file, with settings chosen for the goals, or a lake attached; errors name the fix."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import ref

import duckdb

from ragpulse_collector.store.log import DamagedLog, check_log, open_past_damage
from ragpulse_collector.store.protocol import Parameters, Rows, StoreError

ROW_GROUP_SIZE = 8_192
"""Rows in a group. A checkpoint merges neighbours that are not full, which writes them again; a log of the usual size
fills several groups of this size, so that little is written twice."""

REOPENING = "the store is being reopened: ask again"
_DAMAGE_HINT = (
    "`ragpulse serve --db {}` keeps a damaged log aside and goes on with what can be read, "
    "see Recovery in docs/recovery.md"
)
_UNREADABLE = (duckdb.SerializationException, duckdb.InternalException, duckdb.InvalidInputException)


def duckdb_settings(*, threads: int, memory_limit: str, wal_limit: str) -> dict[str, Any]:
    """Return DuckDB's settings for a store that is written to.

    The default log size of 16 MB costs a third of the throughput, because each checkpoint stalls the writer. The
    allocator's own threads return the memory that a checkpoint frees (80 MB) at once.
    """
    return {
        "threads": threads,
        "memory_limit": memory_limit,
        "wal_autocheckpoint": wal_limit,
        "allocator_background_threads": True,
        "preserve_insertion_order": True,
        "max_temp_directory_size": "2GB",
        "python_enable_replacements": False,
    }


def open_file(path: Path, config: dict[str, Any], *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open the file; raises StoreError when another process has it open or this duckdb cannot read it.

    A damaged log is set aside as by `attach_file`; with `read_only` it is an error.
    """
    with _as_store_error(path):
        if not read_only:
            return open_past_damage(path, lambda: duckdb.connect(str(path), config=config))
        connection = duckdb.connect(str(path), read_only=True, config=config)
        try:
            check_log(path, connection)
        except BaseException:
            connection.close()
            raise
        return connection


def attach_file(path: Path, name: str, config: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Attach the file as `name` with groups of ROW_GROUP_SIZE rows; raises StoreError as `open_file` does.

    DuckDB takes the size only from ATTACH. Existing groups stay as they are. The connection sees nothing but the file.
    A damaged log is set aside, and its readable beginning is used.
    """
    with _as_store_error(path):
        return open_past_damage(path, lambda: _attach(path, name, config))


def _attach(path: Path, name: str, config: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config=config | {"temp_directory": f"{path}.tmp"})
    try:
        connection.execute(f"ATTACH {literal(path)} AS {name} (ROW_GROUP_SIZE {ROW_GROUP_SIZE})")
        connection.execute(f"USE {name}")
        connection.execute("DETACH memory")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        _check_format(path)
        yield
    except duckdb.Error as error:
        raise StoreError(_explain(path, error)) from error
    except DamagedLog as error:
        raise StoreError(f"{error}: {_DAMAGE_HINT.format(path)}") from error
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error}") from error


def _check_format(path: Path) -> None:
    """Raise StoreError for a file of another kind.

    DuckDB opens JSON, CSV and Parquet as views of a database in memory: everything written to it would be lost.
    """
    if path.is_file():
        with path.open("rb") as file:
            if file.read(12)[8:] != b"DUCK":
                raise StoreError(f"{path} is not a file this duckdb ({duckdb.__version__}) can read: it is no database")


def lock_down(connection: duckdb.DuckDBPyConnection, *, writable: Path | None = None) -> None:
    """Forbid SQL to use files (except below `writable`), network and extensions until the file is reopened.

    From now on closing the connection makes no checkpoint: the store decides whether there is time for it.
    """
    if connection.execute("SELECT current_setting('lock_configuration')").fetchall()[0][0]:
        return
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    if writable is not None:
        connection.execute(f"SET allowed_directories = [{literal(writable.absolute())}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _explain(path: Path, error: duckdb.Error) -> str:
    message = str(error)
    if any(sign in message for sign in ("Conflicting lock", "Could not set lock", "Unique file handle")):
        return f"{path} is in use by a running collector: ask it with `--url http://127.0.0.1:4318` instead of `--db`"
    if "replaying WAL" in message:
        return f"cannot read the log of {path} ({first_line(error)}): {_DAMAGE_HINT.format(path)}"
    if isinstance(error, _UNREADABLE) or any(sign in message for sign in ("not a valid", "newer version", "Corrupt")):
        return f"{path} is not a file this duckdb ({duckdb.__version__}) can read: {first_line(error)}"
    return f"cannot open {path}: {first_line(error)}"


def is_invalidated(error: duckdb.Error) -> bool:
    """Whether DuckDB answers nothing until the store is reopened: a write to its file failed."""
    return isinstance(error, duckdb.FatalException) or "has been invalidated" in str(error)


def is_short_of_memory(error: BaseException) -> bool:
    """Whether this process has too little memory: neither statement nor body is at fault."""
    if isinstance(error, (MemoryError, duckdb.OutOfMemoryException)) or str(error) == "can't start new thread":
        return True
    return isinstance(error, duckdb.Error) and any(sign in str(error) for sign in ("bad_alloc", "Out of Memory"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: DuckDB adds its own source after it."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def literal(text: object) -> str:
    """Return a text as an SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def fetch(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> Rows:
    """Run one statement and fetch all rows: a result that is read in part keeps a duckdb 2.0 connection busy."""
    result = cursor.execute(sql, parameters or None)
    if result.description is None:
        return Rows((), [])
    return Rows(tuple(column[0] for column in result.description), result.fetchall())


def _expire(reference: ref[Deadline]) -> None:
    if (deadline := reference()) is not None:
        deadline.interrupt()


class Deadline:
    """Interrupts a cursor after a time; `passed` distinguishes this from other interruptions."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, timeout_s: float | None) -> None:
        self._cursor = cursor
        # The reference is weak: a cycle, or the thread of the timer, would keep the cursor in memory.
        self._timer = None if timeout_s is None else threading.Timer(timeout_s, _expire, (ref(self),))
        self.passed = False

    def interrupt(self) -> None:
        """Interrupt the cursor."""
        self.passed = True
        self._cursor.interrupt()

    def __enter__(self) -> Deadline:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


LAKE = "lake"
"""The name under which a lake is attached."""
_EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")
_RETRIES = ("ducklake_retry_wait_ms = 20", "ducklake_retry_backoff = 1.2", "ducklake_max_retry_count = 30")
"""Concurrent appends collide at the catalog without a true conflict, so DuckLake retries them, for 24 s at most."""


def attach_lake(
    connection: duckdb.DuckDBPyConnection, catalog: str, data_path: str, s3: Mapping[str, str] | None
) -> None:
    """Attach a lake to a connection and make it the default; raises StoreError or duckdb.Error."""
    load_extensions(connection)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    for setting in _RETRIES:
        connection.execute(f"SET GLOBAL {setting}")
    if s3:
        fields = ", ".join(f"{name} {literal(value)}" for name, value in s3.items())
        connection.execute(f"CREATE SECRET lake_files (TYPE s3, {fields})")
    connection.execute(f"ATTACH {literal(catalog)} AS {LAKE} (DATA_PATH {literal(data_path)})")
    connection.execute(f"USE {LAKE}")


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the lake's extensions, from installed packages if possible; raises StoreError that names the fix."""
    for name in _EXTENSIONS:
        try:
            connection.execute(f"LOAD {_extension(name)}")
        except duckdb.Error as error:
            raise StoreError(
                f"duckdb {duckdb.__version__} has no extension {name}: pip install 'ragpulse[lake]' "
                f"or run INSTALL {name} with internet access"
            ) from error


def _extension(name: str) -> str:
    """Return what LOAD takes. A package is loaded in place: a service may have no home folder that it can write to."""
    try:
        package = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return name
    file = package / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return literal(file)
