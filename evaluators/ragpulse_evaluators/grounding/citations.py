"""Which contexts an answer cites and uses: `citation_check` and `context_utilization`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.evaluator import PlainEvaluator
from ragpulse_evaluators.grounding.evidence import EvidenceIndex, index_of
from ragpulse_evaluators.grounding.groundedness import (
    MAX_RESPONSE_CHARS,
    SentenceEvidence,
    assess,
    judge_claim,
    readable_contexts,
    readable_response,
)
from ragpulse_evaluators.grounding.lexicon import LEXICON_ID
from ragpulse_evaluators.grounding.markup import Mark, find_marks
from ragpulse_evaluators.grounding.model import WEIGHTS
from ragpulse_evaluators.grounding.text import content_size, split_sentences, words
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

_MAX_JOINT = 5
_MAX_INDEXES = 60
_ENOUGH = 0.5
_AS_GOOD = 0.8
_SAID = 0.8
"""From this probability on a context says a claim: nine of ten claims of answers are right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One citation: its mark, the rank (from 1) it points to, and whether that context exists and says the claim."""

    mark: str
    start: int
    """Offset of the mark in the response."""
    end: int
    rank: int | None
    """None where no such context exists."""
    supported: bool
    claim: str
    score: float
    """Groundedness of the claim in the cited contexts of its mark."""
    reasons: tuple[str, ...]


class CitationCheck(PlainEvaluator):
    """Share of citations that point to an existing context which says the claim; skipped without citations.

    Marks read: `[1]`, `[2,3]`, `[1-3]`, `[^1]`, `【1】`, `(doc 2)`, and in brackets a context's own id or the name of
    its document (`source`, `url`, `file_name`, ... of the metadata), for which the best of its passages counts.
    Numbers count the contexts from 1 in rank order (from 0 where the response uses 0); ids go first. The claim of a
    mark is the text since the mark before it in the same sentence. Source: this project, after citation
    precision in ALCE (Gao et al. 2023), with `groundedness` in place of an entailment model.
    """

    name = "citation_check"
    needs = frozenset({"response", "contexts"})
    immediate = True
    constants = MappingProxyType({"weights": WEIGHTS, "lexicon": LEXICON_ID})

    def run(self, case: Case) -> Outcome:
        """Score one case."""
        citations = check_citations(readable_response(case), readable_contexts(case))
        if not citations:
            raise MissingField("citations (the response has none)")
        good = sum(c.supported for c in citations)
        return Outcome(
            score=round(good / len(citations), 4),
            label="supported" if good == len(citations) else "unsupported",
            explanation=_explain(citations, good),
            parts={"citations": [{**asdict(c), "reasons": list(c.reasons)} for c in citations]},
        )


def check_citations(response: str, contexts: Sequence[Context]) -> list[Citation]:
    """Resolve and check the citation marks of a response (the first 100), in order."""
    response = response[:MAX_RESPONSE_CHARS]
    marks = find_marks(response, [name for c in contexts for name in c.names])
    if not marks:
        return []
    checker = _Checker(contexts, _places(contexts, marks))
    return [citation for claim, mark in _claims(response, marks) for citation in checker.check(claim, mark)]


def _places(contexts: Sequence[Context], marks: Sequence[Mark]) -> dict[str, tuple[int, ...]]:
    """Map what a mark may say to positions of contexts: a number, an id or a document; the latter two go first."""
    named: dict[str, list[int]] = {}
    for n, context in enumerate(contexts):
        for name in context.names:
            named.setdefault(name, []).append(n)
    base = 0 if any("0" in m.targets for m in marks) and "0" not in named else 1
    return {str(n + base): (n,) for n in range(len(contexts))} | {name: tuple(ns) for name, ns in named.items()}


class _Checker:
    """Judges claims on cited contexts; indexes and verdicts are cached."""

    def __init__(self, contexts: Sequence[Context], places: Mapping[str, tuple[int, ...]]) -> None:
        self._contexts = contexts
        self._places = places
        self._indexes: dict[tuple[int, ...], EvidenceIndex] = {}
        self._verdicts: dict[tuple[str, tuple[int, ...]], SentenceEvidence] = {}

    def check(self, claim: str, mark: Mark) -> Iterator[Citation]:
        """Yield one citation for each target of a mark; of a document's passages the one that says most counts."""
        cited = tuple(dict.fromkeys(place for target in mark.targets for place in self._places.get(target, ())))
        for target in mark.targets:
            verdicts = {place: self._verdict(claim, place, cited) for place in self._places.get(target, ())}
            place = max(
                verdicts,
                key=lambda place: (verdicts[place].supported is not False, verdicts[place].score),
                default=None,
            )
            verdict = None if place is None else verdicts[place]
            yield Citation(
                mark=mark.text,
                start=mark.start,
                end=mark.end,
                rank=None if place is None else place + 1,
                supported=verdict is not None and _says(verdict),
                claim=claim,
                score=verdict.score if verdict else 0.0,
                reasons=_reasons(target, verdict, len(self._contexts)),
            )

    def _verdict(self, claim: str, place: int, cited: tuple[int, ...]) -> SentenceEvidence:
        """Judge on the context alone; where several are cited together, what they say jointly counts as well."""
        single = self._judge(claim, (place,))
        if _says(single) or not 1 < len(cited) <= _MAX_JOINT or len(self._indexes) > _MAX_INDEXES:
            return single
        joint = self._judge(claim, cited)
        contributes = _says(joint) and joint.evidence in self._contexts[place].text
        return joint if contributes else single

    def _judge(self, claim: str, places: tuple[int, ...]) -> SentenceEvidence:
        if (claim, places) not in self._verdicts:
            self._verdicts[claim, places] = judge_claim(claim, self._index(places))
        return self._verdicts[claim, places]

    def _index(self, places: tuple[int, ...]) -> EvidenceIndex:
        if places not in self._indexes:
            self._indexes[places] = EvidenceIndex([self._contexts[n].text for n in places])
        return self._indexes[places]


