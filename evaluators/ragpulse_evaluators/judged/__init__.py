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

_FAMILIES = (faithfulness, answer, pairwise, retrieval, criteria, geval, grouse, conversation, custom_yaml)
ENTRIES: tuple[Entry, ...] = tuple(entry for family in _FAMILIES for entry in family.ENTRIES)
