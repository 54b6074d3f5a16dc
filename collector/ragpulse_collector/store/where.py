"""A condition that a user wrote over the columns of `traces`: checked before anything relies on it.

The one check for rules, filters, replays and pages. It runs in an empty database of its own, without files or network.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.connection import first_line
from ragpulse_collector.store.guard import nodes
from ragpulse_collector.store.views import FACT_COLUMNS

__all__ = ["WHERE_COLUMNS", "condition", "holds", "quoted", "scores_in"]

WHERE_COLUMNS = ("trace_id", *FACT_COLUMNS)
"""What a condition may name."""

_TYPES = {
    "start_time": "TIMESTAMP", "latency_ms": "DOUBLE", "ttft_ms": "DOUBLE", "input_tokens": "BIGINT",
    "output_tokens": "BIGINT", "cached_tokens": "BIGINT", "cost_usd": "DOUBLE", "error": "BOOLEAN",
    "top_score": "DOUBLE", "n_spans": "INTEGER", "n_units": "INTEGER", "upstream_pi": "DOUBLE",
    "late_spans": "INTEGER", "feedback": "DOUBLE",
}  # fmt: skip
_GROWING = frozenset({
    "array_resize", "bitstring", "format", "generate_series", "list_resize", "lpad", "printf", "range", "repeat",
    "rpad",
})  # fmt: skip
"""Functions whose result may be of any size, however small what they are given."""
_OTHER_CLAUSES = ("group_expressions", "having", "qualify", "modifiers", "sample")


@lru_cache(maxsize=512)
def condition(text: str, scores: tuple[str, ...] = ()) -> str:
    """Return the condition in parentheses, safe to put into a query; raises ValueError that says what is wrong.

    One SQL boolean over the columns of `traces`: no subqueries, parameters, aggregates or window functions. With
    `scores` it may name those, too, as fields of a column `score`.
    """
    connection = duckdb.connect()
    try:
        columns = [f"{name} {_TYPES.get(name, 'VARCHAR')}" for name in WHERE_COLUMNS]
        if scores:
            columns.append(f"score STRUCT({', '.join(f'{name} DOUBLE' for name in map(quoted, scores))})")
        connection.execute(f"CREATE TABLE traces ({', '.join(columns)})")
        connection.execute("SET enable_external_access = false")
        return _checked(connection, text)
    except duckdb.Error as error:
        raise ValueError(f"where {text!r}: {first_line(error)}") from error
    finally:
        connection.close()


@lru_cache(maxsize=512)
def scores_in(text: str) -> tuple[str, ...]:
    """Return the evaluators whose scores a condition names as `score.NAME`, by name; none for what is no SQL."""
    connection = duckdb.connect()
    try:
        tree = _tree(connection, f"SELECT 1 WHERE (\n{text}\n)")
    finally:
        connection.close()
    columns = [[str(part) for part in one.get("column_names") or ()] for one in nodes(tree)]
    return tuple(sorted({column[1] for column in columns if len(column) == 2 and column[0].lower() == "score"}))


def quoted(name: str) -> str:
    """Return the name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _tree(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0]
    return dict(json.loads(row[0]))


def holds(condition: str) -> str:
    """Return SQL that is true where the condition is; where it fails on a row (a cast, say) it does not hold."""
    return f"coalesce(TRY(CAST({condition} AS BOOLEAN)), false)"


def _checked(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    # The line breaks keep a comment in the user's text from swallowing the closing parenthesis.
    wrapped = f"(\n{text}\n)"
    _check_tree(connection, text, f"SELECT 1 FROM traces WHERE {wrapped}")
    kind = connection.execute(f"DESCRIBE SELECT {wrapped} AS holds FROM traces").fetchall()[0][1]
    if kind != "BOOLEAN":
        raise ValueError(f"where {text!r}: true or false is expected, but this is {kind}")
    connection.execute(f"SELECT count(*) FROM traces WHERE {holds(wrapped)}").fetchall()
    return wrapped


def _check_tree(connection: duckdb.DuckDBPyConnection, text: str, query: str) -> None:
    tree = _tree(connection, query)
    if tree.get("error"):
        raise ValueError(f"where {text!r}: {tree.get('error_message', 'is not SQL')}")
    node = tree["statements"][0]["node"]
    clause = node.get("where_clause")
    more = len(tree["statements"]) != 1 or node.get("type") != "SELECT_NODE" or clause is None
    if more or any(node.get(key) for key in _OTHER_CLAUSES):
        raise ValueError(f"where {text!r}: one boolean expression over the columns of traces is expected")
    parts = list(nodes(clause))
    if {part.get("class") for part in parts} & {"SUBQUERY", "PARAMETER", "WINDOW", "LAMBDA"}:
        raise ValueError(f"where {text!r}: no subqueries, parameters, lambdas or window functions")
    growing = {str(part.get("function_name")) for part in parts} & _GROWING
    if growing:
        raise ValueError(f"where {text!r}: the function {min(growing)} is not for conditions")
