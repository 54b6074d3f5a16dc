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

__all__ = ("ENTRIES",)

_FAMILIES = (faithfulness, answer, pairwise, retrieval, criteria, geval, grouse, conversation, custom_yaml)
ENTRIES = tuple(entry for family in _FAMILIES for entry in family.ENTRIES)
