"""Conditions over the columns of `traces`, and text search without an index.

Why there is no index: docs/decisions/0006-search-without-an-index.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Filter", "holds_words", "words"]

_MAX_WORDS = 8


@dataclass(frozen=True, slots=True)
class Filter:
    """A SQL boolean over the columns of `traces` with its parameters; `true` keeps every trace."""

    sql: str = "true"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.sql != "true"


def holds_words(text: str) -> tuple[str, dict[str, str]]:
    """Return SQL over the columns `query` and `response`, with its parameters, that is true where every word occurs.

    Words are found anywhere and in any case; words in "double quotes" stay together. Without words it is `true`.
    """
    parameters = {f"word_{number}": word for number, word in enumerate(words(text))}
    parts = [
        f"(contains(lower(query), lower(${name})) OR contains(lower(response), lower(${name})))" for name in parameters
    ]
    return " AND ".join(parts) or "true", parameters


def words(text: str) -> list[str]:
    """Split a search text into at most eight words; quoted parts stay whole."""
    found: list[str] = []
    for index, part in enumerate(text.split('"')):
        found += [part.strip()] if index % 2 else part.split()
    return [word for word in found if word][:_MAX_WORDS]
