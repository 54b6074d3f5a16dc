"""Data out: snapshots and exports are written to the one folder SQL may touch, then moved to where they were asked."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from uuid import uuid4

import duckdb

from ragpulse_collector.store.connection import first_line, quoted
from ragpulse_collector.store.protocol import Parameters, StoreError

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


class Outbox:
    """Writes files on behalf of SQL that itself may touch no other folder."""

    def __init__(self, path: Path, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._folder = outbox_folder(path)
        self._cursor = cursor

    def snapshot(self, target: Path) -> Path:
        """Copy the database; readers and the writer go on meanwhile."""
        _refuse_existing(target)
        with self._scratch() as (folder, cursor):
            copy, name = folder / "snapshot.duckdb", f"snapshot_{uuid4().hex[:8]}"
            source = cursor.execute("SELECT current_catalog()").fetchall()[0][0]
            cursor.execute(f"ATTACH '{quoted(copy)}' AS {name} (READ_WRITE)")
            try:
                cursor.execute(f'COPY FROM DATABASE "{source}" TO {name}')
                cursor.execute(f"CHECKPOINT {name}")  # the engine does not when a file is closed
            finally:
                cursor.execute(f"DETACH {name}")
            _move(copy, target)
        return target

    def export(self, target: Path, form: Format) -> list[Path]:
        """Write every stable view into the folder `target`."""
        if form not in _FORMATS:
            raise StoreError(f"format is parquet or jsonl, not {form!r}")
        names = [f"{view}.{form}" for view in EXPORTED]
        for name in names:
            _refuse_existing(target / name)
        with self._scratch() as (folder, cursor):
            # One transaction: the files agree with one another.
            cursor.begin()
            for view, name in zip(EXPORTED, names, strict=True):
                cursor.execute(f"COPY (FROM {view}) TO '{quoted(folder / name)}' ({_FORMATS[form]})")
            cursor.commit()
            return [_move(folder / name, target / name) for name in names]

    def parquet(self, target: Path, sql: str, parameters: Parameters) -> Path:
        """Write the answer of one query as Parquet."""
        with self._scratch() as (folder, cursor):
            copy = folder / target.name
            cursor.execute(f"COPY ({sql}) TO '{quoted(copy)}' ({_FORMATS['parquet']})", parameters or None)
            return _move(copy, target)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[tuple[Path, duckdb.DuckDBPyConnection]]:
        folder = self._folder / uuid4().hex
        try:
            with contextlib.closing(self._cursor()) as cursor:
                folder.mkdir(parents=True)
                yield folder, cursor
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise StoreError(f"cannot write: {first_line(error)}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise StoreError(f"{target} exists already: choose another name")


def _move(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    return target
