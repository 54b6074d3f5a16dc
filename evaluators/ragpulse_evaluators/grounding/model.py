"""The transparent model behind `groundedness`: features of a sentence against its evidence, one weight each.

Tokens and evidence become `Findings`: numbers that compare the wording, and objections in words. `pool` turns the
findings of sentences into the features of the response.

score = 1 / (1 + exp(-logit)), logit = BIAS + sum of weight x feature; with an objection it stays below the threshold
whatever the wording. `benchmarks/grounding.py --fit` fitted the weights on the tuning half of the BEGIN (Wizard of
Wikipedia) human labels, where rephrased answers of our own count little. BIAS is set so that the wording alone fails
few of the rephrased answers of the tuning half.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from rapidfuzz.distance import LCSseq

from ragpulse_evaluators.grounding import checks, relations
from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex
from ragpulse_evaluators.grounding.facts import quantities
from ragpulse_evaluators.grounding.lexicon import LIGHT_WORDS, LINK_WORDS, OPENERS, SELF_WORDS
from ragpulse_evaluators.grounding.text import Token, Word, tokenize

__all__ = (
    "BIAS",
    "CEILING",
    "FEATURES",
    "THRESHOLD",
    "WEIGHTS",
    "Findings",
    "drawback",
    "grounded_score",
    "measure",
    "pool",
)

_SHARES = ("new_share", "link_share", "order")
_DOUBTS = ("new_run", "new_weight", "self_words", "opener", "question")
FEATURES = (*_SHARES, *_DOUBTS)

_CAP = 3.0
_COVERED = 0.75
_COPIED = 0.8
"""With this share of its words in the order of the evidence a claim is a copy."""
_CLOSE = 0.6
"""With a smaller share a claim is retold: only numbers, units, months, sources and exchanged names are objections."""
_RELATED = 0.5
"""From this share on an unknown name and the subject of another sentence are objections too."""
_LABELLED = re.compile(r"\W*\w+\W*:")
_SENTENCE = 6
_FOREIGN = -0.8
"""A sentence of this many words with a lower logit fails the response, however well the rest of it is supported."""
_SAME_MATTER = 0.5
"""With more new words than this the evidence speaks of something else: what it counts or opposes says nothing."""
_SAME_WORDS = 0.25
"""With more new words than this a denial or another subject is not read reliably."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The wording of one sentence in features, objections and new words in words, and its size."""

    features: Mapping[str, float]
    objections: tuple[str, ...]
    new_words: tuple[str, ...]
    tokens: int
    claim: bool
    """False where the sentence holds no content word."""


def measure(tokens: Sequence[Word], text: str, support: Sequence[ContextSentence], index: EvidenceIndex) -> Findings:
    """Measure one sentence, cut into its words, against its supporting context sentences (best first)."""
    claim = _Claim(tokens, text, support, index)
    features = {**_wording(claim), **_doubts(tokens, text, claim.known)}
    new_words = _new_words(tokens, claim.new, text)
    return Findings(features, tuple(_objections(claim)), new_words, len(tokens), bool(claim.content))


class _Claim:
    """A sentence beside its evidence: which of its words that holds, and which no context does."""

    def __init__(
        self, tokens: Sequence[Word], text: str, support: Sequence[ContextSentence], index: EvidenceIndex
    ) -> None:
        self.tokens, self.text, self.support, self.index = tokens, text, support, index
        self.evidence = [t for s in support for t in s.tokens]
        self.known = frozenset[str]().union(*(s.keys for s in support))
        self.spelled = {key: _evidence_key(key, self.known, index) for key in {t.key for t in tokens}}
        self.keys = [self.spelled[t.key] for t in tokens]
        self.mine = quantities(tokens)
        self.theirs = quantities(self.evidence) if self.mine else []
        self.content = [i for i, t in enumerate(tokens) if t.content]
        self.new = self._new()
        self.weighty = [i for i in self.new if tokens[i].norm not in LIGHT_WORDS]
        self.best = support[0].tokens if support else ()
        self.pieces = relations.cut_clauses(text)
        self.order = LCSseq.similarity(self.keys, [t.key for t in self.best]) / max(1, len(self.keys))

    def _new(self) -> list[int]:
        units = {q.unit for q in self.theirs} - {None}
        counted = {i for q in self.mine for i in range(q.position, q.end + (q.unit in units))}
        fresh = {token for token in set(self.tokens) if token.content and _is_new(token, self.index)}
        return [i for i in self.content if i not in counted and self.tokens[i] in fresh]


def _objections(claim: _Claim) -> Iterator[str]:
    """Yield what each check objects to; those of meaning are only asked where the evidence speaks of the same."""
    tokens, evidence, index = claim.tokens, claim.evidence, claim.index
    new = len(claim.new) / max(1, len(claim.content))
    close, related = claim.order >= _CLOSE, claim.order >= _RELATED
    around = evidence if close or not claim.mine else index.words_of(claim.support)
    yield from checks.check_numbers(claim.mine, claim.theirs if close else quantities(around), around, close=close)
    yield from checks.check_units(claim.mine, claim.theirs)
    yield from checks.check_months(tokens, evidence)
    yield from checks.check_names(tokens, claim.best, index) if related else ()
    if new <= _SAME_WORDS:
        yield from _negation(claim)
        yield from relations.check_exchange(claim.pieces, tokens, index, related=related, close=close)
    if close and new <= _SAME_MATTER:
        yield from checks.check_opposites(tokens, claim.known, evidence)
        yield from checks.check_quantifiers(tokens, evidence)
    if close:
        yield from checks.check_bounds(tokens, claim.mine, evidence, claim.theirs)
    swaps = relations.find_swaps(tokens, claim.keys, claim.weighty, evidence)
    copied = claim.order >= _COPIED and not _LABELLED.match(claim.text)
    yield from relations.check_swaps(swaps, index, tokens[0] if copied else None)
    yield from relations.check_clauses(claim.pieces, index)
    if close:
        yield from relations.check_roles(tokens, claim.support[0], index)
    yield from relations.check_attribution(claim.text, index)


