"""The fast way into a table: duckdb 2.0's Appender, Arrow where there is none (1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.schema import TABLES, columns

Rows = Sequence[Sequence[Any]]

_SPAN_IDS = frozenset({"span_id", "parent_span_id", "unit_span_id"})


def appender(cursor: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], rows: Rows) -> None:
    """Append rows inside the cursor's transaction, all or none of them; span ids may be hex text."""
    rows = _with_numbers(names, rows)
    if hasattr(cursor, "appender"):
        whole = tuple(names) == columns(table)
        sink = cursor.appender(f"raw.{table}", columns=None if whole else list(names))
        try:
            sink.append_rows(rows)
            sink.flush()
        except BaseException:
            # A failed append leaves rows behind, which duckdb would warn of when the appender goes.
            sink.clear()
            raise
        return
    _through_arrow(cursor, table, names, rows)


def _with_numbers(names: Sequence[str], rows: Rows) -> Rows:
    """Span ids are UBIGINT in the tables: hex text that a caller holds becomes a number."""
    places = [index for index, name in enumerate(names) if name in _SPAN_IDS]
    if not any(isinstance(row[index], str) for row in rows for index in places):
        return rows
    return [[int(v, 16) if i in places and isinstance(v, str) else v for i, v in enumerate(row)] for row in rows]


def _through_arrow(cursor: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], rows: Rows) -> None:
    import pyarrow as pa

    declared = {part.split()[0].strip('"'): part.split()[1] for part in TABLES[table].split(",")}
    types = {
        "UBIGINT": pa.uint64(), "BIGINT": pa.int64(), "INTEGER": pa.int32(), "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(), "TIMESTAMP": pa.timestamp("us"), "DATE": pa.date32(),
    }  # fmt: skip
    arrays = [
        pa.array(values, types.get(declared[name], pa.string()))
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    ]
    cursor.register("appended", pa.table(arrays, names=list(names)))
    listed = ", ".join(f'"{name}"' for name in names)
    try:
        cursor.execute(f"INSERT INTO raw.{table} ({listed}) SELECT {listed} FROM appended")
    finally:
        cursor.unregister("appended")
