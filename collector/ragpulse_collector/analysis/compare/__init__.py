"""Compares evaluator versions, runs, prompts, models and variants; paired where the requests are the same."""

from ragpulse_collector.analysis.compare.effects import more_needed
from ragpulse_collector.analysis.compare.verdicts import compare

__all__ = ["compare", "more_needed"]
