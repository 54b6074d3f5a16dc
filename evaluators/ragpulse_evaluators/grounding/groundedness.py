"""`groundedness`: is every sentence of the response said by the contexts? No judge, no reference, no model download."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.grounding.evidence import MAX_CONTEXT_CHARS
from ragpulse_evaluators.grounding.lexicon import LEXICON_ID
from ragpulse_evaluators.grounding.model import BIAS, THRESHOLD, WEIGHTS
from ragpulse_evaluators.grounding.refusal import find_refusal
from ragpulse_evaluators.grounding.support import MAX_RESPONSE_CHARS, SentenceEvidence, assess
from ragpulse_evaluators.result import Outcome

__all__ = ["Groundedness", "readable_contexts", "readable_response"]

_SHOWN = 3
_TOLD = tuple(field.name for field in fields(SentenceEvidence) if field.name != "evidence")


class Groundedness(Evaluator):
    """Is every sentence of the response said by the contexts? With the best evidence and the reasons for doubt.

    Score 0..1 (passing from 0.5) of a small logistic model over wording (new words, order, runs) and hard checks
    (numbers, units, months, names, negation, opposites, exchanged words); wording counts by length, a check by its
    worst sentence. It sees surface, not meaning: a free paraphrase scores low. `parts["sentences"]` holds the fields of
    `SentenceEvidence` (offsets in place of the evidence's text). Source: this project; measured on BEGIN (Dziri et al.
    2022).
    """

    name = "groundedness"
    needs = frozenset({"response", "contexts"})
    scale = Scale()
    immediate = True

    def __init__(self, *, threshold: float = THRESHOLD) -> None:
        super().__init__(threshold=threshold, bias=BIAS, weights=WEIGHTS, lexicon=LEXICON_ID)

    def run(self, case: Case) -> Outcome:
        """Score one case; skipped for a refusal, which makes no claim."""
        response, contexts = readable_response(case), readable_contexts(case)
        if refusal := find_refusal(response):
            raise MissingField(f"a claim: the response declines to answer ({refusal!r})")
        assessment = assess(response, [c.text for c in contexts])
        sentences = assessment.sentences
        if assessment.score is None:
            raise MissingField("a claim: the response has no content words")
        return Outcome(
            score=assessment.score,
            label=_label(sentences),
            explanation=_explain(sentences) + _cut(response, contexts),
            parts={
                "supported": sum(s.supported for s in sentences if s.claim),
                "claims": sum(s.claim for s in sentences),
                "sentences": [_part(s) for s in sentences],
            },
        )


def readable_response(case: Case) -> str:
    """Return the response; raises `MissingField` where it holds no letter or digit."""
    response = case.response or ""
    if not any(c.isalnum() for c in response):
        raise MissingField("response (it holds no words)")
    return response


def readable_contexts(case: Case) -> tuple[Context, ...]:
    """Return all contexts in rank order; raises `MissingField` where none has a text."""
    contexts = case.contexts or ()
    if not any(c.text.strip() for c in contexts):
        raise MissingField("contexts (none has a text)")
    return contexts


def _part(sentence: SentenceEvidence) -> dict[str, Any]:
    """JSON without the evidence's text: the context is stored anyway, its rank and offsets find it."""
    told = {name: getattr(sentence, name) for name in _TOLD}
    return told | {"reasons": list(sentence.reasons)}


def _label(sentences: Sequence[SentenceEvidence]) -> str:
    claims = [s.supported for s in sentences if s.claim]
    return "grounded" if all(claims) else "partly" if any(claims) else "ungrounded"


def _explain(sentences: Sequence[SentenceEvidence]) -> str:
    claims = [s for s in sentences if s.claim]
    doubtful = [s for s in claims if not s.supported]
    told = f"{len(claims) - len(doubtful)} of {len(claims)} sentences supported by the contexts."
    shown = [f" “{_short(s.text)}”: {'; '.join(s.reasons)}." for s in doubtful[:_SHOWN]]
    more = f" And {len(doubtful) - _SHOWN} more." if len(doubtful) > _SHOWN else ""
    return told + "".join(shown) + more


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cut(response: str, contexts: Sequence[Context]) -> str:
    cut = len(response) > MAX_RESPONSE_CHARS or sum(len(c.text) for c in contexts) > MAX_CONTEXT_CHARS
    return " The texts were too long: only their beginning was read." if cut else ""
