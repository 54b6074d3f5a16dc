"""Checks that word overlap cannot make: numbers, units, months, names, negation, opposites, exchanged words.

Each takes a sentence and its evidence and returns the objections as sentences a reader can verify; no objection, no
doubt. On human-labelled supported answers each fires in well under 1 in 100, so an objection weighs much.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product

from ragpulse_evaluators.grounding.evidence import EvidenceIndex
from ragpulse_evaluators.grounding.facts import Quantity, months, names, negations
from ragpulse_evaluators.grounding.lexicon import ALIASES, LIGHT_WORDS, MONTHS, ORDINALS
from ragpulse_evaluators.grounding.meanings import BOUNDS, BOUNDS_AFTER, DENIALS, OPPOSITES, QUANTIFIERS
from ragpulse_evaluators.grounding.text import Token, Word

__all__ = [
    "check_bounds",
    "check_months",
    "check_names",
    "check_negation",
    "check_numbers",
    "check_opposites",
    "check_quantifiers",
    "check_units",
    "derived_values",
    "has_alias",
    "turned",
]

_CLAUSE_BREAKS = frozenset({"but", "and", "because", "so", "pero", "mas", "aber", "mais"})
_NEGATION_BEFORE = 6
_NEGATION_AFTER = 5
THAN = frozenset({"than", "als", "que", "比"})
_BY = frozenset({"by", "von", "por", "par", "durch"})
_BE = frozenset({"is", "are", "was", "were", "be", "been", "being", "gets", "got", "wird", "wurde", "wurden", "est"})
_BOUND_NAMES = {"least": "minimum", "most": "maximum"}
_BOUND_REACH = 9
_FACTORS = {
    "half": 0.5,
    "quarter": 0.25,
    "quarters": 0.25,
    "twice": 2.0,
    "double": 2.0,
    "doubles": 2.0,
    "halves": 0.5,
    "halved": 0.5,
    "cent": 0.01,
    "cents": 0.01,
}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_NAMED = {"noon": "12", "midnight": "12"} | {word: str(value) for word, value in ORDINALS.items()}
_MAX_COUNTS = 12
_POSITIVE = re.compile(r"[1-9]\d*")
_NONE = frozenset[str]()
_UN = ("un", "non")
_SHORTEST_TURNED = 4
_MAX_NEGATIONS = 20


def check_numbers(
    numbers: Sequence[Quantity], known: Sequence[Quantity], evidence: Sequence[Word], *, close: bool
) -> list[str]:
    """Object to numbers the evidence does not hold; 1 is no number ("one of them"), "2nd" is "second".

    A number in letters may count what the evidence lists ("all three") or follow from it ("two hours later"): it is an
    objection only `close` to the wording of the evidence, and where that has another number. Elsewhere a number may
    be the sum or the difference of two.
    """
    unknown = [q for q in numbers if not any(q.values & k.values or q.agrees(k) for k in known)]
    if not unknown:
        return []
    derived = derived_values(known, evidence)
    if not close:
        derived |= _sums(known)
    other = close and any(not any(q.values & k.values or q.agrees(k) for q in numbers) for k in known)
    return [
        f"number {q.text} not in the evidence"
        for q in unknown
        if not q.values & derived and (other or not q.text.isalpha() or len(q.text) < 2)
    ]


def derived_values(known: Sequence[Quantity], evidence: Sequence[Word]) -> set[str]:
    """Return values that the evidence says in words: "half", "one in two" are 50 (percent), "50 cents" are 0.50."""
    counts = [float(value) for q in known for value in q.values if _NUMBER.fullmatch(value)]
    factors = {_FACTORS[t.norm] for t in evidence if t.norm in _FACTORS}
    for count, part in pairwise(evidence):
        if (count.numeric or count.norm == "a") and part.norm.removesuffix("s") in ORDINALS:
            factors.add(1 / ORDINALS[part.norm.removesuffix("s")])
    parts = {count * factor for count, factor in product((1.0, *counts), factors)}
    for part, link, whole in zip(evidence, evidence[1:], evidence[2:], strict=False):
        if link.norm in ("in", "of") and _NUMBER.fullmatch(part.key) and _POSITIVE.fullmatch(whole.key):
            parts.add(float(part.key) / float(whole.key))
    percent = {100 * part for part in parts if part < 1}
    named = {_NAMED[t.norm] for t in evidence if t.norm in _NAMED}
    return {"1"} | named | {f"{value:.10g}" for value in parts | percent | {float(round(value)) for value in percent}}


def _sums(known: Sequence[Quantity]) -> set[str]:
    """Return sums and differences of two numbers, those below 1 as hundredths too ("50 cents more")."""
    counts = [float(value) for q in known[:_MAX_COUNTS] for value in q.values if _NUMBER.fullmatch(value)]
    sums = {abs(value) for a, b in combinations(counts, 2) for value in (a + b, a - b)}
    return {f"{value:.10g}" for value in sums | {100 * value for value in sums if value < 1}}


def check_units(numbers: Sequence[Quantity], known: Sequence[Quantity]) -> list[str]:
    """Object to a number that the evidence gives in another unit only; in letters only to units of one sort."""
    objections = []
    for quantity in numbers:
        same = [q for q in known if q.values & quantity.values]
        if quantity.text.isalpha() and not any(q.sort == quantity.sort for q in same):
            continue
        if quantity.unit and same and all(q.unit for q in same) and not any(q.agrees(quantity) for q in known):
            objections.append(f"unit of {quantity.text} differs: {quantity.unit} here, {same[0].unit} in the evidence")
    return objections


def check_bounds(
    tokens: Sequence[Word], mine: Sequence[Quantity], evidence: Sequence[Word], theirs: Sequence[Quantity]
) -> list[str]:
    """Object to "at least 5" where the evidence says "up to 5"; a negation before a bound may turn it round."""
    objections: list[str] = []
    for quantity in mine:
        bound = _bound(tokens, quantity)
        same = {_bound(evidence, q) for q in theirs if q.agrees(quantity)}
        if bound and same and same <= _BOUND_NAMES.keys() and bound not in same:
            objections.append(f"{quantity.text} is the {_BOUND_NAMES[bound]} here, the other bound in the evidence")
    return objections


def _bound(tokens: Sequence[Word], quantity: Quantity) -> str | None:
    """Tell whether a number is a lower or an upper bound, by the words before it or right after it."""
    after = [t.norm for t in tokens[quantity.end : quantity.end + 4]]
    if bound := next((BOUNDS_AFTER[pair] for pair in pairwise(after) if pair in BOUNDS_AFTER), None):
        return bound
    before = [t for t in tokens[max(0, quantity.position - _BOUND_REACH) : quantity.position] if t.kind != "sign"]
    if any(t.negation for t in before):
        return None
    phrase = " ".join(t.norm for t in before[-2:])
    return BOUNDS.get(phrase) or (BOUNDS.get(before[-1].norm) if before else None)


def check_quantifiers(tokens: Sequence[Word], evidence: Sequence[Word]) -> list[str]:
    """Object to "all" where the evidence says "most" of the same, and the like: how many differs, or how often."""
    theirs = _quantified(evidence)
    if not theirs:
        return []
    mine = _quantified(tokens)
    groups, others = {group for group, _, _ in mine}, {group for group, _, _ in theirs}
    return [
        f"'{word.text}' here, '{other.text}' in the evidence"
        for group, word, near in mine
        for left_out, other, around in theirs
        if group not in others and left_out not in groups and near & around
    ][:1]


def _quantified(tokens: Sequence[Word]) -> list[tuple[str, Word, set[str]]]:
    """Return group and word of each quantifier, and the content words around it; "some 50" counts nothing."""
    return [
        (QUANTIFIERS[t.norm], t, _content_of(tokens[max(0, i - 3) : i + 5], None) - {t.key})
        for i, t in enumerate(tokens)
        if t.norm in QUANTIFIERS and not any(n.kind == "number" for n in tokens[i + 1 : i + 2])
    ]


def check_months(tokens: Sequence[Word], evidence: Sequence[Word]) -> list[str]:
    """Object to months the evidence does not name."""
    mine = months(tokens)
    theirs = months(evidence) if mine else {}
    return [f"month '{word}' not in the evidence" for month, word in mine.items() if month not in theirs]


def check_names(tokens: Sequence[Word], best: Sequence[Word], index: EvidenceIndex) -> list[str]:
    """Object to names that occur in no context, where the evidence has a name that the claim leaves out."""
    unknown = {
        t.text: None
        for t in names(tokens)
        if t.norm not in MONTHS
        and t.key not in index.keys
        and not index.near(t.key)
        and not has_alias(t, index.keys)
        and not _initials(t, best)
    }
    said = {t.key for t in tokens} if unknown else set()
    exchanged = not index.cased or any((t.key in index.names or t.capital) and t.key not in said for t in best)
    return [f"name '{name}' absent from the contexts" for name in unknown] if exchanged else []


def _initials(token: Word, evidence: Sequence[Word]) -> bool:
    """Tell whether capitals are the first letters of words in a row ("NDA", "non-disclosure agreement")."""
    return token.text.isupper() and token.norm in "".join(t.norm[0] for t in evidence)


def has_alias(token: Word, keys: frozenset[str]) -> bool:
    """Tell whether a short form ("UK") is written out in the evidence."""
    full = ALIASES.get(token.norm)
    return full is not None and all(part in keys for part in full)


def check_negation(
    tokens: Sequence[Token],
    evidence: Sequence[Token],
    best: Sequence[Token],
    covered: Sequence[Token],
    spelled: Mapping[str, str],
    *,
    copied: bool,
) -> list[str]:
    """Object where the same word is negated on one side only; evidence that says it both ways decides nothing.

    A word like "unless" or "until" beside it in the evidence may deny it too. A claim that copies the best sentence
    denies as often as that does. What the claim leaves out counts only where it says the rest of that sentence: in
    the `covered` ones.
    """
    mine, theirs = negations(tokens)[:_MAX_NEGATIONS], negations(best)[:_MAX_NEGATIONS]
    if copied and len(mine) > len(theirs):
        return ["negated here, not in the evidence"]
    if copied and len(mine) < len(theirs) and len(best) - len(tokens) <= len(theirs) + 1:
        return ["negated in the evidence, not here"]
    scopes = [[spelled.get(key, key) for key in _scope(i, tokens)] for i in mine]
    denials = _denials(evidence, tokens)
    if any(_unmatched(scope, evidence, denials) for scope in scopes):
        return ["negated here, not in the evidence"]
    theirs = negations(covered)[:_MAX_NEGATIONS]
    once = {key for key, count in Counter(t.key for t in covered).items() if count == 1} if theirs else set()
    scopes = [[key for key in _scope(i, covered) if key in once] for i in theirs]
    denials = _denials(tokens, covered)
    if any(_unmatched(scope, tokens, denials) for scope in scopes):
        return ["negated in the evidence, not here"]
    return []


def _denials(tokens: Sequence[Token], others: Sequence[Token]) -> list[int]:
    """Positions of whatever may deny something: negations, and words that deny and that the other side does without."""
    shared = {t.norm for t in others}
    return [
        i
        for i, t in enumerate(tokens)
        if t.negation or (t.norm not in shared and (t.norm in DENIALS or _negative(t.norm)))
    ]


def _unmatched(scope: Sequence[str], there: Sequence[Word], negated: Sequence[int]) -> bool:
    """Tell whether the nearest word of the scope that the other side has is not negated there."""
    for key in scope:
        places = [i for i, t in enumerate(there) if t.key == key]
        if places or any(t.key.startswith("un") and key.startswith(t.key[2:]) for t in there if len(t.key) > 3):
            return bool(places) and not any(_governs(there, n, i) for i in places for n in negated)
    return False


def _negative(word: str) -> bool:
    return len(word) > _SHORTEST_TURNED and (
        word.startswith(("un", "non", "dis", "im", "ir", "il")) or word.endswith("less")
    )


def _governs(tokens: Sequence[Word], negation: int, place: int) -> bool:
    """Tell whether a negation may deny the word at a place, from before it or from after it in its clause."""
    if negation == place:  # "largest" may deny other words, never itself.
        return False
    if negation < place:
        return place - negation <= _NEGATION_BEFORE
    between = tokens[place + 1 : negation]
    return len(between) < _NEGATION_AFTER and not any(t.norm in _CLAUSE_BREAKS for t in between)


def _scope(position: int, here: Sequence[Token]) -> list[str]:
    """Return the content words a negation may govern: those that follow it in its clause, nearest first.

    At the end of a clause it governs what stands before it (German "nicht"); "no more than" is a bound and governs
    nothing.
    """
    following = list(_clause(here[position : position + 8]))
    if any(one.norm in THAN and other.numeric for one, other in pairwise(following)):
        return []
    return [
        t.key
        for t in following or _clause(here[max(0, position - 7) : position + 1][::-1])
        if t.content and t.norm not in LIGHT_WORDS
    ][:3]


def _clause(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens after the first one, as far as no other clause begins."""
    for one, other in pairwise(tokens):
        if other.norm in _CLAUSE_BREAKS or not 0 <= max(one.start, other.start) - min(one.end, other.end) <= 1:
            return
        yield other


