"""Answers against references without a judge: matching, overlap, distances, embeddings, perplexity."""

from __future__ import annotations

from ragpulse_evaluators.text import language, matching, overlap, perplexity, semantic

__all__ = ("ENTRIES",)

ENTRIES = (*matching.ENTRIES, *overlap.ENTRIES, *semantic.ENTRIES, *perplexity.ENTRIES, *language.ENTRIES)
