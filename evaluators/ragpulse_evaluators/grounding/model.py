"""Features of a claim beside its evidence, objections that a reader can verify, and the fitted model over them.

`weights.json` holds two small logistic models: from the features of a claim to the probability that the contexts
support it, and from pooled features of all claims to the probability that they support the whole answer.
`benchmarks/fit_grounding.py` fits them and chooses the two thresholds between which an answer is unclear. No feature
tells how long an answer is or where a sentence stands: those fit a data set, not the question.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rapidfuzz.distance import LCSseq

from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex, bigrams
from ragpulse_evaluators.grounding.facts import Quantity, is_derived, quantities
from ragpulse_evaluators.grounding.lexicon import OPPOSITES
from ragpulse_evaluators.grounding.text import Word

WEIGHTS: dict[str, Any] = json.loads(Path(__file__).with_name("weights.json").read_text(encoding="utf-8"))
FEATURES = ("words", "names", "pairs", "order", "lost", "negation", "objected")
"""Of a claim: share of words in no context, new names, share of word pairs in no context, share of words
that are not in the order of the best context sentence; a quantity in no context, a negation that the evidence lacks, an
objection."""
POOLED = ("worst", "words", "objected")
"""Of an answer: the lowest logit of its claims, the share of words in no context, an objection."""
_COPIED = 0.75
"""A claim and a part of its best context sentence that have this share of their words in one order are copies."""
_LEAST = 3
"""And at least this many."""
_CLAUSE = 3
"""New content words in one place of a copy that make a clause."""
_RELATED = 0.5
_LIMIT = 12.0


class Findings(NamedTuple):
    """The features of one claim, what a reader can object to, its new words, and its size."""

    features: Mapping[str, float]
    objections: tuple[str, ...]
    new_words: tuple[str, ...]
    size: int
    by_value: bool
    """Whether contexts are read by JSON's keys and values: new words in prose about them tell too little."""


def measure(tokens: Sequence[Word], support: Sequence[ContextSentence], index: EvidenceIndex) -> Findings:
    """Measure one claim, cut into its words, against its supporting context sentences (best first)."""
    claim = _Claim(tokens, support, index)
    objections = tuple(_objections(claim))
    pairs = set(bigrams([tokens[i] for i in claim.content]))
    denies = claim.negated and any([t.negation for s in support for t in s.tokens])
    features = {
        "words": sum([key not in index.postings for key in claim.keys]) / max(1, len(tokens)),
        "names": min(2, sum([i > 0 and tokens[i].capital for i in claim.new])) / 2,
        "pairs": sum([pair not in index.bigrams for pair in pairs]) / max(1, len(pairs)),
        "order": 1.0 - claim.order,
        "lost": float(bool(claim.lost)),
        "negation": float(claim.negated and not denies),
        "objected": float(bool(objections)),
    }
    new_words = tuple(dict.fromkeys(tokens[i].text for i in claim.new))
    return Findings(features, objections, new_words, len(tokens), index.by_value)


class _Claim:
    """A claim beside its evidence: how that spells its words, which are new, which quantities are not found."""

    def __init__(self, tokens: Sequence[Word], support: Sequence[ContextSentence], index: EvidenceIndex) -> None:
        self.tokens, self.support, self.index = tokens, support, index
        self.keys = [t.key for t in tokens]
        self.best = support[0].tokens if support else ()
        self.theirs = [t.key for t in self.best]
        self.same = LCSseq.similarity(self.keys, self.theirs)
        self.order = self.same / max(1, len(tokens))
        self.negated = any([t.negation for t in tokens])
        self.denied = {} if self.negated else index.denied
        self.quantities = quantities(tokens)
        counted = {i for q in self.quantities for i in range(q.start, q.end)}
        self.content = [i for i, t in enumerate(tokens) if t.content and i not in counted]
        self.new = [i for i in self.content if self._is_new(i)]
        self.known = support[0].quantities if support and self.quantities else []
        self.lost = [q for q in self.quantities if not self._somewhere(q)]

    def _is_new(self, i: int) -> bool:
        return self.keys[i] not in self.index.postings or self.keys[i] in self.denied

    def _somewhere(self, quantity: Quantity) -> bool:
        """Tell whether any context holds a quantity, or one sentence gives what it follows from.

        A number without a unit is equal to another quantity only in the sentence that speaks of the claim.
        """
        held = any(
            quantity.agrees(q) and (s.tokens is self.best or q.sort == quantity.sort)
            for s in self.index.sentences
            for q in s.quantities
        )
        return held or any(is_derived(self.tokens, quantity, s.quantities) for s in self.support)


def _agrees(quantity: Quantity, others: Sequence[Quantity]) -> bool:
    return any(quantity.agrees(other) for other in others)


