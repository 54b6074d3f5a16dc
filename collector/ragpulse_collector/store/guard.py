"""SQL that a user wrote: exactly one read-only SELECT, in its own time, rows and bytes; two at a time.

Three fences, each enough alone: the statement must parse to one SELECT, it runs in a READ ONLY transaction, and the
instance has no access to files, network or extensions.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ragpulse_collector.store import engine as duckdb
from ragpulse_collector.store.ceiling import Ceiling
from ragpulse_collector.store.connection import ANEW, Deadline, given_up
from ragpulse_collector.store.protocol import Busy, Refused, Rows

_MAX_BYTES = 64 * 2**20
_FIRST_CHUNK = 16
"""Rows fetched before their size is known; then as many as a megabyte holds."""
_AT_A_TIME = 2


Check = Callable[[duckdb.DuckDBPyConnection, str], None]


class UserSql:
    """Runs users' queries on cursors of their own."""

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection], *, check: Check | None = None) -> None:
        self._cursor = cursor
        self._check = check
        self._slots, self._ceiling = threading.BoundedSemaphore(_AT_A_TIME), Ceiling()

    def run(self, sql: str, parameters: Sequence[Any], *, timeout_s: float, max_rows: int) -> Rows:
        """Answer one SELECT; raises Refused, TimeoutError, Busy (two queries run already)."""
        if not self._slots.acquire(timeout=timeout_s):
            raise Busy("other queries are running")
        try:
            with contextlib.closing(self._cursor()) as cursor:
                if self._check is not None:
                    self._check(cursor, sql)
                with self._ceiling:
                    return _answer(cursor, sql, parameters, timeout_s=timeout_s, max_rows=max_rows)
        except duckdb.Error as error:
            if given_up(error):
                raise Busy(ANEW) from error
            raise
        finally:
            self._slots.release()


def _answer(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any], *, timeout_s: float, max_rows: int
) -> Rows:
    statement = _one_select(cursor, sql)
    with Deadline(cursor, timeout_s) as deadline:
        try:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return _read(cursor, _printable(cursor, statement, parameters), parameters, max_rows)
        except duckdb.InterruptException as error:
            if deadline.passed:
                raise TimeoutError(f"the query took longer than {timeout_s:g} s") from error
            raise Refused("the query was interrupted") from error
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise Refused("the query needs more memory than is allowed: narrow it, e.g. by start_time") from error
        except duckdb.Error as error:
            if given_up(error):
                raise
            raise Refused(str(error)) from error


def _one_select(cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        statements = cursor.extract_statements(sql)
    except duckdb.Error as error:
        raise Refused(str(error)) from error
    if len(statements) != 1:
        raise Refused(f"exactly one SELECT is allowed, got {len(statements)} statements")
    # duckdb 1.5 parses some PRAGMAs to a SELECT.
    if statements[0].type != duckdb.StatementType.SELECT or sql.lstrip().lower().startswith("pragma"):
        raise Refused(f"only SELECT is allowed, got {statements[0].type.name}")
    return str(statements[0].query)


_TABLE_FUNCTIONS = frozenset({"generate_series", "quality", "range", "trace", "unnest"})


def refuse_files(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse SQL that names anything but tables, views and our macros, where the engine could open files itself."""
    text = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    tree = json.loads(text)
    if tree.get("error"):
        raise Refused(str(tree.get("error_message", "only SELECT is allowed")))
    for node in nodes(tree):
        name = str(node.get("table_name", ""))
        if node.get("type") == "BASE_TABLE" and not name.replace("_", "").isalnum():
            raise Refused(f"{name!r} is not a table")
        function = node.get("function") or {}
        if node.get("type") == "TABLE_FUNCTION" and function.get("function_name") not in _TABLE_FUNCTIONS:
            raise Refused(f"the table function {function.get('function_name')} is not allowed")


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Return every object of a serialized statement, itself first."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def _printable(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> str:
    """Show instants with a zone as UTC without one: Python would need pytz to fetch them."""
    described = cursor.execute(f"DESCRIBE {sql}", parameters or None).fetchall()
    zoned = [row[0] for row in described if row[1] == "TIMESTAMP WITH TIME ZONE"]
    if not zoned:
        return sql
    replaced = ", ".join(f'"{name}"::TIMESTAMP AS "{name}"' for name in (n.replace('"', '""') for n in zoned))
    return f"SELECT * REPLACE ({replaced}) FROM ({sql.rstrip().rstrip(';')})"


def _read(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any], max_rows: int) -> Rows:
    result = cursor.execute(sql, parameters or None)
    names = tuple(column[0] for column in result.description)
    rows: list[tuple[Any, ...]] = []
    size, step = 0, _FIRST_CHUNK
    while len(rows) <= max_rows and size <= _MAX_BYTES:
        chunk = result.fetchmany(min(step, max_rows + 1 - len(rows)))
        if not chunk:
            return Rows(names, rows)
        rows += chunk
        size += sum(len(value) for row in chunk for value in row if isinstance(value, (str, bytes)))
        step = max(1, min(2_000, 2**20 * len(rows) // (size + len(rows))))
    return Rows(names, rows[:max_rows], truncated=True)
