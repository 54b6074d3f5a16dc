"""Many cases or many metrics as one number: labels, efficiency, composites, summaries, tournaments."""

from __future__ import annotations

from ragpulse_evaluators.aggregate import composite, sets
from ragpulse_evaluators.aggregate.reports import Game, Standings, Summary, play, summarize, tournament

__all__ = ("ENTRIES", "Game", "Standings", "Summary", "play", "summarize", "tournament")

ENTRIES = (*sets.ENTRIES, *composite.ENTRIES)
