"""Answers against references without a judge: matching, overlap, distances, embeddings, perplexity."""

from __future__ import annotations

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.text import distances, matching, meaning, perplexity, rouge, translation

__all__ = ("ENTRIES",)

ENTRIES: tuple[Entry, ...] = (
    *matching.ENTRIES,
    *rouge.ENTRIES,
    *translation.ENTRIES,
    *distances.ENTRIES,
    *meaning.ENTRIES,
    *perplexity.ENTRIES,
)
