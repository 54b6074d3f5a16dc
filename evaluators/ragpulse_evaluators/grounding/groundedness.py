"""`groundedness`: do the contexts support every sentence of the response? No judge, no reference, no model download."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.errors import Abstained, MissingField, NothingToScore, excerpt
from ragpulse_evaluators.evaluator import PlainEvaluator
from ragpulse_evaluators.grounding.evidence import MAX_CONTEXT_CHARS, ContextSentence, EvidenceIndex, index_of
from ragpulse_evaluators.grounding.lexicon import LEXICON_ID
from ragpulse_evaluators.grounding.markup import Code, blank_lead_in, claims_nothing, read_markup
from ragpulse_evaluators.grounding.model import (
    WEIGHTS,
    Findings,
    answer_score,
    answer_verdict,
    claim_score,
    claim_verdict,
    measure,
)
from ragpulse_evaluators.grounding.refusal import find_refusal, speaks_of_sources
from ragpulse_evaluators.grounding.text import Sentence, is_unsplit, split_sentences, words
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import UNCLEAR, Outcome

MAX_RESPONSE_CHARS = 40_000
MAX_SENTENCES = 400
NO_CLAIM = "a claim: the response has no sentence that claims something"
NOTHING_CLAIMED = "no claim"
"""The reason of a sentence that greets, announces, offers help or speaks of the sources: nothing to support."""
_TOO_FREE = "worded too freely for a check of words"
_UNCLEAR = f"It is {_TOO_FREE}: add a model or a judge."


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceEvidence:
    """One response sentence and the best evidence for it; offsets count characters (Python string indices)."""

    text: str
    start: int
    """Offset of the sentence in the response."""
    end: int
    score: float
    """The probability that the contexts support it."""
    supported: bool | None
    """None where the wording is too free to tell."""
    claim: bool
    """False for a sentence that claims nothing ("Yes."): nothing to support."""
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
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class Assessment:
    """Groundedness of a response and of its sentences; `score` and `weakest` are None where it claims nothing."""

    score: float | None
    """Mean probability of its claims."""
    weakest: float | None
    """The probability that the contexts support the whole response, pooled over its claims."""
    sentences: tuple[SentenceEvidence, ...]
    code: tuple[CodeEvidence, ...]
    read: str
    """The response with markup, code and citation marks blank."""

    @property
    def passing(self) -> bool | None:
        """True or false where the words decide it, None where it is unclear."""
        unsupported = any(s.supported is False for s in self.sentences)
        return False if unsupported else answer_verdict(self.weakest or 0.0)


def assess(response: str, contexts: Sequence[str], ids: Sequence[str | None] = ()) -> Assessment:
    """Score a response against its contexts, as a whole and sentence by sentence.

    Only the first 40,000 characters and 400 sentences of the response and 400,000 characters of the contexts are read,
    which bounds the time. `ids` are those of the contexts, by which citation marks are recognized.
    """
    return _assess(response[:MAX_RESPONSE_CHARS], tuple(contexts), tuple(ids))


@lru_cache(maxsize=2)
def _assess(response: str, contexts: tuple[str, ...], ids: tuple[str | None, ...]) -> Assessment:
    """Read it; kept for the next check of the same case."""
    reading = read_markup(response, ids)
    read = _read_all(reading.text, contexts)
    code = tuple(_check_code(block, contexts) for block in reading.code)
    claims = [sentence.findings for sentence in read if sentence.findings]
    mean = sum(map(claim_score, claims)) / len(claims) if claims else 1.0
    sentences = tuple(_judge(response, sentence, mean) for sentence in read)
    if not claims:
        return Assessment(None, None, sentences, code, reading.text)
    return Assessment(round(mean, 4), round(answer_score(claims), 4), sentences, code, reading.text)


class _Read(NamedTuple):
    """A sentence, what was found for it (None where it claims nothing), and the best context sentence."""

    place: Sentence
    findings: Findings | None
    best: ContextSentence | None


@lru_cache(maxsize=2)
def _read_all(text: str, contexts: tuple[str, ...]) -> list[_Read]:
    """Read each sentence beside the contexts; kept for the next check of the same case."""
    index = index_of(contexts)
    return [_read(sentence, index) for sentence in split_sentences(text)[:MAX_SENTENCES]]


def read_claims(response: str, contexts: Sequence[str]) -> list[tuple[int, int, Findings]]:
    """Return place and findings of each claim: what the fit and the benchmark measure."""
    read = _read_all(read_markup(response).text, tuple(contexts))
    return [(s.place.start, s.place.end, s.findings) for s in read if s.findings]


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
    return CodeEvidence(block.start, block.end, unknown[:_MAX_UNKNOWN])


def judge_claim(claim: str, index: EvidenceIndex) -> SentenceEvidence:
    """Score one claim, taken as one sentence, against an index of contexts."""
    return _judge(claim, _read(Sentence(claim, 0, len(claim)), index), None)


def _read(sentence: Sentence, index: EvidenceIndex) -> _Read:
    """Measure a sentence without marks, unless it claims nothing."""
    tokens = words(blank_lead_in(sentence.text))
    if claims_nothing(sentence.text) or speaks_of_sources(sentence.text) or not any([t.content for t in tokens]):
        return _Read(sentence, None, None)
    support = index.support(tokens)
    return _Read(sentence, measure(tokens, support, index), support[0] if support else None)


def _judge(response: str, read: _Read, mean: float | None) -> SentenceEvidence:
    """Decide a sentence beside the others of its response, which have a mean score: one that stands out fails."""
    place, best, findings = read.place, read.best, read.findings
    score = claim_score(findings) if findings else 1.0
    verdict = claim_verdict(findings, score, score if mean is None else mean) if findings else True
    reasons = _reasons(findings, verdict) if findings else (NOTHING_CLAIMED,)
    return SentenceEvidence(
        text=response[place.start : place.end],
        start=place.start,
        end=place.end,
        score=round(score, 4),
        supported=verdict,
        claim=findings is not None,
        rank=best.context + 1 if best else None,
        evidence=best.sentence.text if best else "",
        evidence_start=best.sentence.start if best else None,
        evidence_end=best.sentence.end if best else None,
        reasons=reasons,
    )


def _reasons(findings: Findings, verdict: bool | None) -> tuple[str, ...]:
    """Objections, new words, or that the wording is too free."""
    new = findings.new_words
    shown = ", ".join(f"'{word}'" for word in new[:_SHOWN_WORDS]) + (", ..." if len(new) > _SHOWN_WORDS else "")
    reasons = ((f"not in the contexts: {shown}",) if new else ()) + findings.objections
    return reasons if reasons or verdict else (_TOO_FREE,)


_SHOWN = 3
_SHOWN_WORDS = 5


class Groundedness(PlainEvaluator):
    """Do the contexts say what the response claims? Compares words, quantities and JSON values; no judge, no model.

    `score` is the mean probability, over the claims, that the contexts support them. `parts["weakest"]` is the
    probability that they support the whole response. It fails where that is low, or where an objection that a reader
    can verify is found: another quantity, a value of JSON that says no, another word in a copied sentence. It passes
    where the probability is high. Between the two it is *unclear*: `passing` is None, `label` is `unclear`. With
    `threshold` (on `weakest`) every response passes or fails.
    Markdown, citation marks and sentences that claim nothing are left out; `parts["code"]` reports fenced code apart.
    It misses wrong facts in free wording, exchanged roles and subjects. Of the good and the wrong answers that it
    decides, 7 and 57 % fail on RAGTruth's QA, 4 and 70 % on BEGIN, 0 and 76 % on close pairs, 0 and 69 % on copies
    with one edit. `parts["sentences"]` holds the fields of `SentenceEvidence` (offsets in place of the evidence's
    text). Source: this project; fitted on RAGTruth (Niu et al. 2024) and BEGIN.
    """

    name = "groundedness"
    needs = frozenset({"response", "contexts"})
    immediate = True
    label = "5"
    constants = MappingProxyType({"weights": WEIGHTS, "lexicon": LEXICON_ID})

    def run(self, case: Case) -> Outcome:
        """Score one case; skipped for a refusal, which makes no claim."""
        assessment = assess_case(case)
        passing = assessment.passing if self.threshold is None else (assessment.weakest or 0.0) >= self.threshold
        return outcome_of(assessment, passing, _cut(case))


def assess_case(case: Case) -> Assessment:
    """Assess a case; raises `MissingField` without a text and where nothing is claimed, `Abstained` for a refusal."""
    response, contexts = readable_response(case), readable_contexts(case)
    if refusal := find_refusal(response):
        raise Abstained(f"nothing to check: the response declines to answer ({refusal!r})")
    assessment = assess(response, [c.text for c in contexts], [name for c in contexts for name in c.names])
    if assessment.score is None:
        raise MissingField(NO_CLAIM)
    return assessment


def outcome_of(assessment: Assessment, passing: bool | None, note: str = "") -> Outcome:
    """Return the outcome with its explanation and parts; the note ends the explanation."""
    sentences = assessment.sentences
    return Outcome(
        score=assessment.score,
        passing=passing,
        label={True: "grounded", False: "ungrounded", None: UNCLEAR}[passing],
        explanation=_explain(assessment, passing) + note,
        parts={
            "weakest": assessment.weakest,
            "supported": sum(s.supported is True for s in sentences if s.claim),
            "unclear": sum(s.supported is None for s in sentences),
            "claims": sum(s.claim for s in sentences),
            "sentences": [_part(s) for s in sentences],
            **({"code": [asdict(block) for block in assessment.code]} if assessment.code else {}),
        },
    )


_UNSPLIT = "in a script without spaces that it cannot split into words"


def readable_response(case: Case) -> str:
    """Return the response; raises `MissingField` without one, `NothingToScore` where it holds no letter or digit."""
    if case.response is None:
        raise MissingField("response")
    if not any(c.isalnum() for c in case.response):
        raise NothingToScore(
            f"nothing to check: the response {'holds no words' if case.response.strip() else 'is empty'}"
        )
    if is_unsplit(case.response):
        raise NothingToScore(f"nothing to check: the response is {_UNSPLIT}")
    return case.response


def readable_contexts(case: Case) -> tuple[Context, ...]:
    """Return all contexts in rank order; raises `MissingField` where none has a text."""
    contexts = case.contexts or ()
    if not any(c.text.strip() for c in contexts):
        raise MissingField("contexts (none has a text)")
    if is_unsplit(" ".join(c.text for c in contexts)):
        raise MissingField(f"contexts ({_UNSPLIT})")
    return contexts


def _part(sentence: SentenceEvidence) -> dict[str, Any]:
    """JSON without the evidence's text: the context is stored anyway, its rank and offsets find it."""
    shown = {name: getattr(sentence, name) for name in _SHOWN_FIELDS}
    return shown | {"reasons": list(sentence.reasons)}


