"""What is measured on one response sentence against its evidence, and the reasons a reader can check.

Fourth stage of the offline checks: tokens + evidence → `Findings` (named numbers for the model, reasons for people).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rapidfuzz.distance import LCSseq

from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex
from ragpulse_evaluators.grounding.facts import months, names, negations, quantities
from ragpulse_evaluators.grounding.lexicon import OPPOSITES, SELF_WORDS
from ragpulse_evaluators.grounding.text import Token

__all__ = ["FEATURES", "Findings", "measure"]

FEATURES = (
    "novel_share",
    "novel_count",
    "near_share",
    "elsewhere_share",
    "self_words",
    "novel_function_share",
    "novel_bigrams",
    "order",
    "numbers",
    "units",
    "months",
    "names",
    "negation",
    "opposites",
    "length",
    "question",
    "no_content",
    "novel_run",
    "new_bigrams",
    "qnovel",
    "longest",
    "first_novel",
    "recall",
    "short",
)
_NEGATION_REACH = 4
_SHOWN_WORDS = 5


@dataclass(slots=True)
class Findings:
    """Feature values by name, and the reasons for doubt in words."""

    values: dict[str, float]
    reasons: list[str] = field(default_factory=list)


def measure(
    tokens: Sequence[Token],
    text: str,
    support: Sequence[ContextSentence],
    index: EvidenceIndex,
    query: frozenset[str] = frozenset(),
) -> Findings:
    """Measure one sentence against its supporting context sentences."""
    found = Findings(dict.fromkeys(FEATURES, 0.0))
    keys = frozenset().union(*(s.keys for s in support)) if support else frozenset()
    _words(tokens, keys, index, found, query)
    _arrangement(tokens, support, keys, found)
    evidence = [t for s in support for t in s.tokens]
    _quantities(tokens, evidence, index, found)
    _months(tokens, evidence, found)
    _names(tokens, index, found)
    _negation(tokens, support, found)
    _opposites(tokens, keys, found)
    found.values["question"] = float(text.rstrip().endswith(("?", "？", "؟")))
    return found


def _words(
    tokens: Sequence[Token], keys: frozenset[str], index: EvidenceIndex, found: Findings, query: frozenset[str]
) -> None:
    content = [t for t in tokens if not t.function and t.kind != "sign"]
    novel, near, elsewhere, run, longest, qn = [], 0, 0, 0, 0, 0
    for token in content:
        if token.key in keys:
            run = 0
            continue
        if (other := index.near(token.key)) and other in keys:
            near += 1
            run = 0
            continue
        if token.key in index.keys:
            elsewhere += 1
            continue
        novel.append(token)
        qn += token.key in query
        run += 1
        longest = max(run, longest)
    n = max(1, len(content))
    functions = [t for t in tokens if t.function]
    if novel:
        words = ", ".join(f"'{t.text}'" for t in novel[:_SHOWN_WORDS]) + (", ..." if len(novel) > _SHOWN_WORDS else "")
        found.reasons.append(f"not in the contexts: {words}")
    v = found.values
    v["novel_share"] = len(novel) / n
    v["novel_count"] = math.log1p(len(novel))
    v["near_share"] = near / n
    v["elsewhere_share"] = elsewhere / n
    v["no_content"] = float(not content)
    v["novel_run"] = math.log1p(longest)
    v["qnovel"] = math.log1p(qn)
    v["first_novel"] = float(bool(content) and content[0] in novel)
    v["self_words"] = min(3.0, sum(t.norm in SELF_WORDS and t.key not in keys for t in tokens))
    v["novel_function_share"] = sum(t.key not in keys for t in functions) / max(1, len(functions))
    v["length"] = math.log1p(len(tokens))
    v["short"] = float(len(content) <= 2)


def _arrangement(
    tokens: Sequence[Token], support: Sequence[ContextSentence], keys: frozenset[str], found: Findings
) -> None:
    mine = [t.key for t in tokens]
    pairs = list(pairwise(mine))
    theirs = {(a.key, b.key) for s in support for a, b in pairwise(s.tokens)}
    known = [p for p in pairs if p[0] in keys and p[1] in keys]
    v = found.values
    new = [p for p in pairs if p not in theirs]
    v["novel_bigrams"] = len(new) / max(1, len(pairs))
    v["new_bigrams"] = sum(p not in theirs for p in known) / max(1, len(pairs))
    best = 0.0
    for s in support[:1]:
        other = [t.key for t in s.tokens]
        best = LCSseq.similarity(mine, other) / max(1, len(mine))
        c = {t.key for t in s.tokens if not t.function}
        v["recall"] = len(c & set(mine)) / max(1, len(c))
    v["order"] = best
    run = longest = 0
    for p in pairs:
        run = run + 1 if p in theirs else 0
        longest = max(run, longest)
    v["longest"] = longest / max(1, len(pairs))


def _quantities(tokens: Sequence[Token], evidence: Sequence[Token], index: EvidenceIndex, found: Findings) -> None:
    mine = quantities(tokens)
    if not mine:
        return
    theirs = quantities(evidence)
    for quantity in mine:
        same = [q for q in theirs if q.values & quantity.values]
        if not same:
            found.values["numbers"] += 1
            found.reasons.append(f"number {quantity.text} not in the evidence")
        elif quantity.unit and all(q.unit and q.unit != quantity.unit for q in same):
            found.values["units"] += 1
            found.reasons.append(f"unit of {quantity.text} differs: {quantity.unit} against {same[0].unit}")


def _months(tokens: Sequence[Token], evidence: Sequence[Token], found: Findings) -> None:
    mine = months(tokens)
    theirs = months(evidence) if mine else {}
    for month, word in mine.items():
        if month not in theirs:
            found.values["months"] += 1
            found.reasons.append(f"month '{word}' not in the evidence")


def _names(tokens: Sequence[Token], index: EvidenceIndex, found: Findings) -> None:
    for token in names(tokens):
        if token.key not in index.keys and not index.near(token.key):
            found.values["names"] += 1
            found.reasons.append(f"name '{token.text}' absent from the contexts")


def _negation(tokens: Sequence[Token], support: Sequence[ContextSentence], found: Findings) -> None:
    mine = negations(tokens)
    evidence = support[0].tokens if support else ()
    theirs = negations(evidence)
    if not mine and not theirs:
        return
    if any(_unmatched(i, tokens, evidence, theirs) for i in mine):
        found.values["negation"] = 1.0
        found.reasons.append("negated here, not in the evidence")
    elif any(_unmatched(i, evidence, tokens, mine) for i in theirs):
        found.values["negation"] = 1.0
        found.reasons.append("negated in the evidence, not here")


def _unmatched(position: int, here: Sequence[Token], there: Sequence[Token], negated: Sequence[int]) -> bool:
    scope = [t.key for t in here[position + 1 : position + 1 + _NEGATION_REACH] if not t.function][:2]
    places = [i for i, t in enumerate(there) if t.key in scope]
    return bool(places) and not any(abs(i - n) <= _NEGATION_REACH + 1 for i in places for n in negated)


def _opposites(tokens: Sequence[Token], keys: frozenset[str], found: Findings) -> None:
    for token in tokens:
        opposites = OPPOSITES.get(token.norm)
        if opposites and token.key not in keys:
            other = next((o for o in opposites if o in keys or o.rstrip("e") in keys), None)
            if other:
                found.values["opposites"] += 1
                found.reasons.append(f"says '{token.text}' where the evidence says '{other}'")
