"""Evaluators that ask an LLM: each is a prompt folder, a reply shape and a formula."""

from ragpulse_evaluators.judged import (
    answer,
    conversation,
    criteria,
    custom_yaml,
    faithfulness,
    geval,
    grouse,
    pairwise,
    retrieval,
)
from ragpulse_evaluators.registry import Entry

__all__ = ("ENTRIES",)

ENTRIES: tuple[Entry, ...] = (
    *faithfulness.ENTRIES,
    *answer.ENTRIES,
    *pairwise.ENTRIES,
    *retrieval.ENTRIES,
    *criteria.ENTRIES,
    *geval.ENTRIES,
    *grouse.ENTRIES,
    *conversation.ENTRIES,
    *custom_yaml.ENTRIES,
)
