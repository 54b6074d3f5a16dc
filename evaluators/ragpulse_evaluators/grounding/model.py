"""The transparent model behind `groundedness`: features of a sentence against its evidence, one weight each.

Tokens and evidence become `Findings` (named numbers for the model, reasons for people): shares compare wording, counts
are objections. `pool` turns the findings of sentences into those of the response.

score = 1 / (1 + exp(-logit)), logit = BIAS + sum of weight x feature; with an objection it stays below the threshold
whatever the wording. `benchmarks/grounding.py --fit` fitted the weights of the wording on the tuning half of the BEGIN
(Wizard of Wikipedia) human labels and on rephrased answers of our own, never on the halves that are reported; BIAS is
set so that few of the rephrased answers fall below 0.5. Objections weigh -1 each and were not fitted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from rapidfuzz.distance import LCSseq

from ragpulse_evaluators.grounding import checks, relations
from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex
from ragpulse_evaluators.grounding.facts import quantities
from ragpulse_evaluators.grounding.lexicon import LIGHT_WORDS, LINK_WORDS, OPENERS, OPINIONS, SELF_WORDS
from ragpulse_evaluators.grounding.text import Token, Word, tokenize

__all__ = (
    "BIAS",
    "CEILING",
    "DOUBTS",
    "FEATURES",
    "OBJECTIONS",
    "SHARES",
    "THRESHOLD",
    "WEIGHTS",
    "Findings",
    "drawback",
    "grounded_score",
    "measure",
    "pool",
)

SHARES = ("new_share", "link_share", "order")
DOUBTS = ("new_run", "new_weight", "opinions", "self_words", "opener", "question")
OBJECTIONS = (
    "numbers",
    "units",
    "months",
    "names",
    "negation",
    "opposites",
    "quantifiers",
    "bounds",
    "swaps",
    "clauses",
    "exchange",
    "roles",
    "attribution",
)
FEATURES = (*SHARES, *DOUBTS, *OBJECTIONS)

_SHOWN_WORDS = 5
_CAP = 3.0
_COVERED = 0.75
_COPIED = 0.8
"""With this share of its words in the order of the evidence a claim is a copy."""
_SAME_MATTER = 0.5
"""With more new words than this the evidence speaks of something else: what it counts or opposes says nothing."""
_SAME_WORDS = 0.25
"""With more new words than this a sentence is retold: what it denies, and of whom it speaks, is not read reliably."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Features of one sentence by name, reasons for doubt in words, and its size."""

    values: Mapping[str, float]
    reasons: tuple[str, ...]
    tokens: int
    claim: bool
    """False where the sentence holds no content word."""


NO_CLAIM = Findings(dict.fromkeys(FEATURES, 0.0), (), 0, False)
"""What is found of a sentence that claims nothing: it is not measured."""


def measure(tokens: Sequence[Word], text: str, support: Sequence[ContextSentence], index: EvidenceIndex) -> Findings:
    """Measure one sentence, cut into its words, against its supporting context sentences (best first)."""
    claim = _Claim(tokens, text, support, index)
    swaps = relations.find_swaps(tokens, claim.keys, claim.weighty, claim.evidence)
    objections = _objections(claim, swaps)
    values = {
        **_wording(claim),
        **_doubts(tokens, text, claim.known),
        **{name: min(_CAP, len(found)) for name, found in objections.items()},
    }
    reasons = _new_words(tokens, claim.new, text) + [reason for found in objections.values() for reason in found]
    return Findings(values, tuple(reasons), len(tokens), bool(claim.content))


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


