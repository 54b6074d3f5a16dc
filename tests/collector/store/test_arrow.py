"""DuckDB stores exactly the values of the columns that it reads in place."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_collector.records import Constant
from ragpulse_collector.store.ingest.transaction import WriterTransaction
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
NULLABLE = [st.none() | values for name, values in VALUES.items() if name != "span_id"]
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
    WriterTransaction(connection).append("spans", list(VALUES), rows)
    found = connection.execute(f"SELECT {', '.join(VALUES)} FROM raw.spans ORDER BY rowid").fetchall()
    assert found == rows


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(st.tuples(st.tuples(*NULLABLE), st.integers(1, 40), st.booleans()), min_size=1, max_size=4))
def test_a_constant_is_stored_in_each_of_its_rows(parts: list[tuple[tuple[object, ...], int, bool]]) -> None:
    """Parts of a column may be constant or given row by row, in any order."""
    names = [name for name in VALUES if name != "span_id"]
    columns = {
        name: [Constant(row[at], length) if constant else [row[at]] * length for row, length, constant in parts]
        for at, name in enumerate(names)
    }
    lengths = [length for _, length, _ in parts]
    connection = empty_table()
    WriterTransaction(connection).append_columns(
        "spans", {"span_id": [[bytes(8)] * length for length in lengths], **columns}
    )
    found = connection.execute(f"SELECT {', '.join(names)} FROM raw.spans ORDER BY rowid").fetchall()
    assert found == [row for row, length, _ in parts for _ in range(length)]


def test_columns_that_are_not_given_are_null() -> None:
    """An INSERT of few columns needs no values for the others, and the next one keeps nothing of the former."""
    table = empty_table()
    appender = WriterTransaction(table)
    appender.append("spans", ("trace_id", "name", "input_tokens"), [(bytes(16), "first", 7)])
    appender.append("spans", ("trace_id", "model"), [(bytes(16), "second")])
    found = table.execute("SELECT name, input_tokens, model, start_time FROM raw.spans ORDER BY rowid").fetchall()
    assert found == [("first", 7, None, None), (None, None, "second", None)]


def test_ids_may_be_hex() -> None:
    """A caller may hold span ids as hex text, and trace ids as text with or without dashes."""
    table = empty_table()
    rows = [("0af7651916cd43dd8448eb211c80319c", "00000000000000ff"), ("0af76519-16cd-43dd-8448-eb211c80319c", 255)]
    WriterTransaction(table).append("spans", ("trace_id", "span_id"), rows)
    assert len(set(table.execute("SELECT trace_id, span_id FROM raw.spans").fetchall())) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", "lone \ud800 surrogate"), ("span_id", 2**64), ("input_tokens", 2**63), ("n_contexts", "many")],
)
def test_rows_with_an_impossible_value_are_refused_whole(name: str, value: object) -> None:
    """Nothing of the rows is stored when one cannot be."""
    table = empty_table()
    with pytest.raises(ValueError, match="converting"):
        WriterTransaction(table).append("spans", (name,), [(None,), (value,)])
    assert table.execute("SELECT count(*) FROM raw.spans").fetchall() == [(0,)]


def test_ids_of_another_length_are_refused() -> None:
    """A column of them, without a null, is read at once."""
    with pytest.raises(ValueError, match="converting"):
        WriterTransaction(empty_table()).append("spans", ("span_id",), [(b"nine byte",), (b"nine byte",)])
