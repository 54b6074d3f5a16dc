"""The sampling number u: fixed for ever, because stored decisions and replays rely on it; SQL and Python agree."""

from __future__ import annotations

import duckdb
import pytest

from ragpulse_collector.store.units.numbers import U_SQL, sampling_number

VECTORS = [
    ("ragpulse", "0" * 32, "0" * 16, 0.9261819550371347),
    ("ragpulse", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", 0.7930349462877271),
    ("salt", "f" * 32, "f" * 16, 0.2800096784876672),
    ("", "00000000000000000000000000000001", "8000000000000000", 0.605830790246874),
]


@pytest.mark.parametrize(("salt", "trace_id", "span_id", "u"), VECTORS)
def test_sql_and_python_give_the_number_of_the_vector(salt: str, trace_id: str, span_id: str, u: float) -> None:
    """To the last bit: a unit near its probability must not be selected by one and refused by the other."""
    unit = "SELECT $trace::UUID AS trace_id, ('0x' || $span)::UBIGINT AS span_id"
    query = f"SELECT {U_SQL} FROM ({unit}) m"
    (found,) = duckdb.execute(query, {"salt": salt, "trace": trace_id, "span": span_id}).fetchall()[0]
    assert found == sampling_number(salt, trace_id, span_id) == u
