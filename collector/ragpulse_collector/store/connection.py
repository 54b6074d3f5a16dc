"""Opening the DuckDB file: settings chosen for the goals, errors that say the mend."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.protocol import Parameters, Rows, StoreError


def settings(*, threads: int, memory_limit: str, wal_limit: str) -> dict[str, Any]:
    """Return the instance's settings.

    The 16 MB default of the log's size costs a third of the throughput, because each checkpoint stalls the writer. The
    allocator's own threads hand back what a checkpoint frees (80 MB); without them it stays until the next work.
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
    """Open the file; raises StoreError when another process holds it or this duckdb cannot read it."""
    try:
        return duckdb.connect(str(path), read_only=read_only, config=config)
    except duckdb.IOException as error:
        raise StoreError(_explain(path, str(error))) from error
    except (duckdb.SerializationException, duckdb.InternalException, duckdb.InvalidInputException) as error:
        raise StoreError(f"{path} cannot be read by duckdb {duckdb.__version__}: {_first_line(error)}") from error


def lock_down(connection: duckdb.DuckDBPyConnection, *, writable: Path | None = None) -> None:
    """Forbid files (but those below `writable`), network and extensions to SQL until the file is opened anew.

    Closing it does not write the log into it from now on: who closes says whether there is time for that.
    """
    if connection.execute("SELECT current_setting('lock_configuration')").fetchall()[0][0]:
        return
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    if writable is not None:
        folder = str(writable.absolute()).replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{folder}']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _explain(path: Path, message: str) -> str:
    if "Conflicting lock" in message or "Could not set lock" in message:
        return f"{path} is in use by a running collector: ask it with `--url http://127.0.0.1:4318` instead of `--db`"
    if "is not a valid DuckDB" in message or "newer version" in message or "not a valid" in message:
        return f"{path} is not a file this duckdb ({duckdb.__version__}) can read: {message.splitlines()[0]}"
    return f"cannot open {path}: {message.splitlines()[0]}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def fetch(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> Rows:
    """Run one statement and fetch everything: a half-read result keeps a duckdb 2.0 connection busy."""
    result = cursor.execute(sql, parameters or None)
    if result.description is None:
        return Rows((), [])
    return Rows(tuple(column[0] for column in result.description), result.fetchall())


class Deadline:
    """Interrupts a cursor when its time is over; `passed` tells an interruption from an error."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, timeout_s: float | None) -> None:
        self._cursor = cursor
        self._timer = None if timeout_s is None else threading.Timer(timeout_s, self._interrupt)
        self.passed = False

    def _interrupt(self) -> None:
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
