"""Was the right thing retrieved: ranking measures over ids, recall of reference passages over texts."""

from __future__ import annotations

from ragpulse_evaluators.ranking import metrics, passages
from ragpulse_evaluators.registry import Entry

__all__ = ("ENTRIES",)

ENTRIES: tuple[Entry, ...] = (*metrics.ENTRIES, *passages.ENTRIES)
