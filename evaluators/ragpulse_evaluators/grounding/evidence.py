"""Finding the context sentences that speak of what a response sentence says.

Contexts → `EvidenceIndex` (built once a case) → for one response sentence the best context sentence and up to two more
that cover words it leaves open. A context that is JSON is read by key and value: one sentence for each value.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from functools import cached_property, lru_cache
from itertools import pairwise

from ragpulse_evaluators.grounding.facts import Quantity, quantities
from ragpulse_evaluators.grounding.lexicon import SYNONYMS
from ragpulse_evaluators.grounding.text import Sentence, Word, split_sentences, stem, words

__all__ = ["ContextSentence", "EvidenceIndex", "bigrams", "index_of", "same_root"]

MAX_CONTEXT_CHARS = 400_000
_MAX_SUPPORT = 3
_SHORTLIST = 12
_STEP_GAIN = 0.12
_MAX_POSTINGS = 500
_MAX_ROOTS = 64


def _by_key(rows: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    meant: dict[str, tuple[str, ...]] = {}
    for keys in ([stem(word) for word in row] for row in rows):
        for key in keys:
            meant[key] = (*meant.get(key, ()), *(other for other in keys if other != key))
    return meant


_SYNONYMS = _by_key(SYNONYMS)


@dataclass(slots=True, eq=False)
class ContextSentence:
    """One sentence of one context; `context` counts from 0, offsets are in that context's text."""

    number: int
    """Its place among the sentences of all contexts."""
    context: int
    sentence: Sentence
    tokens: Sequence[Word]
    keys: frozenset[str]
    """Keys of all tokens."""


def bigrams(tokens: Sequence[Word], keys: Sequence[str]) -> set[tuple[str, str]]:
    """Return the pairs of content words that follow one another, whatever light words stand between."""
    return set(pairwise([key for token, key in zip(tokens, keys, strict=True) if token.content]))


class EvidenceIndex:
    """All context sentences of a case with an inverted index from token key to sentences."""

    def __init__(self, contexts: Sequence[str]) -> None:
        self.sentences: list[ContextSentence] = []
        self.by_value = False
        """Whether a context is JSON."""
        self._postings: defaultdict[str, list[int]] = defaultdict(list)
        self._nearest: dict[str, str | None] = {}
        self._quantities: dict[int, list[Quantity]] = {}
        self._denied: dict[int, list[str]] = {}
        left = MAX_CONTEXT_CHARS
        for number, text in enumerate(contexts):
            self._add(number, text[: max(0, left)])
            self.by_value |= _is_json(text[: max(0, left)])
            left -= len(text)

    def _add(self, number: int, text: str) -> None:
        for sentence, read, denied in _sentences(text):
            tokens = words(read)
            keys = dict.fromkeys(word.key for word in tokens)
            here = len(self.sentences)
            for key in keys:
                self._postings[key].append(here)
            self.sentences.append(ContextSentence(here, number, sentence, tokens, frozenset(keys)))
            if denied:
                self._denied[here] = [word.key for word in words(denied) if word.content]

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every token key that occurs in any context."""
        return frozenset(self._postings)

    @cached_property
    def denied(self) -> dict[str, ContextSentence]:
        """Words that stand only in names of JSON values that are false or "no", each with that value."""
        return {
            key: self.sentences[n]
            for n, keys in self._denied.items()
            for key in keys
            if self._denied.keys() >= set(self._postings[key])
        }

    @cached_property
    def names(self) -> frozenset[str]:
        """Keys of words that the contexts write with a capital inside sentences, and never without one."""
        sure, lower = set[str](), set[str]()
        for sentence in self.sentences:
            for i, token in enumerate(sentence.tokens):
                if token.capital and (i > 0 or not token.text[1:].islower()):
                    sure.add(token.key)
                elif token.text.islower():
                    lower.add(token.key)
        return frozenset(sure - lower)

    @cached_property
    def bigrams(self) -> frozenset[tuple[str, str]]:
        """Pairs of content words that follow one another in a context sentence."""
        return frozenset().union(*(bigrams(s.tokens, [t.key for t in s.tokens]) for s in self.sentences))

    def quantities(self, sentence: ContextSentence) -> list[Quantity]:
        """Return the quantities of a context sentence."""
        if sentence.number not in self._quantities:
            self._quantities[sentence.number] = quantities(sentence.tokens)
        return self._quantities[sentence.number]

    @cached_property
    def _roots(self) -> dict[str, list[str]]:
        roots: dict[str, list[str]] = {}
        for key in self._postings:
            if len(key) >= 4 and len(same := roots.setdefault(key[:4], [])) < _MAX_ROOTS:
                same.append(key)
        return roots

    def near(self, key: str) -> str | None:
        """Return a key of the contexts with the same root ("motivat", "motivation") or meaning ("lawyer"), if any."""
        if key not in self._nearest:
            self._nearest[key] = self._find_near(key)
        return self._nearest[key]

    def _find_near(self, key: str) -> str | None:
        same = self._roots.get(key[:4], ()) if len(key) >= 4 else ()
        related = next((other for other in same if same_root(key, other)), None)
        return related or next((other for other in _SYNONYMS.get(key, ()) if other in self._postings), None)

    def spelled(self, key: str) -> str:
        """Return a key as the contexts spell it, or as it is where they have none like it."""
        return key if key in self._postings else self.near(key) or key

    def support(self, tokens: Sequence[Word]) -> list[ContextSentence]:
        """Return the best context sentence for these tokens, then those that cover what is still open (at most 3)."""
        shares = self._overlap(self._weights(tokens))
        order = {n: (-share + 1e-4 * len(self.sentences[n].keys), n) for n, share in shares.items()}
        return [self.sentences[n] for n in nsmallest(_MAX_SUPPORT, order, key=order.__getitem__)]

    def covers(self, tokens: Sequence[Word]) -> dict[int, float]:
        """Return for each context the largest share of the tokens' weight that one of its sentences holds."""
        content = [t for t in tokens if not t.function and t.kind != "sign"]
        weights = self._weights(content)
        absent = sum([t.key not in self._postings and not self.near(t.key) for t in content])
        total = sum(weights.values()) + absent * math.log(1 + len(self.sentences))
        best: dict[int, float] = {}
        for number, weight in self._overlap(weights).items():
            context = self.sentences[number].context
            best[context] = max(best.get(context, 0.0), weight / total)
        return best

    def _overlap(self, weights: Mapping[str, float]) -> dict[int, float]:
        overlap: defaultdict[int, float] = defaultdict(float)
        for key, weight in weights.items():
            for number in self._postings[key][:_MAX_POSTINGS]:
                overlap[number] += weight
        return overlap

    def _weights(self, tokens: Sequence[Word]) -> dict[str, float]:
        """The contexts' keys in the order of the tokens; the last token of a key says what it weighs."""
        keys = {key: key if key in self._postings else self.near(key) for key in {t.key for t in tokens}}
        last = {keys[token.key]: token for token in tokens}
        rarities = self._rarities
        return {k: rarities[k] * (0.2 if token.function else 1.0) for k, token in last.items() if k is not None}

    @cached_property
    def _rarities(self) -> dict[str, float]:
        """What a key weighs: the rarer, the more."""
        count = len(self.sentences)
        by_postings = {n: math.log(1 + count / n) for n in {len(numbers) for numbers in self._postings.values()}}
        return {key: by_postings[len(numbers)] for key, numbers in self._postings.items()}


