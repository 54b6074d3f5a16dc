"""Objections to what is said of whom: an entity, a subject, a source or a number taken from elsewhere in the contexts.

Every word of such a claim is in the contexts, but not together. A claim is cut into clauses; each clause is compared
with the context sentence that says most of it, and with the sentences before it that its pronouns may stand for. A
word that comes from elsewhere is an objection only where that sentence has another one of its kind (a name, a number,
a subject) that the claim leaves out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rapidfuzz.distance import LCSseq, Levenshtein

from ragpulse_evaluators.grounding.checks import THAN, derived_values, opposites, turned
from ragpulse_evaluators.grounding.evidence import ContextSentence, EvidenceIndex
from ragpulse_evaluators.grounding.facts import Quantity, quantities
from ragpulse_evaluators.grounding.lexicon import LIGHT_WORDS, UNITS
from ragpulse_evaluators.grounding.text import Word, words

__all__ = [
    "check_attribution",
    "check_clauses",
    "check_exchange",
    "check_roles",
    "check_swaps",
    "cut_clauses",
    "find_swaps",
]

Swap = tuple[Word, Word]
"""A word of the claim and the one of the evidence whose place it takes."""

_BREAK = re.compile(
    r"[;()—–]|[:,](?!\d)|\s-\s"
    r"|\b(?:and|but|while|whereas|although|though|because|which|who|so that|und|aber|während|weil|y|pero|mientras"
    r"|porque|mas|enquanto|et|mais|tandis que)\b|[，；、。]|并且|而且|但是?|因为|所以",
    re.IGNORECASE,
)
_SHORTEST = 2
_MOST_CLAUSES = 12
_ENOUGH = 0.5
_FOREIGN_WORDS = 4
_KNOWN_SHARE = 0.25
_HELD_SHARE = 0.9
_COPIED_SHARE = 0.9
_AUXILIARIES = frozenset(
    {"is", "are", "was", "were", "be", "been", "has", "have", "had", "can", "could", "will", "would", "must", "may"}
    | {"might", "should", "does", "do", "did", "cannot", "never", "always", "ist", "sind", "war", "waren", "hat"}
    | {"kann", "wird", "muss", "son", "fue", "está", "são", "foi", "tem", "est", "sont", "était"}
)
_ACCORDING = re.compile(
    r"\b(?:according to|as per|said by|reported by|laut|según|selon|segundo) ((?:[^\W\d_][\w.'-]*(?: |$|(?=,))){1,6})",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(?:sa(?:id|ys)|stated|claim(?:s|ed)|report(?:s|ed)|argue[sd]|announced|believe[sd]|note[sd]|told|explain(?:s|ed)"
    r"|recommend(?:s|ed)|advise[sd]|confirmed|warn(?:s|ed)|estimate[sd]|found|finds|show(?:s|ed)|proved|discovered"
    r"|suggest(?:s|ed)|called|describe[sd])\b"
)
_MOST_SOURCE = 5
_MAX_SWAPS = 20
_MAX_PLACES = 40
_SAME_SPELLING = 0.7


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a claim with the context sentence that says most of it, and how much."""

    tokens: Sequence[Word]
    best: ContextSentence
    near: frozenset[str]
    """Keys of that sentence and of those it leans on."""
    cover: float


def check_exchange(
    pieces: Sequence[Sequence[Word]], tokens: Sequence[Word], index: EvidenceIndex, *, related: bool, close: bool
) -> list[str]:
    """Object to names, numbers and subjects that the contexts hold, but say of something else.

    Subjects count only `related` to the wording of the evidence, numbers only `close` to it.
    """
    if len(index.sentences) < 2:
        return []
    said = {index.spelled(t.key) for t in tokens}
    mine = quantities(tokens) if close else []
    objections: dict[str, None] = {}
    first: Clause | None = None
    for clause in clauses(pieces, index):
        for found in (
            *_names(clause, said, index),
            *_numbers(clause, mine),
            *(_subject(clause, first, said, index) if related else ()),
        ):
            objections.setdefault(found)
        first = first or clause
    return list(objections)


def clauses(pieces: Sequence[Sequence[Word]], index: EvidenceIndex) -> Iterator[Clause]:
    """Tie each clause to its evidence."""
    for tokens in pieces:
        support = index.support(tokens)
        if support:
            best = support[0]
            yield Clause(tokens, best, index.around(best.number), index.cover(tokens, best))