def _objections(claim: _Claim, swaps: Sequence[relations.Swap]) -> dict[str, list[str]]:
    """Return what each check objects to; those of meaning are only asked where the evidence speaks of the same."""
    tokens, evidence = claim.tokens, claim.evidence
    new = len(claim.new) / max(1, len(claim.content))
    same_matter, same_words = new <= _SAME_MATTER, new <= _SAME_WORDS
    return {
        "numbers": checks.check_numbers(claim.mine, claim.theirs, evidence),
        "units": checks.check_units(claim.mine, claim.theirs),
        "months": checks.check_months(tokens, evidence),
        "names": checks.check_names(tokens, claim.best, claim.index),
        "negation": _negation(claim) if same_words else [],
        "opposites": checks.check_opposites(tokens, claim.known, evidence) if same_matter else [],
        "bounds": checks.check_bounds(tokens, claim.mine, evidence, claim.theirs),
        "quantifiers": checks.check_quantifiers(tokens, evidence) if same_matter else [],
        "swaps": relations.check_swaps(swaps, claim.index, tokens[0] if claim.order >= _COPIED else None),
        "clauses": relations.check_clauses(claim.pieces, claim.index),
        "exchange": relations.check_exchange(claim.pieces, tokens, claim.index) if same_words else [],
        "roles": relations.check_roles(tokens, claim.support[0], claim.index) if claim.support and same_matter else [],
        "attribution": relations.check_attribution(claim.text, claim.index),
    }


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
    evidence = [tokenize(s.sentence.text) for s in claim.support]
    said = {t.key for t in claim.tokens}
    covered = [part for n, part in enumerate(evidence) if n == 0 or _said_share(part, said) >= _COVERED]
    return checks.check_negation(
        tokenize(claim.text),
        list(chain(*evidence)),
        evidence[0],
        list(chain(*covered)),
        claim.spelled,
        copied=claim.order >= _COPIED,
    )


def _said_share(evidence: Sequence[Word], said: set[str]) -> float:
    content = [t.key for t in evidence if t.content]
    return sum([key in said for key in content]) / max(1, len(content))


def _new_words(tokens: Sequence[Word], new: Sequence[int], text: str) -> list[str]:
    unspaced = any([tokens[i].kind == "char" for i in new])
    placed = tokenize(text) if unspaced else []
    words = _joined([placed[i] for i in new]) if unspaced else list(dict.fromkeys(tokens[i].text for i in new))
    more = ", ..." if len(words) > _SHOWN_WORDS else ""
    return ["not in the contexts: " + ", ".join(f"'{w}'" for w in words[:_SHOWN_WORDS]) + more] if words else []


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
        "opinions": min(_CAP, sum([t.norm in OPINIONS and t.key not in known for t in tokens])),
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


def pool(sentences: Sequence[Findings]) -> dict[str, float]:
    """Return the features of a response: shares averaged by length, doubts and objections of the worst sentence.

    So a long answer is not worse for being long, and one wrong number shows however much is right around it.
    """
    total = sum(f.tokens for f in sentences) or 1
    shares = {name: sum(f.values[name] * f.tokens for f in sentences) / total for name in SHARES}
    worst = {name: max((f.values[name] for f in sentences), default=0.0) for name in (*DOUBTS, *OBJECTIONS)}
    return shares | worst


THRESHOLD = 0.5
CEILING = -0.2
"""An objection that a reader can verify makes even a copied sentence ungrounded: it holds the logit below this."""
_SLOPE = 0.01
BIAS = 4.516
WEIGHTS: dict[str, float] = {
    "new_share": -2.643,
    "link_share": -4.337,
    "order": 0.737,
    "new_run": -1.114,
    "new_weight": -1.523,
    "opinions": -0.893,
    "self_words": -1.066,
    "opener": -0.809,
    "question": -2.594,
    **dict.fromkeys(OBJECTIONS, -1.0),
}


def grounded_score(features: Mapping[str, float]) -> float:
    """Return the score of a sentence or response from its features: 0 made up .. 1 said by the contexts."""
    logit = BIAS + sum(weight * features[name] for name, weight in WEIGHTS.items())
    if any(features[name] for name in OBJECTIONS):
        logit = min(logit, CEILING + _SLOPE * logit)
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


def drawback(features: Mapping[str, float], names: Iterable[str]) -> str:
    """Return which of these features lowers the score most; one with a positive weight does by what it lacks to 1."""
    return max(names, key=lambda name: max(0.0, WEIGHTS[name]) - WEIGHTS[name] * features[name])
