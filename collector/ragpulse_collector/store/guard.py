"""What users' SQL may be: one SELECT over the views and tables of the store, with functions that only compute.

DuckDB parses the statement; this module walks the parsed tree. Every table reference and every function must be on a
list of allowed names, and every node must be of a known type. Anything else is refused before it is bound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from ragpulse_collector.store.functions import FUNCTIONS, TABLE_FUNCTIONS
from ragpulse_collector.store.protocol import Refused
from ragpulse_collector.store.schema import TABLES
from ragpulse_collector.store.views import VIEWS

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_PLACES = frozenset({
    "BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION",
})  # fmt: skip
_PARTS = frozenset({
    "DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER", "ORDER_DEFAULT",
    "ASCENDING", "DESCENDING",
})  # fmt: skip
_EXPRESSIONS = frozenset({
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
    "LAMBDA_REF", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW",
})  # fmt: skip
_SHOWN = frozenset({"DESCRIBE", "SUMMARY"})
_CTE_NAME = re.compile(r"\w[\w ]*\Z")
_SYSTEM = ("__", "duckdb_", "information_schema", "pg_", "pragma_", "sqlite_")
"""How names of the engine's own views begin. No CTE may be called so, whatever its scope."""
_MAX_TEXT = 1_000_000

Tree = dict[str, Any]


def checked(cursor: duckdb.DuckDBPyConnection, sql: str, catalog: str) -> Tree:
    """Return the parsed statement; raises Refused where it is anything but one SELECT over `catalog`."""
    tree = parsed(cursor, sql)
    statements = tree["statements"]
    if len(statements) != 1:
        raise Refused(f"exactly one SELECT is allowed, got {len(statements)} statements")
    _Walk(catalog).statement(statements[0])
    return dict(statements[0]["node"])


def parsed(cursor: duckdb.DuckDBPyConnection, sql: str) -> Tree:
    """Parse with DuckDB's own parser; raises Refused with the reason."""
    if len(sql) > _MAX_TEXT:
        raise Refused(f"the statement is longer than {_MAX_TEXT} characters")
    text = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    try:
        tree = dict(json.loads(text))
    except RecursionError as error:
        raise Refused("the statement is nested too deeply") from error
    if tree.get("error"):
        reason = str(tree.get("error_message", ""))
        only_select = tree.get("error_type") == "not implemented" and "SELECT" in reason
        raise Refused("only SELECT is allowed" if only_select else f"Parser Error: {reason}")
    return tree


def nodes(node: Any) -> Iterator[Tree]:
    """Return every object of a serialized statement."""
    left = [node]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def path_of(node: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """Return the qualified name of a reference, in lower case: by `qualified_name`, else by the fields `names`."""
    path = (node.get("qualified_name") or {}).get("path")
    parts = path if path is not None else [node.get(name) for name in names]
    return tuple(str(part).lower() for part in parts if part)


class _Walk:
    """Walks one statement; the names of CTEs are known where they are in scope."""

    def __init__(self, catalog: str) -> None:
        here = {(): VIEWS, ("main",): VIEWS, ("raw",): TABLES}
        ours = catalog.lower()
        self._tables = {
            (*front, *schema, name) for schema, names in here.items() for front in ((), (ours,)) for name in names
        }

    def statement(self, statement: Tree) -> None:
        """Check every node; raises Refused."""
        if statement["node"].get("type") not in _NODES:
            raise Refused("only SELECT is allowed")
        # A stack of its own: a long sum is nested deeper than Python calls may be.
        left: list[tuple[Any, frozenset[str]]] = [(statement, frozenset())]
        while left:
            node, ctes = left.pop()
            if isinstance(node, dict):
                left += self._below(node, ctes)
            elif isinstance(node, list):
                left += [(child, ctes) for child in node]

    def _below(self, node: Tree, ctes: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
        """Check a node; yields its children with the names of the CTEs that each sees."""
        for entry in (node.get("cte_map") or {}).get("map") or ():
            yield entry["value"], ctes
            ctes |= {_cte_name(entry["key"])}
        self._check(node, ctes)
        if node.get("class") == "CONSTANT":
            return
        for key, child in node.items():
            itself = key == "right" and node.get("type") == "RECURSIVE_CTE_NODE"
            if key != "cte_map":
                yield child, ctes | {_cte_name(node.get("cte_name"))} if itself else ctes

    def _check(self, node: Tree, ctes: frozenset[str]) -> None:
        kind, expression = node.get("type"), node.get("class")
        if expression is not None:
            self._expression(node, str(expression))
        elif kind == "BASE_TABLE":
            self._table(node, ctes)
        elif kind == "TABLE_FUNCTION":
            self._table_function(node)
        elif kind == "SHOW_REF":
            self._shown(node)
        elif isinstance(kind, str) and not _known(kind):
            raise Refused(f"{kind} is not allowed")

    def _expression(self, node: Tree, kind: str) -> None:
        if kind not in _EXPRESSIONS:
            raise Refused(f"{node.get('type')} is not allowed")
        if kind in ("FUNCTION", "WINDOW"):
            name = path_of(node, "function_name")[-1:] or ("",)
            if name[0] not in FUNCTIONS and str(node.get("function_name")) not in TABLE_FUNCTIONS:
                raise Refused(f"the function {name[0]} is not allowed")

    def _table(self, node: Tree, ctes: frozenset[str]) -> None:
        path = path_of(node, "catalog_name", "schema_name", "table_name")
        if node.get("at_clause"):
            raise Refused("AT is not allowed")
        if path not in self._tables and not (len(path) == 1 and path[0] in ctes):
            raise Refused(f"{'.'.join(path)!r} is not a table or view of the store")

    def _table_function(self, node: Tree) -> None:
        function = node.get("function") or {}
        path = path_of(function, "catalog", "schema", "function_name")
        if len(path) != 1 or path[0] not in TABLE_FUNCTIONS:
            raise Refused(f"the table function {'.'.join(path)} is not allowed")

    def _shown(self, node: Tree) -> None:
        if not node.get("query") or node.get("show_type") not in _SHOWN:
            raise Refused("only DESCRIBE and SUMMARIZE of a query or a view are allowed")


def _cte_name(name: Any) -> str:
    lower = str(name).lower()
    if not _CTE_NAME.match(lower) or lower.startswith(_SYSTEM):
        raise Refused(f"{name!r} is not a name for a CTE")
    return lower


def _known(kind: str) -> bool:
    return kind in _NODES or kind in _PLACES or kind in _PARTS or kind.endswith("_TYPE_INFO")