def cut_clauses(text: str) -> list[list[Word]]:
    """Cut a sentence into its clauses, at most a dozen, each of two content words at least."""
    pieces: list[list[Word]] = []
    for part in _BREAK.split(text):
        cut = words(part)
        if not cut:
            continue
        if pieces and sum([t.content for t in cut]) < _SHORTEST:
            pieces[-1] += cut
        else:
            pieces.append(cut)
    if len(pieces) > 1 and sum([t.content for t in pieces[0]]) < _SHORTEST:
        pieces[:2] = [pieces[0] + pieces[1]]
    return pieces[:_MOST_CLAUSES]


def check_clauses(pieces: Sequence[Sequence[Word]], index: EvidenceIndex) -> list[str]:
    """Object to a clause of several words of which the contexts hold hardly one, beside clauses that they do hold."""
    if len(pieces) < 2:
        return []
    counted = [(tokens, *_known_words(tokens, index)) for tokens in pieces]
    foreign = [tokens for tokens, known, words in counted if words >= _FOREIGN_WORDS and known <= _KNOWN_SHARE * words]
    if not foreign:
        return []
    others = [(tokens, known >= _HELD_SHARE * words) for tokens, known, words in counted if tokens not in foreign]
    if not others or not all(held and _copied_share(tokens, index) >= _COPIED_SHARE for tokens, held in others):
        return []
    spoken = (" ".join(t.text for t in tokens[:8]) for tokens in foreign)
    return [f"nothing in the contexts speaks of '{clause}'" for clause in spoken]


def _copied_share(tokens: Sequence[Word], index: EvidenceIndex) -> float:
    """Return the share of words that stand in this order in the context sentence that says most of them."""
    support = index.support(tokens)
    keys = [index.spelled(t.key) for t in tokens]
    return LCSseq.similarity(keys, [t.key for t in support[0].tokens]) / len(keys) if support else 0.0


def _known_words(tokens: Sequence[Word], index: EvidenceIndex) -> tuple[int, int]:
    """Count the words of a clause that the contexts hold, and all of them."""
    content = {t.key for t in tokens if t.content and t.kind != "number" and t.norm not in LIGHT_WORDS}
    return sum([key in index.keys or index.near(key) is not None for key in content]), len(content)


def _names(clause: Clause, said: set[str], index: EvidenceIndex) -> Iterator[str]:
    """Yield a name from elsewhere where the evidence has another one."""
    if clause.cover < _ENOUGH:
        return
    foreign = [t for t in clause.tokens if t.key in index.names and t.key in index.keys and t.key not in clause.near]
    left_out = [t for t in clause.best.tokens if t.key in index.names and t.key not in said]
    if foreign and left_out:
        yield f"'{foreign[0].text}' here, '{left_out[0].text}' in the evidence"


def _numbers(clause: Clause, said: Sequence[Quantity]) -> Iterator[str]:
    """Yield a number from elsewhere, also from another clause of the sentence, where the evidence has another one."""
    mine = [q for q in quantities(clause.tokens) if any(q.text == s.text for s in said)]
    if clause.cover < _ENOUGH or not mine:
        return
    words_here = {t.key for t in clause.tokens if t.content and t.kind != "number"}
    parts = cut_clauses(clause.best.sentence.text)
    same = [p for p in parts if len(words_here.intersection(t.key for t in p)) >= _HELD_SHARE * len(words_here)]
    theirs = quantities(list(chain.from_iterable(same)) or clause.best.tokens)
    left_out = [q for q in theirs if not any(q.agrees(m) for m in said)]
    derived = derived_values(theirs, clause.best.tokens) if left_out else set[str]()
    for quantity in mine:
        if left_out and not any(quantity.agrees(q) for q in theirs) and not quantity.values & derived:
            yield f"number {quantity.text} here, {left_out[0].text} in the evidence"


def _subject(clause: Clause, first: Clause | None, said: set[str], index: EvidenceIndex) -> Iterator[str]:
    """Yield a subject from elsewhere: what stands before the predicate that claim and evidence share.

    A clause without a subject has that of the first clause. A word that the same context mentions, but says nothing
    of, is none from elsewhere.
    """
    keys = [index.spelled(t.key) for t in clause.tokens]
    start = next((i for i, t in enumerate(clause.tokens) if t.content and keys[i] in clause.best.keys), None)
    shared = {key for t, key in zip(clause.tokens, keys, strict=True) if t.content and key in clause.best.keys}
    if start is None or clause.cover < _ENOUGH or len(shared) < _SHORTEST:
        return
    place = next(i for i, t in enumerate(clause.best.tokens) if t.key == keys[start])
    theirs = [t for t in clause.best.tokens[:place] if t.content and t.key not in said]
    if not theirs:
        return
    mine = [t for t in clause.tokens[:start] if t.content]
    bare = any(t.norm in _AUXILIARIES for t in clause.tokens[:start])
    if not bare:
        return
    if not mine and first is not None and first.best is not clause.best:
        mine = [t for t in first.tokens if t.content][:2]
    known = [t for t in mine if _is_subject(t) and index.spelled(t.key) in index.keys]
    if not known:
        return
    beside = (s.keys - index.subjects for s in index.sentences if s.context == clause.best.context)
    sayings = (s.keys for s in index.sentences if not s.keys.isdisjoint({t.key for t in theirs}))
    near = clause.near.union(*beside, *sayings)
    if not any(index.spelled(t.key) in near or any(_same_word(t, other) for other in theirs) for t in known):
        yield f"said of '{known[0].text}' here, of '{theirs[-1].text}' in the evidence"


