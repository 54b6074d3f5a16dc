"""Does the answer keep a form: JSON, schema, regular expression."""

from __future__ import annotations

from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.structure import documents, patterns

__all__ = ("ENTRIES",)

ENTRIES: tuple[Entry, ...] = (*documents.ENTRIES, *patterns.ENTRIES)
