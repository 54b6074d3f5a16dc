"""Appends rows to a table by one INSERT from Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from ragpulse_collector.records import Values
from ragpulse_collector.store.arrow import Source
from ragpulse_collector.store.schema import TABLES


class Appender:
    """Appends to the tables that a cursor sees, inside its transaction.

    Each table has a source and a prepared INSERT from it, made with the first rows: with every append they would cost
    as much as inserting a thousand rows. Without `prepare` the INSERT is planned each time: in a lake a plan does not
    outlive the maintenance of its table (DuckLake with duckdb 1.5.5 ends the process then).
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, *, prepare: bool = True) -> None:
        self._cursor, self._prepare = cursor, prepare
        self._sources: dict[str, Source] = {}

    def append(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Append rows, all or none of them; span ids may be hex text. Raises OverflowError, UnicodeError."""
        values = zip(*rows, strict=True)
        self.append_columns(table, {name: [column] for name, column in zip(names, values, strict=True)})

    def append_columns(self, table: str, parts: Mapping[str, Sequence[Values]]) -> None:
        """Append rows given by column, each in parts of the same lengths; like `append`."""
        source = self._sources.get(table) or self._new_source(table)
        try:
            source.fill(parts)
            self._cursor.execute(f"EXECUTE append_{table}" if self._prepare else _insert(table))
        finally:
            source.clear()

    def close(self) -> None:
        """Remove the sources from the cursor."""
        for table in self._sources:
            if self._prepare:
                self._cursor.execute(f"DEALLOCATE append_{table}")
            self._cursor.unregister(f"rows_of_{table}")

    def forget(self) -> None:
        """Forget the sources after a rollback, which has removed those that were registered in the transaction."""
        self._sources = {}

    def _new_source(self, table: str) -> Source:
        source = Source(_types(table))
        self._cursor.register(f"rows_of_{table}", source)
        if self._prepare:
            self._cursor.execute(f"PREPARE append_{table} AS {_insert(table)}")
        self._sources[table] = source
        return source


def _insert(table: str) -> str:
    return f"INSERT INTO raw.{table} BY NAME FROM rows_of_{table}"


def _types(table: str) -> dict[str, str]:
    """Return the declared type of each column of a table."""
    return {name.strip('"'): kind for name, kind in (part.split()[:2] for part in TABLES[table].split(","))}
