"""Columns that duckdb reads in place say exactly what the rows said."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_collector.store.append import Appender
from ragpulse_collector.store.schema import TABLES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = {
    "span_id": st.integers(0, 2**64 - 1),
    "name": TEXT,
    "input_tokens": st.integers(-(2**63), 2**63 - 1),
    "n_contexts": st.integers(-(2**31), 2**31 - 1),
    "cost_usd": st.floats(allow_nan=False),
    "has_text": st.booleans(),
    "start_time": st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)),
}
NULLABLE = (st.none() | values for name, values in VALUES.items() if name != "span_id")
ROWS = st.lists(st.tuples(VALUES["span_id"], *NULLABLE), min_size=1, max_size=70)


def empty_table() -> duckdb.DuckDBPyConnection:
    """Make the table of spans."""
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    connection.execute(f"CREATE TABLE raw.spans ({TABLES['spans']})")
    return connection


@settings(deadline=None, max_examples=60)
@given(rows=ROWS)
def test_rows_come_back_as_they_were(rows: list[tuple[object, ...]]) -> None:
    """Any mix of nulls, empty texts, NULs, other alphabets and extreme numbers is stored as it is."""
    connection = empty_table()
    Appender(connection).append("spans", list(VALUES), rows)
    found = connection.execute(f"SELECT {', '.join(VALUES)} FROM raw.spans ORDER BY rowid").fetchall()
    assert found == rows


def test_ids_may_be_hex() -> None:
    """A caller may hold span ids as hex text, and trace ids as text with or without dashes."""
    table = empty_table()
    rows = [("0af7651916cd43dd8448eb211c80319c", "00000000000000ff"), ("0af76519-16cd-43dd-8448-eb211c80319c", 255)]
    Appender(table).append("spans", ("trace_id", "span_id"), rows)
    assert len(set(table.execute("SELECT trace_id, span_id FROM raw.spans").fetchall())) == 1


@pytest.mark.parametrize("value", ["lone \ud800 surrogate", 2**64], ids=["text", "number"])
def test_what_no_column_holds_is_refused_whole(value: object) -> None:
    """Nothing of the rows is stored when one cannot be."""
    table = empty_table()
    name = "name" if isinstance(value, str) else "span_id"
    with pytest.raises((UnicodeError, OverflowError)):
        Appender(table).append("spans", (name,), [(None,), (value,)])
    assert table.execute("SELECT count(*) FROM raw.spans").fetchall() == [(0,)]
