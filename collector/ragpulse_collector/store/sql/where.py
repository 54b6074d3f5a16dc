"""Checks users' conditions over the columns of `traces`, for rules, filters, replays and pages.

The check runs in an empty database of its own, without files or network. A rule's condition runs in the writer's
transaction, so nothing is allowed that takes long or makes large values.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import duckdb

from ragpulse_collector.refusals import Invalid, nearest
from ragpulse_collector.store.connection import first_line, literal
from ragpulse_collector.store.protocol import Refused
from ragpulse_collector.store.schema import column_types
from ragpulse_collector.store.sql.guard import CONDITION_FUNCTIONS, CONDITION_TYPES, Tree, nodes, parsed, path_of
from ragpulse_collector.store.views import FACT_COLUMNS

WHERE_COLUMNS = ("trace_id", *FACT_COLUMNS)
"""The columns that a condition may name."""

_TYPES = column_types("trace_facts") | {"trace_id": "VARCHAR"}
_CLASSES = frozenset({
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR",
    "TYPE",
})  # fmt: skip
_TYPE_PATHS = frozenset((name,) for name in CONDITION_TYPES)
_LIKE = frozenset({"~~", "!~~", "like_escape", "not_like_escape"})
_BACKTRACKING = frozenset({"~~*", "!~~*", "~~~", "ilike_escape", "not_ilike_escape"})
_MAX_WILDCARDS = 2
_MAX_TEXT = 10_000
_UNKNOWN = re.compile(r'Referenced column "([^"]+)" not found')
_SELECT = "SELECT 1 FROM traces WHERE "
_CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "64MB", "enable_external_access": False}
_OTHER_CLAUSES = ("group_expressions", "having", "qualify", "modifiers", "sample")


@lru_cache(maxsize=512)
def condition(text: str, scores: tuple[str, ...] = ()) -> str:
    """Return the condition in parentheses, safe to put into a query; raises Invalid that says what is wrong.

    One SQL boolean over the columns of `traces`: no subqueries, parameters, aggregates or window functions. DuckDB
    reads `metadata.tenant` as the key of the map; `tag = 'beta'` and `tag IN (...)` search in `tags`. With `scores` the
    condition may name those as fields of a column `score`. Labels are fields of a column `label`.
    """
    if len(text) > _MAX_TEXT:
        raise Invalid(f"where: longer than {_MAX_TEXT} characters")
    connection = duckdb.connect(config=_CONFIG)
    try:
        columns = [f"{name} {_TYPES[name]}" for name in WHERE_COLUMNS]
        for column, kind, names in (("score", "DOUBLE", scores), ("label", "VARCHAR", members_in(text, "label"))):
            if names:
                columns.append(f"{column} STRUCT({', '.join(f'{identifier(name)} {kind}' for name in names)})")
        connection.execute(f"CREATE TABLE traces ({', '.join(columns)})")
        return _checked(connection, text)
    except Refused as error:
        raise Invalid(f"where {text!r}: {error}") from error
    except duckdb.Error as error:
        raise Invalid(f"where {text!r}: {_reason(error)}{_hint(str(error))}") from error
    finally:
        connection.close()


@lru_cache(maxsize=512)
def members_in(text: str, of: str) -> tuple[str, ...]:
    """Return the evaluators that a condition names as `score.NAME`, or `label.NAME`, in order; none for invalid SQL."""
    connection = duckdb.connect(config=_CONFIG)
    try:
        tree = parsed(connection, f"SELECT 1 WHERE (\n{text}\n)")
    except Refused:
        return ()
    finally:
        connection.close()
    columns = [[str(part) for part in node.get("column_names") or ()] for node in nodes(tree)]
    return tuple(sorted({column[1] for column in columns if len(column) == 2 and column[0].lower() == of}))


def identifier(name: str) -> str:
    """Return the name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def holds(condition: str) -> str:
    """Return SQL that is true where the condition is, and false where it fails on a row (by a cast, for example)."""
    return f"coalesce(TRY(CAST({condition} AS BOOLEAN)), false)"