@lru_cache(maxsize=2)
def index_of(contexts: tuple[str, ...]) -> EvidenceIndex:
    """Return the index of a case's contexts; the checks of one case come one after the other and share it."""
    return EvidenceIndex(contexts)


_JSON = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<key>\s*:)?|(?P<open>[{\[])|(?P<close>[}\]])|(?P<value>[^\s,:{}\[\]"]+)'
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
_SAID = {"true": "yes", "false": "no", "null": "not known", "none": "no", "no": "no"}
_LONG_VALUE = 80
_QUOTES = "u'\" "


def _sentences(text: str) -> Iterator[tuple[Sentence, str, str]]:
    """Yield each sentence of a context, its text to read, and the name of a JSON value that says no."""
    if not _is_json(text):
        yield from ((sentence, sentence.text, "") for sentence in split_sentences(text))
        return
    path: list[str] = []
    key = ""
    for match in _JSON.finditer(text):
        if match["key"]:
            key = _CAMEL.sub(" ", match["text"][1:-1])
        elif match["open"]:
            path.append(key)
            key = ""
        elif match["close"]:
            path[-1:] = []
            key = ""
        else:
            yield from _values(text, match, " ".join(path[-1:]), key)


def _values(text: str, match: re.Match[str], parent: str, key: str) -> Iterator[tuple[Sentence, str, str]]:
    """Yield a value as one sentence with its key, a long text as its own sentences."""
    quoted = match["text"] is not None
    start, end = match.start() + quoted, match.end() - quoted
    said = _ESCAPE.sub(lambda found: " " * len(found.group()), text[start:end])
    if len(said) > _LONG_VALUE:
        for part in split_sentences(said):
            place = slice(start + part.start, start + part.end)
            yield Sentence(text[place], place.start, place.stop), part.text, ""
    elif any(c.isalnum() for c in said):
        value = _SAID.get(said.strip(_QUOTES).lower(), said)
        yield Sentence(text[start:end], start, end), f"{parent} {key}: {value}", key if value == "no" else ""


def _is_json(text: str) -> bool:
    try:
        return text.lstrip()[:1] in ("{", "[") and isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def same_root(one: str, other: str) -> bool:
    """Tell whether two words share their beginning for most of their length (inflections in most languages)."""
    longest = max(len(one), len(other))
    if longest < 5 or min(len(one), len(other)) < 4:
        return False
    needed = max(4, math.ceil(0.7 * longest))
    return one[:needed] == other[:needed]
