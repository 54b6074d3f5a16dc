"""Offline checks of RAG answers: no judge, no reference, no model download, thousands of sentences a second.

response, contexts → text (sentences, tokens) → evidence (which context sentence) → checks (objections)
→ model (features and their weights) → support (score and evidence of each sentence) → the evaluators
"""

from ragpulse_evaluators.grounding import citations, groundedness, refusal
from ragpulse_evaluators.grounding.groundedness import SentenceEvidence
from ragpulse_evaluators.grounding.perturb import LabelledCase, perturb

__all__ = ("ENTRIES", "LabelledCase", "SentenceEvidence", "perturb")

ENTRIES = (
    *groundedness.ENTRIES,
    *citations.ENTRIES,
    *refusal.ENTRIES,
)
