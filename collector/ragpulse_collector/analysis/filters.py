"""The filters that lists, charts and reports share, as SQL over the columns of `traces`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpulse_collector.store.queries.filters import Filter, holds_words
from ragpulse_collector.store.where import condition, holds

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
    "retriever",
    "error",
)
"""Columns of `traces` that can be filtered by their own parameter and grouped by."""


def filter_of(params: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> Filter:
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
        found, named = holds_words(str(params["q"]))
        parts.append(found)
        values |= named
    if params.get("where"):
        parts.append(holds(condition(str(params["where"]))))
    return Filter(" AND ".join(parts) or "true", values)


def _truth(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"error must be true or false, not {value!r}")
    return text in ("true", "1")


def dimensions(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Read `group_by` (one, several, or comma-separated); raises ValueError with the possible ones."""
    given = params.get("group_by") or ()
    names = given.split(",") if isinstance(given, str) else list(given)
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if name not in DIMENSIONS:
            raise ValueError(f"cannot group by {name!r}; possible: {', '.join(DIMENSIONS)}")
    return tuple(dict.fromkeys(names))
