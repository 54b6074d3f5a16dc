"""Offline checks of RAG answers: no judge, no reference, no model download, thousands of sentences a second.

response, contexts → text (sentences, tokens) → evidence (which context sentence) → features (what agrees)
→ model (one weight a feature) → support (score and evidence of each sentence) → the evaluators
"""

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.grounding.citations import CitationCheck
from ragpulse_evaluators.grounding.groundedness import Groundedness
from ragpulse_evaluators.grounding.perturb import LabelledCase, perturb
from ragpulse_evaluators.grounding.refusal import Refusal
from ragpulse_evaluators.grounding.support import SentenceEvidence, explain_groundedness
from ragpulse_evaluators.grounding.utilization import ContextUtilization

__all__ = [
    "ENTRIES",
    "CitationCheck",
    "ContextUtilization",
    "Groundedness",
    "LabelledCase",
    "Refusal",
    "SentenceEvidence",
    "explain_groundedness",
    "perturb",
]

ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="groundedness",
        factory=Groundedness,
        needs=("response", "contexts"),
        scale=Scale(),
        source="this project, measured on BEGIN (Dziri et al. 2022)",
        description="Is every sentence of the response said by the contexts? Numbers, names and negations are checked.",
        example='get_evaluator("groundedness")',
    ),
    Entry(
        name="context_utilization",
        factory=ContextUtilization,
        needs=("response", "contexts"),
        scale=Scale(),
        source="this project",
        description="Share of the retrieved contexts that the response draws on.",
        example='get_evaluator("context_utilization")',
    ),
    Entry(
        name="citation_check",
        factory=CitationCheck,
        needs=("response", "contexts"),
        scale=Scale(),
        source="this project, after ALCE (Gao et al. 2023)",
        description="Share of citation marks that point to a context which says what is claimed.",
        example='get_evaluator("citation_check")',
    ),
    Entry(
        name="refusal",
        factory=Refusal,
        needs=("response",),
        scale=Scale(),
        source="this project",
        description="Did the response decline to answer? 1 = answered, 0 = refused.",
        example='get_evaluator("refusal")',
    ),
)
