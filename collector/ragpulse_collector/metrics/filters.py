"""The filters that lists, charts and reports share, as SQL over the columns of `traces`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ragpulse_collector.store import Store

__all__ = ["DIMENSIONS", "Filter", "dimensions", "filter_of"]

DIMENSIONS = (
    "service",
    "environment",
    "model",
    "prompt_name",
    "prompt_version",
    "variant",
    "session_id",
    "user_id",
    "name",
    "error",
)
"""Columns of `traces` that can be filtered by their own parameter and grouped by."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A SQL boolean over the columns of `traces` with its parameters; `true` keeps everything."""

    sql: str = "true"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.sql != "true"


def filter_of(store: Store, params: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> Filter:
    """Read the common filters (service, model, ..., error, q, where); raises ValueError that names the mistake."""
    parts: list[str] = []
    values: dict[str, Any] = {}
    for column in DIMENSIONS:
        wanted = None if column in skip else params.get(column)
        if column == "error" and wanted not in (None, ""):
            parts.append("coalesce(error, false)" if _truth(wanted) else "NOT coalesce(error, false)")
        elif wanted not in (None, "", [], ()):
            values[f"f_{column}"] = [str(one) for one in (wanted if isinstance(wanted, list | tuple) else [wanted])]
            parts.append(f"{column} IN (SELECT unnest($f_{column}::VARCHAR[]))")
    if params.get("q"):
        values["f_q"] = str(params["q"])
        parts.append("(contains(lower(query), lower($f_q)) OR contains(lower(response), lower($f_q)))")
    if params.get("where"):
        parts.append(condition(store, str(params["where"])))
    return Filter(" AND ".join(parts) or "true", values)


def _truth(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"error must be true or false, not {value!r}")
    return text in ("true", "1")


def condition(store: Store, text: str) -> str:
    """Return a user's boolean over `traces`, safe to put into a query; raises ValueError that says what is wrong."""
    # The line breaks keep a comment in the user's text from swallowing the closing parenthesis.
    wrapped = f"(\n{text}\n)"
    tree = json.loads(
        store.read("SELECT json_serialize_sql($sql)", {"sql": f"SELECT 1 FROM t WHERE {wrapped}"}).rows[0][0]
    )
    if tree.get("error"):
        raise ValueError(f"where: {tree['error_message']}")
    statements = tree["statements"]
    node = statements[0]["node"]
    if len(statements) != 1 or node["type"] != "SELECT_NODE" or node["modifiers"]:
        raise ValueError("where: one boolean expression over the columns of traces is expected")
    used = {part.get("class") for part in _parts(node["where_clause"])}
    if used & {"SUBQUERY", "PARAMETER", "WINDOW"}:
        raise ValueError("where: no subqueries, parameters or window functions")
    try:
        kind = store.read(f"DESCRIBE SELECT {wrapped} AS holds FROM traces").rows[0][1]
    except duckdb.Error as error:
        raise ValueError(f"where: {str(error).splitlines()[0]}") from error
    if kind != "BOOLEAN":
        raise ValueError(f"where: true or false is expected, but this is {kind}")
    return wrapped


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _parts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _parts(value)


def dimensions(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Read `group_by` (one, several, or comma-separated); raises ValueError with the possible ones."""
    given = params.get("group_by") or ()
    names = given.split(",") if isinstance(given, str) else list(given)
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if name not in DIMENSIONS:
            raise ValueError(f"cannot group by {name!r}; possible: {', '.join(DIMENSIONS)}")
    return tuple(dict.fromkeys(names))
