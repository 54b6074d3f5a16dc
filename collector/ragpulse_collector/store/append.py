"""The fast way into a table: rows turned into columns, taken in by one INSERT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.columnar import Column, Part, Source, column
from ragpulse_collector.store.schema import TABLES

_SOURCE = "appended_rows"
_NOTHING = {"nothing": Column(b"b", 0, (None, b""))}


class Appender:
    """Appends to the tables that a cursor sees, inside its transaction.

    The source is registered once, with the first rows: with every append it would cost as much as inserting a few
    hundred rows.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._source: Source | None = None

    def append(self, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Append rows, all or none of them; span ids may be hex text. Raises OverflowError, UnicodeError."""
        values = zip(*rows, strict=True)
        self.append_columns(table, {name: [column_] for name, column_ in zip(names, values, strict=True)})

    def append_columns(self, table: str, parts: Mapping[str, Sequence[Part]]) -> None:
        """Append rows given by column, each in parts of the same lengths; like `append`."""
        types = _types(table)
        made = {name: column(types[name], each) for name, each in parts.items()}
        source = self._source or self._registered()
        source.fill({name: part for name, part in made.items() if part is not None})
        try:
            self._cursor.execute(f"INSERT INTO raw.{table} BY NAME FROM {_SOURCE}")
        finally:
            source.fill(_NOTHING)

    def close(self) -> None:
        """Let the cursor forget the source."""
        if self._source is not None:
            self._cursor.unregister(_SOURCE)

    def forget(self) -> None:
        """The transaction was rolled back, and with it the source where it had been registered inside."""
        self._source = None

    def _registered(self) -> Source:
        import_module("duckdb")  # teaches the engine to read what Python holds; too dear for a process that only starts
        self._source = Source()
        self._source.fill(_NOTHING)
        self._cursor.register(_SOURCE, self._source)
        return self._source


@lru_cache
def _types(table: str) -> dict[str, str]:
    """Return the declared type of each column of a table."""
    return {name.strip('"'): kind for name, kind in (part.split()[:2] for part in TABLES[table].split(","))}
