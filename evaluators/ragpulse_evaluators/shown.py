"""How a notebook shows cases and results: tables of escaped texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

SHOWN_CHARACTERS = 300


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as HTML; the texts of answers are hostile, so all of them are escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def card(model: Any, names: Iterable[str]) -> str:
    """Return the fields of a model that have a value, one a row."""
    return table(("field", "value"), ((name, value) for name in names if (value := getattr(model, name)) is not None))


def _cell(value: Any) -> str:
    text = "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")