def check_opposites(tokens: Sequence[Word], known: frozenset[str], evidence: Sequence[Word]) -> list[str]:
    """Object to a word where the evidence has its opposite ("before" for "after") and no word like it.

    Where the sides are exchanged as well ("A is higher than B", "B is lower than A"), or one side denies the opposite
    ("forbidden", "not allowed"), both say the same.
    """
    objections = []
    said, theirs = Counter(t.key for t in tokens), Counter(t.key for t in evidence)
    for i, token in enumerate(tokens):
        others = opposites(token.norm)
        if not others or (token.key in known and theirs[token.key] >= said[token.key]):
            continue
        place = next((j for j, t in enumerate(evidence) if t.norm in others and said[t.key] < theirs[t.key]), None)
        if place is None or (token.key not in known and any(opposites(t.norm) & others for t in evidence)):
            continue
        if _denied(tokens, i) == _denied(evidence, place) and not turned(tokens, i, evidence, place, loosely=True):
            objections.append(f"'{token.text}' here, '{evidence[place].text}' in the evidence")
    return objections


def opposites(word: str) -> frozenset[str]:
    """Return the words that say the opposite: those of the list, and those that a prefix turns ("unused")."""
    found = OPPOSITES.get(word, _NONE)
    if word.isascii() and len(word) > _SHORTEST_TURNED:
        turned_by = {prefix + word for prefix in _UN}
        turned_by |= {word[len(prefix) :] for prefix in _UN if word.startswith(prefix)}
        return found | turned_by
    return found


