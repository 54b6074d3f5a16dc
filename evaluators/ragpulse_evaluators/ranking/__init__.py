"""Was the right thing retrieved: ranking measures over ids, recall of reference passages over texts."""

from __future__ import annotations

from ragpulse_evaluators.ranking.metrics import ENTRIES

__all__ = ("ENTRIES",)