def _is_subject(token: Word) -> bool:
    return token.kind != "number" and token.norm not in LIGHT_WORDS and token.norm not in UNITS


def check_roles(tokens: Sequence[Word], evidence: ContextSentence, index: EvidenceIndex) -> list[str]:
    """Object where two names, or the two sides of a comparison, have changed places around the same word."""
    theirs = [t.key for t in evidence.tokens]
    places = {key: j for j, key in enumerate(theirs)}
    for i, token in enumerate(tokens):
        j = places.get(index.spelled(token.key))
        if j is None or not token.content or token.kind == "number" or token.key in index.names:
            continue
        compares = any(t.norm in THAN for t in tokens[i + 1 : i + 9])
        counted = None if compares else index.names
        if theirs.count(theirs[j]) != 1 or not turned(tokens, i, evidence.tokens, j, counted):
            continue
        if not (compares and _mirrored(tokens, evidence.tokens)):
            return [f"what is said before and after '{token.text}' is exchanged in the evidence"]
    return []


def _mirrored(tokens: Sequence[Word], evidence: Sequence[Word]) -> bool:
    """Tell whether one side says the opposite word: "A is higher than B" is "B is lower than A"."""
    theirs = {t.norm for t in evidence}
    return any(not opposites(t.norm).isdisjoint(theirs) for t in tokens)


def check_attribution(text: str, index: EvidenceIndex) -> list[str]:
    """Object to a source that the evidence for what it is said to say does not name."""
    return [objection for part in text.split(";") for objection in _check_source(part, index)]


def _check_source(text: str, index: EvidenceIndex) -> list[str]:
    if found := _ACCORDING.search(text):
        start, end, source = found.start(), found.end(), words(found.group(1))
    elif found := _SAYS.search(text):
        start, end, source = 0, found.end(), words(text[: found.start()])[-_MOST_SOURCE:]
    else:
        return []
    rest = words(text[:start] + " " + text[end:])
    support = index.support(rest)
    if not support or not any(t.content for t in rest):
        return []
    number = support[0].number
    beside = [s.keys for s in index.sentences[max(0, number - 1) : number + 2] if s.context == support[0].context]
    near = index.around(number).union(*beside)
    foreign = [t for t in source if t.key in index.names and t.key not in near]
    return [f"the evidence does not name '{foreign[-1].text}' as the source"] if foreign else []


def find_swaps(tokens: Sequence[Word], keys: Sequence[str], new: Sequence[int], evidence: Sequence[Word]) -> list[Swap]:
    """Return the new words that stand where the evidence has another one beside the same neighbours.

    `keys` are those of the tokens as the evidence spells them, `new` the positions of the new words. Another spelling
    of the same word is no exchange.
    """
    exchanged = [i for i in new if _may_be_name(tokens[i])][:_MAX_SWAPS]
    places: dict[str, list[int]] = {}
    for i, token in enumerate(evidence if exchanged else ()):
        places.setdefault(token.key, []).append(i)
    swaps = []
    for i in exchanged:
        other = next((t for t in _in_place(i, keys, places, evidence) if t.key not in keys), None)
        if other and not _same_word(tokens[i], other):
            swaps.append((tokens[i], other))
    return swaps


def check_swaps(swaps: Sequence[Swap], index: EvidenceIndex, subject: Word | None) -> list[str]:
    """Object to a word in the place of a name, as far as capitals in the contexts show names.

    The first word of a sentence that is copied otherwise is its `subject`, with or without a capital in the contexts.
    """
    return [
        f"'{token.text}' here, '{other.text}' in the evidence"
        for token, other in swaps
        if other.key in index.names or token is subject
    ]


def _may_be_name(token: Word) -> bool:
    """Tell a word that says something from a light one, which a paraphrase exchanges freely."""
    return token.kind == "word" and token.norm not in LIGHT_WORDS


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
