"""Answers users' SQL within limits of time, rows and bytes; a store whose reads all run under them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import duckdb

from ragpulse_collector.refusals import TooSlow
from ragpulse_collector.store.connection import Deadline, is_invalidated, is_short_of_memory
from ragpulse_collector.store.protocol import Parameters, Refused, Rows, Store
from ragpulse_collector.store.sql.guard import Tree, checked

MAX_BYTES = 64 * 2**20
_FIRST_CHUNK = 16
"""Rows fetched before their size is known; then as many as a megabyte holds."""
_OUT_OF_MEMORY = "the query needs more memory than is allowed: narrow it, e.g. by start_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query with its limits."""

    sql: str
    parameters: Parameters = ()
    timeout_s: float = 30.0
    max_rows: int | None = None
    ours: bool = False
    """Whether the statement is the collector's own, with at most a checked `where`: it may read any table."""


def answer(cursor: duckdb.DuckDBPyConnection, question: Question, catalog: str) -> Rows:
    """Answer one SELECT; raises Refused or TooSlow, and duckdb.Error if the store is invalidated."""
    sql = question.sql
    with Deadline(cursor, question.timeout_s) as deadline:
        try:
            tree = None if question.ours else checked(cursor, sql, catalog)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            if tree is not None:
                sql = _printable(cursor, sql, tree, question.parameters)
            return _read(cursor, sql, question)
        except duckdb.InterruptException as error:
            if deadline.passed:
                raise TooSlow(f"the query took longer than {question.timeout_s:g} s") from error
            raise Refused("the query was interrupted") from error
        except (duckdb.Error, MemoryError) as error:
            if is_short_of_memory(error):
                raise Refused(_OUT_OF_MEMORY) from error
            if isinstance(error, duckdb.Error) and is_invalidated(error):
                raise
            raise Refused(str(error)) from error


_ZONED = "TIMESTAMP WITH TIME ZONE"


def _printable(cursor: duckdb.DuckDBPyConnection, sql: str, tree: Tree, parameters: Parameters) -> str:
    """Return the statement with instants in UTC without a zone: Python needs pytz to fetch those with a zone."""
    sql = _without_semicolons(sql)
    if (tree.get("from_table") or {}).get("type") == "SHOW_REF":
        return sql
    described = cursor.execute(f"DESCRIBE {sql}", parameters or None).fetchall()
    zoned = [(row[0].replace('"', '""'), row[1].replace(_ZONED, "TIMESTAMP")) for row in described if _ZONED in row[1]]
    if not zoned:
        return sql
    replaced = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in zoned)
    return f"SELECT * REPLACE ({replaced}) FROM (\n{sql}\n)"


def _without_semicolons(sql: str) -> str:
    """Return one statement without the semicolons around it, so that it can stand inside another."""
    text = bytearray(sql.encode())
    for start, _ in duckdb.tokenize(sql):
        if text[start] == ord(";"):
            text[start] = ord(" ")
    return text.decode()


def _read(cursor: duckdb.DuckDBPyConnection, sql: str, question: Question) -> Rows:
    result = cursor.execute(sql, question.parameters or None)
    names = tuple(column[0] for column in result.description)
    if question.max_rows is None:
        return Rows(names, result.fetchall())
    types = tuple(str(column[1]) for column in result.description)
    return replace(_limited(result, names, question.max_rows), types=types)


def _limited(result: duckdb.DuckDBPyConnection, names: Sequence[str], max_rows: int) -> Rows:
    rows: list[tuple[Any, ...]] = []
    size, step = 0, _FIRST_CHUNK
    while len(rows) <= max_rows and size <= MAX_BYTES:
        chunk = result.fetchmany(min(step, max_rows + 1 - len(rows)))
        if not chunk:
            return Rows(tuple(names), rows)
        rows += chunk
        size += sum(len(value) for row in chunk for value in row if isinstance(value, (str, bytes)))
        step = max(1, min(2_000, 2**20 * len(rows) // (size + len(rows))))
    return Rows(tuple(names), rows[:max_rows], truncated=True)


_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Limited:
    """A store whose reads run in a reader process, for queries with a user's `where`."""

    store: Store
    ask: Callable[[Question], Rows]

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query of the collector's; raises Refused, TooSlow or Busy."""
        limit = _TIMEOUT_S if timeout_s is None else min(timeout_s, _TIMEOUT_S)
        return self.ask(Question(sql=sql, parameters=parameters, timeout_s=limit, ours=True))

    def limited(self) -> Store:
        """Return itself."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
