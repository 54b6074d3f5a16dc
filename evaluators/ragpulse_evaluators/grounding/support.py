"""Groundedness of a response, sentence by sentence: text in, `SentenceEvidence` out.

Last stage of the offline checks: sentences → evidence → findings → score, with the place of the evidence so that a
page can tie each sentence to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_evaluators.grounding.evidence import EvidenceIndex
from ragpulse_evaluators.grounding.features import Findings, measure
from ragpulse_evaluators.grounding.marks import blank_marks
from ragpulse_evaluators.grounding.model import sentence_score
from ragpulse_evaluators.grounding.text import Sentence, split_sentences, tokenize

__all__ = ["MAX_RESPONSE_CHARS", "SentenceEvidence", "combine", "explain_groundedness", "judge_sentence"]

MAX_RESPONSE_CHARS = 40_000
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceEvidence:
    """One response sentence and the best evidence for it; offsets count characters (Python string indices)."""

    text: str
    start: int
    """Offset of the sentence in the response."""
    end: int
    score: float
    """0 made up .. 1 said by the contexts."""
    supported: bool
    claim: bool
    """False for a sentence without content words ("Yes."): it neither helps nor harms the score."""
    rank: int | None
    """Rank (from 1) of the context with the best evidence; None where no context shares a word with the sentence."""
    evidence: str
    """The best context sentence."""
    evidence_start: int | None
    """Offset of the evidence in that context's text."""
    evidence_end: int | None
    reasons: tuple[str, ...]
    """Why it is not supported, or what is doubtful; empty where nothing was found."""
    tokens: int
    """Length in tokens: the weight of the sentence in the score of the response."""


def explain_groundedness(response: str, contexts: Sequence[str]) -> list[SentenceEvidence]:
    """Tie every sentence of a response to its best evidence in the contexts.

    Only the first 40,000 characters of the response and 400,000 of the contexts are read, which bounds the time.
    """
    index = EvidenceIndex(contexts)
    response = response[:MAX_RESPONSE_CHARS]
    read = blank_marks(response)
    return [
        judge_sentence(sentence, index, read=read[sentence.start : sentence.end])
        for sentence in split_sentences(response)
    ]


def judge_sentence(sentence: Sentence, index: EvidenceIndex, *, read: str | None = None) -> SentenceEvidence:
    """Score one sentence against an index of contexts; `read` is its text without citation marks."""
    tokens = tokenize(sentence.text if read is None else read)
    support = index.support(tokens)
    found = measure(tokens, sentence.text, support, index)
    score = sentence_score(found.values)
    best = support[0] if support else None
    claim = not found.values["no_content"]
    return SentenceEvidence(
        text=sentence.text,
        start=sentence.start,
        end=sentence.end,
        score=round(score, 4),
        supported=score >= THRESHOLD or not claim,
        claim=claim,
        rank=best.context + 1 if best else None,
        evidence=best.sentence.text if best else "",
        evidence_start=best.sentence.start if best else None,
        evidence_end=best.sentence.end if best else None,
        reasons=_reasons(found, claim=claim, supported=score >= THRESHOLD),
        tokens=len(tokens),
    )


def _reasons(found: Findings, *, claim: bool, supported: bool) -> tuple[str, ...]:
    if not claim:
        return ()
    if found.reasons or supported:
        return tuple(found.reasons)
    return ("the words are in the contexts, but not said in this way",)


def combine(sentences: Sequence[SentenceEvidence]) -> float | None:
    """Return the score of the response: geometric mean of its claims' scores weighted by length; None without a claim.

    A geometric mean, because one made-up sentence among good ones should show (people call such an answer not
    attributable), while a plain product would punish length.
    """
    claims = [s for s in sentences if s.claim]
    weight = sum(s.tokens for s in claims)
    if not weight:
        return None
    return math.exp(sum(s.tokens * math.log(max(s.score, 1e-4)) for s in claims) / weight)
