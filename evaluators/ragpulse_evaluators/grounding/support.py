"""Groundedness of a response, sentence by sentence: text in, `SentenceEvidence` out.

Last stage of the offline checks: sentences → evidence → findings → score, with the place of the evidence so that a
page can tie each sentence to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_evaluators.grounding.evidence import EvidenceIndex, index_of
from ragpulse_evaluators.grounding.features import Findings, measure, pool
from ragpulse_evaluators.grounding.marks import blank_marks
from ragpulse_evaluators.grounding.model import THRESHOLD, drawback, grounded_score
from ragpulse_evaluators.grounding.text import Sentence, split_sentences, words

__all__ = [
    "MAX_RESPONSE_CHARS",
    "MAX_SENTENCES",
    "Assessment",
    "SentenceEvidence",
    "assess",
    "explain_groundedness",
    "judge_claim",
]

MAX_RESPONSE_CHARS = 40_000
MAX_SENTENCES = 400
_DOUBTS = {
    "order": "the words are in the contexts, but not said in this way",
    "link_share": "words like 'of' or 'because' link it in a way the evidence does not",
    "new_run": "several words in a row are not in the evidence",
    "opinions": "it gives an opinion the evidence does not",
    "self_words": "it speaks of 'I' or 'you', the evidence does not",
    "opener": "it opens like an answer ('yes', 'well'), the evidence does not",
    "question": "it asks instead of saying",
}
"""What to say where no word and no fact is wrong, by the feature that lowers the score most."""


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
    """False for a sentence without content words ("Yes."): nothing to support."""
    rank: int | None
    """Rank (from 1) of the context with the best evidence; None where no context shares a word with the sentence."""
    evidence: str
    """The best context sentence."""
    evidence_start: int | None
    """Offset of the evidence in that context's text."""
    evidence_end: int | None
    reasons: tuple[str, ...]
    """Why it is not supported, or what is doubtful; empty where nothing was found."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Groundedness of a response and of its sentences; `score` is None where the response claims nothing."""

    score: float | None
    sentences: tuple[SentenceEvidence, ...]


def explain_groundedness(response: str, contexts: Sequence[str]) -> list[SentenceEvidence]:
    """Tie every sentence of a response to its best evidence in the contexts (see `assess` for limits)."""
    return list(assess(response, contexts).sentences)


def assess(response: str, contexts: Sequence[str]) -> Assessment:
    """Score a response against its contexts, as a whole and sentence by sentence.

    Only the first 40,000 characters and 400 sentences of the response and 400,000 characters of the contexts are read,
    which bounds the time.
    """
    index = index_of(tuple(contexts))
    response = response[:MAX_RESPONSE_CHARS]
    read = blank_marks(response)
    judged = [
        _judge(sentence, read[sentence.start : sentence.end], index)
        for sentence in split_sentences(response)[:MAX_SENTENCES]
    ]
    claims = any(found.claim for found, _ in judged)
    score = round(grounded_score(pool([found for found, _ in judged])), 4) if claims else None
    return Assessment(score, tuple(evidence for _, evidence in judged))


def judge_claim(claim: str, index: EvidenceIndex) -> SentenceEvidence:
    """Score one claim, taken as one sentence, against an index of contexts."""
    return _judge(Sentence(claim, 0, len(claim)), claim, index)[1]


def _judge(sentence: Sentence, read: str, index: EvidenceIndex) -> tuple[Findings, SentenceEvidence]:
    tokens = words(read)
    support = index.support(tokens)
    found = measure(tokens, read, support, index)
    score = grounded_score(found.values)
    best = support[0] if support else None
    return found, SentenceEvidence(
        text=sentence.text,
        start=sentence.start,
        end=sentence.end,
        score=round(score, 4),
        supported=score >= THRESHOLD or not found.claim,
        claim=found.claim,
        rank=best.context + 1 if best else None,
        evidence=best.sentence.text if best else "",
        evidence_start=best.sentence.start if best else None,
        evidence_end=best.sentence.end if best else None,
        reasons=_reasons(found, supported=score >= THRESHOLD),
    )


def _reasons(found: Findings, *, supported: bool) -> tuple[str, ...]:
    if not found.claim:
        return ()
    if found.reasons or supported:
        return found.reasons
    return (_DOUBTS[drawback(found.values, _DOUBTS)],)