def _claims(response: str, marks: Sequence[Mark]) -> Iterator[tuple[str, Mark]]:
    """Pair each mark with its claim: the text since the mark before it, or the sentence where that is empty."""
    pending = list(marks)
    for sentence in split_sentences(response):
        inside = [m for m in pending if sentence.start <= m.start < sentence.end]
        pending = pending[len(inside) :]
        whole = _without(response, sentence.start, sentence.end, inside)
        starts = [sentence.start, *(m.end for m in inside)]
        pieces = [_without(response, start, m.start, inside) for start, m in zip(starts, inside, strict=False)]
        for position, mark in enumerate(inside):
            claim = next((p for p in reversed(pieces[: position + 1]) if content_size(p) > 1), whole)
            tail = _without(response, mark.end, sentence.end, inside) if position == len(inside) - 1 else ""
            yield (whole if content_size(tail) > 1 else claim), mark


def _without(response: str, start: int, end: int, marks: Sequence[Mark]) -> str:
    pieces, at = [], start
    for mark in marks:
        if at <= mark.start < end:
            pieces.append(response[at : mark.start])
            at = mark.end
    pieces.append(response[at:end])
    return " ".join("".join(pieces).split())


def _says(verdict: SentenceEvidence) -> bool:
    """Tell whether a context rather says a claim than not; a mark has no third answer."""
    return verdict.supported is not False and verdict.score >= _SAID


def _reasons(target: str, verdict: SentenceEvidence | None, count: int) -> tuple[str, ...]:
    if verdict is None:
        return (f"there is no context {target}: {count} were retrieved",)
    return () if _says(verdict) else verdict.reasons


def _explain(citations: Sequence[Citation], good: int) -> str:
    bad = [f" {c.mark}: {'; '.join(c.reasons)}." for c in citations if not c.supported]
    return f"{good} of {len(citations)} citations supported by the context they name." + "".join(bad[:3])


@dataclass(slots=True, kw_only=True)
class ContextUse:
    """One context: its rank (from 1), whether the answer draws on it, and its best cover of an answer sentence."""

    rank: int
    used: bool
    cover: float


class ContextUtilization(PlainEvaluator):
    """Share of the retrieved contexts (those with text) that the answer draws on; `parts["contexts"]` flags each.

    A context is used when one of its sentences covers at least half of the content words (rare words count more) of a
    claim and no other context covers it clearly better, or when it is the best evidence of a supported claim. Low
    values mean the retriever brings ballast; equal copies of a passage all count as used.
    Source: this project.
    """

    name = "context_utilization"
    needs = frozenset({"response", "contexts"})
    immediate = True
    constants = MappingProxyType({"enough": _ENOUGH, "as_good": _AS_GOOD, "lexicon": LEXICON_ID})

    def run(self, case: Case) -> Outcome:
        """Score one case."""
        response = readable_response(case)
        contexts = readable_contexts(case)
        uses = context_use(response, [c.text for c in contexts], [c.id for c in contexts])
        used = [u.rank for u in uses if u.used]
        ranks = ", ".join(map(str, used)) or "none"
        return Outcome(
            score=round(len(used) / len(uses), 4),
            explanation=f"The answer draws on {len(used)} of {len(uses)} contexts (rank {ranks}).",
            parts={"used": used, "contexts": [{"rank": u.rank, "used": u.used, "cover": u.cover} for u in uses]},
        )


def context_use(response: str, contexts: Sequence[str], ids: Sequence[str | None] = ()) -> list[ContextUse]:
    """Tell for each context with text whether the response draws on it."""
    index = index_of(tuple(contexts))
    cover = {number: 0.0 for number, text in enumerate(contexts) if text.strip()}
    used: set[int] = set()
    for sentence in assess(response, contexts, ids).sentences:
        if not sentence.claim:
            continue
        covers = index.covers(words(sentence.text))
        best = max(covers.values(), default=0.0)
        used |= {n for n, c in covers.items() if c >= _ENOUGH and c >= _AS_GOOD * best}
        used |= (
            {sentence.rank - 1}
            if sentence.rank and sentence.supported is not False and sentence.score >= _SAID
            else set()
        )
        cover |= {n: max(cover[n], c) for n, c in covers.items()}
    return [ContextUse(rank=n + 1, used=n in used, cover=round(c, 4)) for n, c in cover.items()]


ENTRIES = (
    Entry.of(
        ContextUtilization,
        source="this project",
        description="Share of the retrieved contexts that the response draws on.",
    ),
    Entry.of(
        CitationCheck,
        source="this project, after ALCE (Gao et al. 2023)",
        description="Share of citation marks that point to a context which supports the claim.",
    ),
)
