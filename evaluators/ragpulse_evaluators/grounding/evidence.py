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
from functools import cached_property, lru_cache
from heapq import nsmallest
from itertools import chain, pairwise

from ragpulse_evaluators.grounding.facts import Quantity, quantities
from ragpulse_evaluators.grounding.text import Sentence, Word, split_sentences, words

MAX_CONTEXT_CHARS = 400_000
_MAX_SUPPORT = 3
_MAX_POSTINGS = 500


@dataclass(eq=False)
class ContextSentence:
    """One sentence of one context; `context` counts from 0, offsets are in that context's text."""

    context: int
    sentence: Sentence
    tokens: Sequence[Word]
    denied: frozenset[str]
    """Keys of the name of a JSON value that is false or "no"."""

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of all tokens."""
        return frozenset([t.key for t in self.tokens])

    @cached_property
    def quantities(self) -> list[Quantity]:
        """Its quantities in order."""
        return quantities(self.tokens)


def bigrams(tokens: Sequence[Word]) -> Iterator[tuple[str, str]]:
    """Return the pairs of content words that follow one another, whatever light words stand between."""
    return pairwise([token.key for token in tokens if token.content])


class EvidenceIndex:
    """All context sentences of a case with an inverted index from token key to sentences."""

    def __init__(self, contexts: Sequence[str]) -> None:
        self.sentences: list[ContextSentence] = []
        self.by_value = False
        """Whether a context is JSON."""
        self.postings: defaultdict[str, list[int]] = defaultdict(list)
        """The sentences of every token key that occurs in any context."""
        left = MAX_CONTEXT_CHARS
        for number, text in enumerate(contexts):
            self._add(number, text[: max(0, left)])
            left -= len(text)

    def _add(self, number: int, text: str) -> None:
        by_value = _is_json(text)
        self.by_value |= by_value
        sentences = _values(text) if by_value else ((s, s.text, "") for s in split_sentences(text))
        for sentence, read, denied in sentences:
            found = ContextSentence(number, sentence, words(read), frozenset(t.key for t in words(denied) if t.content))
            place, postings = len(self.sentences), self.postings
            for key in found.keys:
                postings[key].append(place)
            self.sentences.append(found)

    @cached_property
    def denied(self) -> dict[str, ContextSentence]:
        """Words that stand only in names of JSON values that are false or "no", each with that value."""
        found = [(key, sentence) for sentence in self.sentences for key in sentence.denied]
        return {key: s for key, s in found if all(self.sentences[n].denied for n in self.postings[key])}

    @cached_property
    def names(self) -> frozenset[str]:
        """Keys of words that the contexts write with a capital inside sentences."""
        return frozenset(t.key for s in self.sentences for t in s.tokens[1:] if t.capital)

    @cached_property
    def bigrams(self) -> set[tuple[str, str]]:
        """Pairs of content words that follow one another in a context sentence."""
        return set(chain.from_iterable(bigrams(s.tokens) for s in self.sentences))

    def support(self, tokens: Sequence[Word]) -> list[ContextSentence]:
        """Return the best context sentence for these tokens, then those that cover what is still open (at most 3)."""
        shares = self._overlap(self._weights(tokens))
        best = nsmallest(_MAX_SUPPORT, shares, key=lambda n: (1e-4 * len(self.sentences[n].keys) - shares[n], n))
        return [self.sentences[n] for n in best]

    def covers(self, tokens: Sequence[Word]) -> dict[int, float]:
        """Return for each context the largest share of the tokens' weight that one of its sentences holds."""
        weights = self._weights([t for t in tokens if not t.function and t.kind != "sign"])
        total = sum(weights.values())
        best: dict[int, float] = {}
        for number, weight in self._overlap(weights).items():
            context = self.sentences[number].context
            best[context] = max(best.get(context, 0.0), weight / total)
        return best

    def _overlap(self, weights: Mapping[str, float]) -> dict[int, float]:
        overlap: defaultdict[int, float] = defaultdict(float)
        for key, weight in weights.items():
            for number in self.postings.get(key, ())[:_MAX_POSTINGS]:
                overlap[number] += weight
        return overlap

    def _weights(self, tokens: Sequence[Word]) -> dict[str, float]:
        """Return what each key weighs: the rarer, the more; one that no context holds as much as the rarest."""
        found, rarity = self.postings.get, self._rarity
        return {t.key: rarity[len(found(t.key, "1"))] * (0.2 if t.function else 1.0) for t in tokens}

    @cached_property
    def _rarity(self) -> Sequence[float]:
        """What a key weighs by the number of sentences that hold it."""
        count = len(self.sentences)
        return [math.inf, *(math.log(1 + count / held) for held in range(1, max(1, count) + 1))]


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


def _values(text: str) -> Iterator[tuple[Sentence, str, str]]:
    """Yield each value of a JSON text, its key and value to read, and its name where it says no."""
    path, key = [""], ""
    for match in _JSON.finditer(text):
        if match["key"]:
            name = match["text"][1:-1]
            key = " ".join(dict.fromkeys((name, _CAMEL.sub(" ", name))))  # "WiFi", "OutdoorSeating"
        elif match["value"] or match["text"]:
            quoted = match["text"] is not None
            yield from _value(text, match.start() + quoted, match.end() - quoted, path[-1], key)
        else:
            path = [*path, key] if match["open"] else path[:-1] or [""]
            key = ""


def _value(text: str, start: int, end: int, parent: str, key: str) -> Iterator[tuple[Sentence, str, str]]:
    """Yield a value as one sentence with its key, a long text as its own sentences."""
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
    except (ValueError, RecursionError):
        return False
