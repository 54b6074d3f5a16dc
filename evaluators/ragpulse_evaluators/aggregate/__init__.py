"""Many cases or many metrics as one number."""

from __future__ import annotations

from ragpulse_evaluators.entry import Entry

__all__ = ("ENTRIES",)

ENTRIES: tuple[Entry, ...] = ()
