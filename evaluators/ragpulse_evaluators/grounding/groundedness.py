"""`groundedness`: do the contexts support every sentence of the response? No judge, no reference, no model download."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.errors import MissingField, NothingToScore
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.grounding.evidence import MAX_CONTEXT_CHARS, ContextSentence, EvidenceIndex, index_of
from ragpulse_evaluators.grounding.markup import Code, blank_lead_in, claims_nothing, read_markup
from ragpulse_evaluators.grounding.meanings import LEXICON_ID
from ragpulse_evaluators.grounding.model import (
    BIAS,
    CEILING,
    THRESHOLD,
    WEIGHTS,
    Findings,
    drawback,
    grounded_score,
    measure,
    pool,
)
from ragpulse_evaluators.grounding.refusal import find_refusal
from ragpulse_evaluators.grounding.text import Sentence, split_sentences, words
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

__all__ = (
    "ENTRIES",
    "MAX_RESPONSE_CHARS",
    "MAX_SENTENCES",
    "Assessment",
    "Groundedness",
    "SentenceEvidence",
    "assess",
    "judge_claim",
    "judge_sentences",
    "pool_response",
    "readable_contexts",
    "readable_response",
)

MAX_RESPONSE_CHARS = 40_000
MAX_SENTENCES = 400
NOTHING_CLAIMED = "no claim"
"""The reason of a sentence that greets, thanks, announces or offers help: there is nothing to support."""
_DOUBTS = {
    "order": "the words are in the contexts, but not said in this way",
    "link_share": "words like 'of' or 'because' link it in a way the evidence does not",
    "new_run": "several words in a row are not in the evidence",
    "self_words": "it speaks of 'I' or 'we', the evidence does not",
    "opener": "it opens like an answer ('yes', 'well'), the evidence does not",
    "question": "it asks instead of saying",
}
"""What to say where no word and no fact is wrong, by the feature that lowers the score most."""
_SMALL_TALK = ("self_words", "opener", "question")


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
class CodeEvidence:
    """One fenced block of code and the names, literals and commands in it that no context holds."""

    start: int
    """Offset of the code in the response."""
    end: int
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """Groundedness of a response and of its sentences; `score` and `weakest` are None where it claims nothing."""

    score: float | None
    """Share of claims that are supported."""
    weakest: float | None
    """Score of the response as one claim: wording by length, objections of the worst sentence."""
    sentences: tuple[SentenceEvidence, ...]
    code: tuple[CodeEvidence, ...]


def assess(response: str, contexts: Sequence[str], ids: Sequence[str | None] = ()) -> Assessment:
    """Score a response against its contexts, as a whole and sentence by sentence.

    Only the first 40,000 characters and 400 sentences of the response and 400,000 characters of the contexts are read,
    which bounds the time. `ids` are those of the contexts, by which citation marks are recognized.
    """
    response = response[:MAX_RESPONSE_CHARS]
    reading = read_markup(response, ids)
    judged = judge_sentences(response, reading.text, contexts)
    sentences = tuple(evidence for _, evidence in judged)
    code = tuple(_check_code(block, contexts) for block in reading.code)
    supported = [sentence.supported for sentence in sentences if sentence.claim]
    if not supported:
        return Assessment(None, None, sentences, code)
    share = sum(supported) / len(supported)
    features, objected = pool_response([findings for findings, _ in judged])
    weakest = grounded_score(features, objected=objected)
    return Assessment(round(share, 4), round(weakest, 4), sentences, code)


def pool_response(sentences: Sequence[Findings | None]) -> tuple[dict[str, float], bool]:
    """Pool the claims and the small talk ("Me too!") of a response; greetings and offers are None."""
    return pool([s for s in sentences if s and (s.claim or any(s.features[name] for name in _SMALL_TALK))])


def judge_sentences(
    response: str, read: str, contexts: Sequence[str]
) -> list[tuple[Findings | None, SentenceEvidence]]:
    """Measure and judge each sentence; `read` is the response with everything blank that is no sentence."""
    index = index_of(tuple(contexts))
    return [
        _judge(Sentence(response[found.start : found.end], found.start, found.end), found.text, index)
        for found in split_sentences(read)[:MAX_SENTENCES]
    ]


_CODE_WORD = re.compile(r"--?[A-Za-z][\w-]*|[^\W\d]\w*|\d+(?:\.\d+)*")
_LANGUAGE_WORDS = re.compile(
    r"import|from|def|return|if|else|elif|for|while|in|not|and|or|is|as|with|class|try|except|finally|raise|pass|break"
    r"|continue|lambda|yield|async|await|none|true|false|null|var|let|const|function|new|this|self|public|private|static"
    r"|void|int|str|float|bool|string|end|do|then|fi|done|echo|sudo|cd|export|select|where|group|order|by|limit|print"
    r"|console|log|get|set",
    re.IGNORECASE,
)
_MAX_UNKNOWN = 20


def _check_code(block: Code, contexts: Sequence[str]) -> CodeEvidence:
    """Compare code as code: what it names must stand in a context as written, in capitals and all."""
    known = {word for text in contexts for word in _CODE_WORD.findall(text)}
    names = dict.fromkeys(_CODE_WORD.findall(block.text))
    unknown = [n for n in names if n not in known and not _LANGUAGE_WORDS.fullmatch(n) and len(n) > 1]
    return CodeEvidence(block.start, block.end, tuple(unknown[:_MAX_UNKNOWN]))


def judge_claim(claim: str, index: EvidenceIndex) -> SentenceEvidence:
    """Score one claim, taken as one sentence, against an index of contexts."""
    return _judge(Sentence(claim, 0, len(claim)), claim, index)[1]


def _judge(sentence: Sentence, read: str, index: EvidenceIndex) -> tuple[Findings | None, SentenceEvidence]:
    """Judge one sentence; `read` is its text without marks. A greeting or an offer is not measured."""
    if claims_nothing(read):
        return None, _evidence(sentence, 1.0, None, (NOTHING_CLAIMED,), claim=False)
    read = blank_lead_in(read)
    tokens = words(read)
    support = index.support(tokens)
    findings = measure(tokens, read, support, index)
    score = grounded_score(findings.features, objected=bool(findings.objections))
    best = support[0] if support else None
    return findings, _evidence(sentence, score, best, _reasons(findings, score), claim=findings.claim)


def _evidence(
    sentence: Sentence, score: float, best: ContextSentence | None, reasons: tuple[str, ...], *, claim: bool
) -> SentenceEvidence:
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
        reasons=reasons,
    )


def _reasons(findings: Findings, score: float) -> tuple[str, ...]:
    if not findings.claim:
        return (NOTHING_CLAIMED,)
    new = findings.new_words
    words = ", ".join(f"'{word}'" for word in new[:_SHOWN_WORDS]) + (", ..." if len(new) > _SHOWN_WORDS else "")
    reasons = ((f"not in the contexts: {words}",) if new else ()) + findings.objections
    if reasons or score >= THRESHOLD:
        return reasons
    return (_DOUBTS[drawback(findings.features, _DOUBTS)],)


_SHOWN = 3
_SHOWN_WORDS = 5
_SHOWN_FIELDS = tuple(field.name for field in fields(SentenceEvidence) if field.name != "evidence")


class Groundedness(Evaluator):
    """Share of the response's claims that the contexts support, with the best evidence and the reasons for doubt.

    It passes where `parts["weakest"]` reaches the threshold: a small logistic model over wording, held down by each
    objection that a reader can verify (numbers, units, dates, names, negation, opposites, quantifiers, bounds, roles,
    subjects, sources). Far from the wording of the contexts fewer objections count. Wording counts by length, an
    objection by its worst sentence, and a sentence of which the contexts hold hardly a word fails the response.
    Markdown, citation marks and sentences that claim nothing are left out; `parts["code"]` reports fenced code apart.
    It compares surface, not meaning: about one free paraphrase in ten fails.
    `parts["sentences"]` holds the fields of `SentenceEvidence` (offsets in place of the evidence's text). Source: this
    project; measured on BEGIN (Dziri et al. 2022).
    """

    name = "groundedness"
    needs = frozenset({"response", "contexts"})
    scale = Scale()
    immediate = True
    label = "4"

    def __init__(self, *, threshold: float = THRESHOLD) -> None:
        super().__init__(threshold=threshold, bias=BIAS, weights=WEIGHTS, ceiling=CEILING, lexicon=LEXICON_ID)

    def run(self, case: Case) -> Outcome:
        """Score one case; skipped for a refusal, which makes no claim."""
        response, contexts = readable_response(case), readable_contexts(case)
        if refusal := find_refusal(response):
            raise MissingField(f"a claim: the response declines to answer ({refusal!r})")
        assessment = assess(response, [c.text for c in contexts], [name for c in contexts for name in c.names])
        sentences = assessment.sentences
        if assessment.score is None or assessment.weakest is None:
            raise MissingField("a claim: the response has no sentence that claims something")
        return Outcome(
            score=assessment.score,
            passing=assessment.weakest >= (THRESHOLD if self.threshold is None else self.threshold),
            label=_label(sentences),
            explanation=_explain(assessment) + _cut(response, contexts),
            parts={
                "weakest": assessment.weakest,
                "supported": sum(s.supported for s in sentences if s.claim),
                "claims": sum(s.claim for s in sentences),
                "sentences": [_part(s) for s in sentences],
                **_code_part(assessment.code),
            },
        )


def readable_response(case: Case) -> str:
    """Return the response; raises `MissingField` without one, `NothingToScore` where it holds no letter or digit."""
    if case.response is None:
        raise MissingField("response")
    if not any(c.isalnum() for c in case.response):
        raise NothingToScore(
            f"nothing to check: the response {'holds no words' if case.response.strip() else 'is empty'}"
        )
    return case.response


def readable_contexts(case: Case) -> tuple[Context, ...]:
    """Return all contexts in rank order; raises `MissingField` where none has a text."""
    contexts = case.contexts or ()
    if not any(c.text.strip() for c in contexts):
        raise MissingField("contexts (none has a text)")
    return contexts


def _code_part(code: Sequence[CodeEvidence]) -> dict[str, Any]:
    return {"code": [asdict(block) | {"unknown": list(block.unknown)} for block in code]} if code else {}


def _part(sentence: SentenceEvidence) -> dict[str, Any]:
    """JSON without the evidence's text: the context is stored anyway, its rank and offsets find it."""
    shown = {name: getattr(sentence, name) for name in _SHOWN_FIELDS}
    return shown | {"reasons": list(sentence.reasons)}


def _label(sentences: Sequence[SentenceEvidence]) -> str:
    claims = [s.supported for s in sentences if s.claim]
    return "grounded" if all(claims) else "partly" if any(claims) else "ungrounded"


def _explain(assessment: Assessment) -> str:
    claims = [s for s in assessment.sentences if s.claim]
    doubtful = [s for s in claims if not s.supported]
    summary = f"{len(claims) - len(doubtful)} of {len(claims)} sentences supported by the contexts."
    shown = [f" “{_short(s.text)}”: {'; '.join(s.reasons)}." for s in doubtful[:_SHOWN]]
    more = f" And {len(doubtful) - _SHOWN} more." if len(doubtful) > _SHOWN else ""
    unknown = [name for block in assessment.code for name in block.unknown]
    code = f" Code names that no context holds: {', '.join(unknown[:_SHOWN])}." if unknown else ""
    return summary + "".join(shown) + more + code


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cut(response: str, contexts: Sequence[Context]) -> str:
    cut = len(response) > MAX_RESPONSE_CHARS or sum(len(c.text) for c in contexts) > MAX_CONTEXT_CHARS
    return " The texts were too long: only their beginning was read." if cut else ""


ENTRIES: tuple[Entry, ...] = (
    Entry.of(
        Groundedness,
        source="this project, measured on BEGIN (Dziri et al. 2022)",
        description="Share of the response's claims that the contexts support; the weakest claim decides passing.",
        former={
            "1": "the score is the share of supported claims since version 2;"
            " version 1 scored the weakest claim, which is the part 'weakest' now",
            "2": "fewer retold answers fail since version 3, so its scores are higher than those of version 2",
            "3": "half as many retold answers fail since version 4, so its scores are higher than those of version 3",
        },
    ),
)