def _checked(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    _checked_tree(connection, f"{_SELECT}{text}")  # without parentheses: `true) OR (true` is no condition
    # The line breaks keep a comment in the user's text from swallowing the closing parenthesis.
    wrapped = f"(\n{text}\n)"
    tree = _checked_tree(connection, f"{_SELECT}{wrapped}")
    if _replace_tags(connection, tree):
        sql = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()[0][0]
        wrapped = f"({sql.removeprefix(_SELECT)})"
    kind = connection.execute(f"DESCRIBE SELECT {wrapped} AS holds FROM traces").fetchall()[0][1]
    if kind != "BOOLEAN":
        raise Refused(f"true or false is expected, but this is {kind}")
    connection.execute(f"SELECT count(*) FROM traces WHERE {holds(wrapped)}").fetchall()
    return wrapped


def _replace_tags(connection: duckdb.DuckDBPyConnection, tree: Tree) -> bool:
    """Replace comparisons of `tag` with constant texts by searches in `tags`; returns whether there were any."""
    searches = [(node, search) for node in nodes(tree) if (search := _tag_search(node))]
    for node, search in searches:
        node.clear()
        node.update(parsed(connection, f"{_SELECT}{search}")["statements"][0]["node"]["where_clause"])
    return bool(searches)


def _tag_search(node: Tree) -> str | None:
    """Return the search that replaces `tag = 'a'`, `tag <> 'a'` or `tag IN ('a', 'b')`."""
    if node.get("type") == "COMPARE_IN":
        tag, *values = node["children"]
    elif node.get("type") in ("COMPARE_EQUAL", "COMPARE_NOTEQUAL"):
        tag, *values = sorted((node["left"], node["right"]), key=_is_constant)
    else:
        return None
    texts = [_text(value) for value in values]
    if [part.lower() for part in tag.get("column_names") or ()][-1:] != ["tag"] or None in texts:
        return None
    has = " OR ".join(f"list_contains(tags, {literal(text)})" for text in texts)
    return f"{'NOT ' if node['type'] == 'COMPARE_NOTEQUAL' else ''}coalesce({has}, false)"


def _is_constant(node: Tree) -> bool:
    return node.get("class") == "CONSTANT"


def _reason(error: duckdb.Error) -> str:
    unknown = _UNKNOWN.search(str(error))
    return f"there is no column {unknown[1]!r}" if unknown else first_line(error)


def _hint(error: str) -> str:
    if '"tag"' in error:
        return "; write tag = 'beta', tag IN ('a', 'b'), or a condition over the list `tags`"
    if "map_extract" in error:
        return '; quote a key that holds dots: metadata."a.b"'
    unknown, candidates = _UNKNOWN.search(error), re.search(r"Candidate bindings: (.+)", error)
    return nearest(unknown[1], re.findall(r'"(\w+)"', candidates[1])) if unknown and candidates else ""


def _checked_tree(connection: duckdb.DuckDBPyConnection, query: str) -> Tree:
    tree = parsed(connection, query)
    node = tree["statements"][0]["node"]
    clause = node.get("where_clause")
    is_more = len(tree["statements"]) != 1 or node.get("type") != "SELECT_NODE" or clause is None
    if is_more or any(node.get(key) for key in _OTHER_CLAUSES):
        raise Refused("one boolean expression over the columns of traces is expected")
    for part in nodes(clause):
        _check_part(part)
    return tree


def _check_part(part: Tree) -> None:
    kind = part.get("class")
    if kind is None:
        return
    if kind in ("SUBQUERY", "PARAMETER", "WINDOW", "LAMBDA"):
        raise Refused("no subqueries, parameters, lambdas or window functions")
    if kind not in _CLASSES:
        raise Refused(f"{part.get('type')} is not for conditions")
    if kind == "TYPE" and path_of(part, "type_name")[-1:] not in _TYPE_PATHS:
        raise Refused(f"the type {part.get('type_name')} is not for conditions")
    if kind == "CAST" and "cast_type" in part and str(part["cast_type"].get("id")).lower() not in CONDITION_TYPES:
        raise Refused(f"the type {part['cast_type'].get('id')} is not for conditions")
    if part.get("type") == "ARRAY_CONSTRUCTOR":
        raise Refused("lists are not for conditions; IN takes several values")
    if kind == "FUNCTION":
        _check_function(part)


def _check_function(part: Tree) -> None:
    name = (path_of(part, "function_name") or ("",))[-1]
    if name not in CONDITION_FUNCTIONS:
        raise Refused(f"the function {name} is not for conditions")
    if name in _LIKE | _BACKTRACKING and not _is_quick(name, part):
        raise Refused("a pattern is a constant with at most two wildcards that match any length")


def _is_quick(name: str, like: Tree) -> bool:
    """Whether a pattern is matched in linear time: DuckDB backtracks for each further wildcard in a pattern with `_`.

    Patterns of LIKE without `_` are matched part by part.
    """
    pattern = _constant(like)
    if pattern is None:
        return False
    parts_only = name in ("~~", "!~~") and "_" not in pattern
    return parts_only or pattern.count("%") + pattern.count("*") <= _MAX_WILDCARDS


def _constant(like: Tree) -> str | None:
    """Return the pattern of a LIKE if it is a constant text."""
    arguments = like.get("arguments") or like.get("children") or []
    if len(arguments) < 2:
        return None
    return _text(arguments[1].get("expression", arguments[1]))


def _text(constant: Tree) -> str | None:
    """Return the value of a constant text, None for everything else."""
    if constant.get("class") != "CONSTANT":
        return None
    value = (constant.get("literal") or {}).get("text", (constant.get("value") or {}).get("value"))
    return value if isinstance(value, str) else None