def _denied(tokens: Sequence[Word], i: int) -> bool:
    return any(t.negation for t in tokens[max(0, i - 3) : i])


def turned(
    tokens: Sequence[Word],
    i: int,
    evidence: Sequence[Word],
    j: int,
    names: frozenset[str] | None = None,
    *,
    loosely: bool = False,
) -> bool:
    """Tell whether what stands around place i stands around place j the other way round; "by" turns it once more.

    With `names` only these keys count, else all content words.
    """
    before, after = _content_of(tokens[max(0, i - 7) : i], names), _content_of(tokens[i + 1 : i + 9], names)
    left, right = _content_of(evidence[max(0, j - 7) : j], names), _content_of(evidence[j + 1 : j + 9], names)
    before, after, left, right = before - after, after - before, left - right, right - left
    if _passive(tokens, i) != _passive(evidence, j):
        left, right = right, left
    crossed, straight = len(before & right) + len(after & left), len(before & left) + len(after & right)
    return crossed > straight and (loosely or bool(before & right and after & left))


def _content_of(tokens: Sequence[Word], names: frozenset[str] | None) -> set[str]:
    return {t.key for t in tokens if t.content and (names is None or t.key in names)}


def _passive(tokens: Sequence[Word], i: int) -> bool:
    """Tell whether the word at a place is a verb in the passive: "was bought by"."""
    return any(t.norm in _BE for t in tokens[max(0, i - 3) : i]) and any(t.norm in _BY for t in tokens[i + 1 : i + 5])