def _objections(claim: _Claim) -> Iterator[str]:
    """Yield what a reader can verify: quantities everywhere, keys of JSON that say no, other words in a copy."""
    free = [q for q in claim.known if not _agrees(q, claim.quantities)]
    for quantity in claim.lost:
        if other := _rival(quantity, free, claim):
            yield f"{quantity.text} here, {other.text} in the evidence"
    for i in claim.content:
        if claim.keys[i] in claim.denied:
            yield f"'{claim.tokens[i].text}': “{claim.denied[claim.keys[i]].sentence.text}” in the evidence"
            break
    yield from _edits(claim)


def _rival(quantity: Quantity, free: Sequence[Quantity], claim: _Claim) -> Quantity | None:
    """Return what the evidence says in place of a quantity: one of its sort, or near its wording any other."""
    same = [q for q in free if q.sort == quantity.sort and q.sort not in (None, "month")]
    return next(iter(same or (free if claim.order >= _RELATED else [])), None)


def _edits(claim: _Claim) -> Iterator[str]:
    """Yield what differs in a claim that copies a part of its best context sentence but for one place."""
    if claim.same < max(_LEAST, len(claim.keys) / 2):
        return  # no copy, wherever they differ
    places = _gaps(claim.keys, claim.theirs)
    if len(places) != 1:
        return
    ((mine, theirs),) = places
    if claim.same < _COPIED * (claim.same + len(theirs)):
        return
    said = claim.tokens[mine.start : mine.stop]
    whole = claim.same >= _COPIED * len(claim.theirs)
    if whole and mine.start and sum(i in claim.new for i in mine) >= _CLAUSE:
        yield f"“{' '.join(t.text for t in said)}” added to a copied sentence"
    elif claim.same >= _COPIED * len(claim.tokens):
        yield from _exchanged(claim, mine, said, claim.best[theirs.start : theirs.stop])


def _exchanged(claim: _Claim, place: range, mine: Sequence[Word], theirs: Sequence[Word]) -> Iterator[str]:
    """Yield what is said in one place of a copy in place of what the evidence says there."""
    placed = [q for q in claim.quantities if q.start in place]
    numbers = [q for q in placed if q not in claim.lost and not _agrees(q, claim.known)]
    if numbers and any(t.numeric for t in theirs):
        yield f"{numbers[0].text} here, another number in the evidence"
    if sum(t.negation for t in mine) != sum(t.negation for t in theirs):
        here, there = ("here", "in the evidence") if any(t.negation for t in mine) else ("in the evidence", "here")
        yield f"negated {here}, not {there}"
    for one, other in product(mine, theirs):
        spelled = one.capital or not any(t.capital for t in claim.tokens)
        named = spelled and one.content and other.key in claim.index.names and one.key not in claim.theirs
        if named or other.norm in OPPOSITES.get(one.norm, ()):
            yield f"'{one.text}' here, '{other.text}' in the evidence"
            return


def _gaps(mine: Sequence[str], theirs: Sequence[str]) -> list[tuple[range, range]]:
    """Return what stands between the words that both have in one order; a claim may leave out the ends of the other."""
    blocks = LCSseq.opcodes(mine, theirs).as_matching_blocks()
    found, a, b = [], 0, max(0, blocks[0].b - blocks[0].a)
    for block in blocks:  # the last one is empty and stands at both ends
        until = block.b if block.size else min(block.b, b + block.a - a)
        if block.a > a or until > b:
            found.append((range(a, block.a), range(b, until)))
        a, b = block.a + block.size, until + block.size
    return found


def claim_score(claim: Findings) -> float:
    """Return the probability that the contexts support a claim."""
    return _probability(_logit(claim.features, WEIGHTS["claim"]))


def answer_score(claims: Sequence[Findings]) -> float:
    """Return the probability that the contexts support the whole answer."""
    logits = [_logit(claim.features, WEIGHTS["claim"]) for claim in claims]
    return _probability(_logit(pool(claims, logits), WEIGHTS["answer"]))


def answer_verdict(weakest: float) -> bool | None:
    """Tell whether the probability that a whole answer is supported decides it; None where it does not."""
    return True if weakest >= WEIGHTS["pass"] else False if weakest <= WEIGHTS["fail"] else None


def claim_verdict(claim: Findings, score: float, mean: float) -> bool | None:
    """Tell whether the words decide a claim of an answer with this mean score; None where they do not."""
    stands_out = not claim.by_value and score <= WEIGHTS["low"] and mean - score >= WEIGHTS["spread"]
    if claim.objections or stands_out:
        return False
    return True if score >= WEIGHTS["claim_pass"] else None


def pool(claims: Sequence[Findings], logits: Sequence[float]) -> dict[str, float]:
    """Pool the features and logits of all claims; shares of words count by the number of words."""
    total = sum(c.size for c in claims) or 1
    return {
        "worst": min(logits),
        "words": sum(c.features["words"] * c.size for c in claims) / total,
        "objected": float(any(c.objections for c in claims)),
    }


def _logit(features: Mapping[str, float], model: Mapping[str, float]) -> float:
    return model["bias"] + sum([model[name] * value for name, value in features.items()])


def _probability(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-_LIMIT, min(_LIMIT, logit))))