def _wording(claim: _Claim) -> dict[str, float]:
    """Compare the words: shares, runs and order."""
    tokens, known, content = claim.tokens, claim.known, max(1, len(claim.content))
    return {
        "new_share": len(claim.new) / content,
        "link_share": sum([t.norm in LINK_WORDS and t.key not in known for t in tokens]) / max(1, len(tokens)),
        "order": claim.order,
        "new_run": math.log1p(_longest_new_run(claim.keys, known)),
        "new_weight": len(claim.weighty) / content,
    }


def _is_new(token: Word, index: EvidenceIndex) -> bool:
    return token.key not in index.keys and index.near(token.key) is None and not checks.has_alias(token, index.keys)


def _negation(claim: _Claim) -> list[str]:
    """Look at places only where something is negated, and where something speaks of it."""
    if not any([t.negation for t in (*claim.tokens, *claim.evidence)]) or not claim.support:
        return []
    said_before = [t.key for s in sorted(claim.support, key=lambda s: s.number) for t in s.tokens]
    if LCSseq.similarity(claim.keys, said_before) < _CLOSE * len(claim.keys):
        return []
    evidence = [tokenize(s.sentence.text) for s in claim.support]
    said = {t.key for t in claim.tokens}
    covered = [part for n, part in enumerate(evidence) if n == 0 or _said_share(part, said) >= _COVERED]
    return checks.check_negation(
        tokenize(claim.text),
        list(chain(*evidence)),
        evidence[0],
        list(chain(*covered)),
        claim.spelled,
        copied=claim.order * len(claim.tokens) >= _COPIED * sum([not t.negation for t in claim.tokens]),
    )


def _said_share(evidence: Sequence[Word], said: set[str]) -> float:
    content = [t.key for t in evidence if t.content]
    return sum([key in said for key in content]) / max(1, len(content))


def _new_words(tokens: Sequence[Word], new: Sequence[int], text: str) -> tuple[str, ...]:
    if any([tokens[i].kind == "char" for i in new]):
        placed = tokenize(text)
        return tuple(_joined([placed[i] for i in new]))
    return tuple(dict.fromkeys(tokens[i].text for i in new))


def _joined(new: Sequence[Token]) -> list[str]:
    """Characters side by side are one word to a reader."""
    words: list[str] = []
    end = -1
    for token in new:
        if token.kind == "char" and token.start == end:
            words[-1] += token.text
        elif token.text not in words:
            words.append(token.text)
        end = token.end
    return words


def _doubts(tokens: Sequence[Word], text: str, known: frozenset[str]) -> dict[str, float]:
    own = [t for t in tokens if t.norm in SELF_WORDS and t.key not in known and not checks.has_alias(t, known)]
    return {
        "self_words": min(_CAP, len(own)),
        "opener": float(bool(tokens) and tokens[0].norm in OPENERS and tokens[0].key not in known),
        "question": float(text.rstrip().endswith(("?", "？", "؟"))),
    }


def _longest_new_run(keys: Sequence[str], known: frozenset[str]) -> int:
    """Return how many words in a row the evidence does not hold at most."""
    if known.issuperset(keys):
        return 0
    return max((sum(1 for _ in run) for new, run in groupby(k not in known for k in keys) if new), default=0)


def _evidence_key(key: str, keys: frozenset[str], index: EvidenceIndex) -> str:
    other = None if key in keys else index.near(key)
    return other if other in keys and other is not None else key


def pool(sentences: Sequence[Findings]) -> tuple[dict[str, float], bool]:
    """Return the features of a response, and whether any of its sentences meets an objection.

    Shares are averaged by length, doubts are those of the worst sentence. So a long answer is not worse for being long,
    and one wrong number shows however much is right around it.
    """
    total = sum(s.tokens for s in sentences) or 1
    shares = {name: sum(s.features[name] * s.tokens for s in sentences) / total for name in _SHARES}
    worst = {name: max((s.features[name] for s in sentences), default=0.0) for name in _DOUBTS}
    return shares | worst, any(s.objections or _is_foreign(s) for s in sentences)


def _is_foreign(sentence: Findings) -> bool:
    return sentence.claim and sentence.tokens >= _SENTENCE and _logit(sentence.features) < _FOREIGN


THRESHOLD = 0.5
CEILING = -0.2
"""An objection that a reader can verify makes even a copied sentence ungrounded: it holds the logit below this."""
_SLOPE = 0.01
BIAS = 5.654
WEIGHTS: dict[str, float] = {
    "new_share": -3.092,
    "link_share": -7.557,
    "order": 1.991,
    "new_run": -1.192,
    "new_weight": -1.716,
    "self_words": -0.969,
    "opener": -0.671,
    "question": -3.220,
}


def grounded_score(features: Mapping[str, float], *, objected: bool) -> float:
    """Return the score of a sentence or response from its features: 0 made up .. 1 said by the contexts."""
    logit = _logit(features)
    if objected:
        logit = min(logit, CEILING + _SLOPE * logit)
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


def _logit(features: Mapping[str, float]) -> float:
    return BIAS + sum(weight * features[name] for name, weight in WEIGHTS.items())


def drawback(features: Mapping[str, float], names: Iterable[str]) -> str:
    """Return which of these features lowers the score most; one with a positive weight does by what it lacks to 1."""
    return max(names, key=lambda name: max(0.0, WEIGHTS[name]) - WEIGHTS[name] * features[name])
