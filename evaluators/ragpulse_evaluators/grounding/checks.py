"""Checks that word overlap cannot make: numbers, units, months, names, negation, opposites, exchanged words.

Each takes a sentence and its evidence and returns the objections as sentences a reader can verify; no objection, no
doubt. On human-labelled supported answers each fires in well under 1 in 100, so an objection weighs much.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rapidfuzz.distance import Levenshtein

from ragpulse_evaluators.grounding.evidence import EvidenceIndex
from ragpulse_evaluators.grounding.facts import Quantity, months, names, negations
from ragpulse_evaluators.grounding.lexicon import ALIASES, LIGHT_WORDS, OPINIONS, OPPOSITES, ORDINALS
from ragpulse_evaluators.grounding.text import Token, Word, stem

__all__ = [
    "check_months",
    "check_names",
    "check_negation",
    "check_numbers",
    "check_opposites",
    "check_swaps",
    "check_units",
    "has_alias",
]

_CLAUSE_BREAKS = frozenset({"but", "and", "because", "so", "pero", "mas", "aber", "mais"})
_NEGATION_BEFORE = 6
_NEGATION_AFTER = 2
_MAX_NEGATIONS = 20
_MAX_SWAPS = 20
_MAX_PLACES = 40
_SAME_SPELLING = 0.7
_INFLECTED = ("ing", "ed", "ly")
_LONGEST_NAME = 5


def check_numbers(mine: Sequence[Quantity], theirs: Sequence[Quantity], evidence: Sequence[Word]) -> list[str]:
    """Object to numbers the evidence does not hold; 1 is no number ("one of them"), "2nd" is "second"."""
    if not mine:
        return []
    known = {"1"}.union(*(q.values for q in theirs), (str(ORDINALS[t.norm]) for t in evidence if t.norm in ORDINALS))
    return [f"number {q.text} not in the evidence" for q in mine if not q.values & known]


def check_units(mine: Sequence[Quantity], theirs: Sequence[Quantity]) -> list[str]:
    """Object to a number that the evidence gives in another unit only."""
    objections = []
    for quantity in mine:
        same = [q for q in theirs if q.values & quantity.values]
        if quantity.unit and same and all(q.unit and q.unit != quantity.unit for q in same):
            objections.append(f"unit of {quantity.text} differs: {quantity.unit} here, {same[0].unit} in the evidence")
    return objections


def check_months(tokens: Sequence[Word], evidence: Sequence[Word]) -> list[str]:
    """Object to months the evidence does not name."""
    mine = months(tokens)
    theirs = months(evidence) if mine else {}
    return [f"month '{word}' not in the evidence" for month, word in mine.items() if month not in theirs]


def check_names(tokens: Sequence[Word], index: EvidenceIndex) -> list[str]:
    """Object to names that occur in no context."""
    unknown = {
        t.text: None
        for t in names(tokens)
        if t.key not in index.keys and not index.near(t.key) and not has_alias(t, index.keys)
    }
    return [f"name '{name}' absent from the contexts" for name in unknown]


def has_alias(token: Word, keys: frozenset[str]) -> bool:
    """Tell whether a short form ("UK") is written out in the evidence."""
    full = ALIASES.get(token.norm)
    return full is not None and all(part in keys for part in full)


def check_negation(tokens: Sequence[Token], evidence: Sequence[Token]) -> list[str]:
    """Object where the same word is negated on one side only; evidence that says it both ways decides nothing."""
    mine, theirs = negations(tokens)[:_MAX_NEGATIONS], negations(evidence)[:_MAX_NEGATIONS]
    if any(_unmatched(_scope(i, tokens), evidence, theirs) for i in mine):
        return ["negated here, not in the evidence"]
    once = {key for key, count in Counter(t.key for t in evidence).items() if count == 1} if theirs else set()
    if any(_unmatched([k for k in _scope(i, evidence) if k in once], tokens, mine) for i in theirs):
        return ["negated in the evidence, not here"]
    return []


def _unmatched(scope: Sequence[str], there: Sequence[Word], negated: Sequence[int]) -> bool:
    """Tell whether the nearest word of the scope that the other side has is not negated there."""
    for key in scope:
        places = [i for i, t in enumerate(there) if t.key == key]
        if places:
            return not any(-_NEGATION_BEFORE <= n - i <= _NEGATION_AFTER for i in places for n in negated)
    return False


def _scope(position: int, here: Sequence[Token]) -> list[str]:
    """Return the content words a negation may govern: those that follow it in its clause, nearest first."""
    scope: list[str] = []
    for before, token in pairwise(here[position : position + 8]):
        if token.norm in _CLAUSE_BREAKS or not 0 <= token.start - before.end <= 1:
            break
        if not token.function:
            scope.append(token.key)
    return scope[:3]


def check_opposites(tokens: Sequence[Word], keys: frozenset[str]) -> list[str]:
    """Object to a word where the evidence has its opposite ("before" for "after") and not the word itself."""
    objections = []
    for token in [t for t in tokens if t.norm in OPPOSITES and t.key not in keys]:
        other = next((o for o in sorted(OPPOSITES[token.norm]) if stem(o) in keys), None)
        if other:
            objections.append(f"'{token.text}' here, '{other}' in the evidence")
    return objections


def check_swaps(tokens: Sequence[Word], keys: Sequence[str], new: Sequence[int], evidence: Sequence[Word]) -> list[str]:
    """Object to a new word that stands where the evidence has another one beside the same neighbours.

    It finds an exchanged name also in text without capitals. `keys` are those of the tokens as the evidence spells
    them, `new` the positions of the new words. Another spelling of the same word is no exchange.
    """
    exchanged = [i for i in new if _may_be_name(tokens[i])][:_MAX_SWAPS]
    places: dict[str, list[int]] = {}
    for i, token in enumerate(evidence if exchanged else ()):
        places.setdefault(token.key, []).append(i)
    objections = []
    for i in exchanged:
        other = next((t for t in _in_place(i, keys, places, evidence) if t.key not in keys), None)
        if other and not _same_word(tokens[i], other):
            objections.append(f"'{tokens[i].text}' here, '{other.text}' in the evidence")
    return objections


def _may_be_name(token: Word) -> bool:
    """Tell a noun or name from an inflected verb or an adverb, which a paraphrase exchanges freely."""
    inflected = token.text.islower() and len(token.norm) > _LONGEST_NAME and token.norm.endswith(_INFLECTED)
    return token.kind == "word" and token.norm not in LIGHT_WORDS | OPINIONS and not inflected


def _same_word(token: Word, other: Word) -> bool:
    """Tell whether two words are spellings of one, or one is short for the other ("app", "application")."""
    short, long = sorted((token.key, other.key), key=len)
    return long.startswith(short) or Levenshtein.normalized_similarity(short, long) >= _SAME_SPELLING


def _in_place(
    i: int, keys: Sequence[str], places: Mapping[str, Sequence[int]], evidence: Sequence[Word]
) -> Iterator[Word]:
    """Yield content words of the evidence whose neighbours (two on one side at an end) are those of position i."""
    near, far = (1, 2) if i == 0 else (-1, -2) if i == len(keys) - 1 else (-1, 1)
    if not 0 <= i + far < len(keys):
        return
    for j in (place - near for place in places.get(keys[i + near], ())[:_MAX_PLACES]):
        inside = min(j, j + far) >= 0 and max(j, j + far) < len(evidence)
        if inside and evidence[j + far].key == keys[i + far] and not evidence[j].function and _may_be_name(evidence[j]):
            yield evidence[j]