_SHOWN_FIELDS = tuple(field.name for field in fields(SentenceEvidence) if field.name != "evidence")


def _explain(assessment: Assessment, passing: bool | None) -> str:
    claims = [s for s in assessment.sentences if s.claim]
    doubtful = sorted((s for s in claims if not s.supported), key=lambda s: (s.supported is None, s.score))
    unclear = sum(s.supported is None for s in claims)
    count = f"{sum(s.supported is True for s in claims)} of {len(claims)} sentences supported by the contexts"
    summary = count + (f", {unclear} unclear." if unclear else ".") + (f" {_UNCLEAR}" if passing is None else "")
    shown = [f" “{excerpt(s.text)}”: {'; '.join(s.reasons)}." for s in doubtful[:_SHOWN]]
    more = f" And {len(doubtful) - _SHOWN} more." if len(doubtful) > _SHOWN else ""
    unknown = [name for block in assessment.code for name in block.unknown]
    code = f" Code names that no context holds: {', '.join(unknown[:_SHOWN])}." if unknown else ""
    return summary + "".join(shown) + more + code


def _cut(case: Case) -> str:
    cut = len(case.response or "") > MAX_RESPONSE_CHARS
    cut = cut or sum(len(c.text) for c in case.contexts or ()) > MAX_CONTEXT_CHARS
    return " The texts were too long: only their beginning was read." if cut else ""


_FORMER = (
    "the score is the mean probability of the claims since version 5, not the share of supported ones, and answers"
    " worded too freely are unclear, neither passing nor failing"
)
ENTRIES = (
    Entry.of(
        Groundedness,
        source="this project; RAGTruth (Niu et al. 2024), BEGIN (Dziri et al. 2022)",
        description="Mean probability that the contexts support a claim, by words and quantities; may be unclear.",
        former={
            "1": "the score is the mean probability of the claims since version 5;"
            " version 1 scored the weakest claim, which is the part 'weakest' now",
            **dict.fromkeys("234", _FORMER),
        },
    ),
)
