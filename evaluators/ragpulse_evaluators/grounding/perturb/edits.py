"""Edits of one word or clause of an answer: another number, date, version, name, unit, a negation, a foreign clause.

Each `edit_...` takes the material of one answer and returns an `Edit`, or None where it does not apply. The edits that
take their material from the contexts are in `perturb`.
"""

import random
import re
from calendar import month_name
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragpulse_evaluators.grounding.facts import quantities
from ragpulse_evaluators.grounding.lexicon import MONTHS, NUMBER_WORDS
from ragpulse_evaluators.grounding.text import Token, names, split_sentences, tokenize


def pairs_in(text: str) -> dict[str, str]:
    """Read "a:b c_d:e": each word and what takes its place; `_` is a space."""
    return {one.replace("_", " "): other.replace("_", " ") for one, other in (p.split(":") for p in text.split())}


_ENGLISH_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ENGLISH_MONTHS = tuple(month_name[1:])
_UNIT_SWAPS = pairs_in(
    "miles:kilometers mile:kilometer km:miles kilometres:miles kilometers:miles metres:feet meters:feet metre:foot "
    "meter:foot feet:metres foot:metre cm:mm mm:cm inches:centimeters kg:pounds pounds:kilograms lb:kg grams:ounces "
    "tonnes:pounds tons:pounds liters:gallons litres:gallons gallons:litres seconds:minutes second:minute "
    "minutes:hours minute:hour hours:days hour:day days:weeks day:week weeks:months week:month months:years "
    "month:year years:months year:month decades:years decade:year centuries:decades century:decade "
    "thousand:million million:billion billion:million hundred:thousand mb:gb gb:mb kb:mb tb:gb celsius:fahrenheit "
    "dollars:euros euros:dollars usd:eur eur:usd percent:permille nm:mm hz:khz mph:knots $:€ €:$ £:$ %:‰ "
    "米:公里 公里:米 元:美元 年:月 天:周 小时:分钟 万:亿 亿:万 metros:quilômetros años:meses anos:meses "
    "jahre:monate tage:wochen horas:minutos stunden:minuten heures:minutes jours:semaines"
)
_ADD_NEGATION = {
    r"\b(is|are|was|were|can|will|would|could|should|has been|have been|may|must)\b": r"\1 not",
    "是": "不是",
    r"\b(es|son|fue|está|tiene|puede)\b": r"no \1",
    r"\b(é|são|foi|está|tem|pode)\b": r"não \1",
    r"\b(ist|sind|war|waren|kann|wird|hat)\b": r"\1 nicht",
    r"\best\b": "n'est pas",
    r"\b(has|have|had)\b": r"\1 never",
}
"""Verbs → the same with a negation; the first one counts."""
_DROP_NEGATION = re.compile(
    r"\b(?:is|are|was|were|can|will|would|could|should|do|does|did|has|have|had) (n't|not)\b"
    r"|\b(?:is|are|was|were|could|would|should|has|have|had)(n't)\b|\b(not |never |nicht |não )|([不没])",
    re.I,
)
_SPARE_NAMES = ("Kowalski", "Okafor", "Lindqvist", "Tanaka", "Moreau")
_SPARE_CLAUSES = ("it was later sold to a shipping company in Oslo", "the work took eleven winters to finish")
_MAX_CLAUSE_WORDS = 12


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace response[start:end] by text."""

    start: int
    end: int
    text: str

    def describe(self, response: str) -> str:
        """The change in words: "330 → 130"."""
        return f"{response[self.start : self.end].strip() or '∅'} → {self.text.strip() or '∅'}"


class Donors(NamedTuple):
    """What other cases lend: names (case-folded to as written) and clauses."""

    names: dict[str, str]
    clauses: tuple[str, ...]

    @classmethod
    def of(cls, cases: Iterable[tuple[str, Sequence[str]]]) -> "Donors":
        """Collect names from texts that use capitals, and the first words of context sentences."""
        written: dict[str, str] = {}
        lower: set[str] = set()
        clauses: dict[str, None] = {}
        for _, contexts in cases:
            for sentence in (s for text in contexts for s in split_sentences(text)):
                clauses.setdefault(sentence.text)
                tokens = tokenize(sentence.text)
                written |= {t.norm: t.text for t in names(tokens) if len(t.text) > 2}
                if any(t.text[0].isupper() for t in tokens):
                    lower |= {t.norm for t in tokens if t.text.islower()}
        return cls({n: w for n, w in sorted(written.items()) if n not in lower}, tuple(clauses))


@dataclass(frozen=True, slots=True)
class Material:
    """One answer, the token keys it shares with its contexts, what others lend, and the chance to draw with."""

    response: str
    contexts: tuple[str, ...]
    tokens: tuple[Token, ...]
    known: frozenset[str]
    donors: Donors
    chance: random.Random

    def pick(self, tokens: Sequence[Token], change: Callable[[Token], str | None]) -> Edit | None:
        """Edit one token drawn from those given."""
        if not tokens:
            return None
        token = self.chance.choice(tokens)
        text = change(token)
        return Edit(token.start, token.end, text) if text else None

    def exchange(self, places: Sequence[tuple[int, int]], texts: Sequence[str]) -> Edit | None:
        """Put one of the texts in one of the places."""
        return Edit(*self.chance.choice(places), self.chance.choice(texts)) if places and texts else None


def edit_number(material: Material) -> Edit | None:
    """Another number of the same length that neither the answer nor its contexts hold; years are dates."""

    def change(token: Token) -> str | None:
        if token.kind == "word":
            fresh = [w for w in _ENGLISH_NUMBERS if str(NUMBER_WORDS[w]) not in material.known]
            return material.chance.choice(fresh) if fresh else None
        return _other_digits(material, token.text)

    return material.pick(
        [
            t
            for t in material.tokens
            if (t.kind == "number" and not _is_year(t)) or (t.kind == "word" and t.norm in _ENGLISH_NUMBERS)
        ],
        change,
    )


def edit_version(material: Material) -> Edit | None:
    """Another version: one part of "3.10.2" changes, also by a lost zero ("3.10" and "3.1")."""
    versions = [t for t in material.tokens if _is_version(material.response, t)]
    return material.pick(versions, lambda token: _other_version(material, token.text))


def _is_version(response: str, token: Token) -> bool:
    named = re.search(r"(?:version|release|[A-Z]\w+) v?$", response[: token.start], re.I if token.start < 9 else 0)
    return token.kind == "number" and (token.text.count(".") > 1 or ("." in token.text and named is not None))


def _other_version(material: Material, written: str) -> str | None:
    if written.endswith("0") and written[:-1] not in material.known and not written.endswith(".0"):
        return written[:-1]
    parts = written.split(".")
    place = material.chance.randrange(len(parts))
    parts[place] = str(int(parts[place]) + material.chance.randint(1, 3))
    other = ".".join(parts)
    return None if other in material.known else other


def _is_year(token: Token) -> bool:
    return token.kind == "number" and len(token.text) == 4 and token.text.isdigit() and 1000 <= int(token.text) <= 2100


def _other_digits(material: Material, written: str) -> str | None:
    places = [i for i, c in enumerate(written) if c.isascii() and c.isdigit()]
    for _ in range(20):
        i = material.chance.choice(places) if places else 0
        digit = str(material.chance.randint(1, 9))
        other = written[:i] + digit + written[i + 1 :]
        if places and other != written and other not in material.known:
            return other
    return None


def edit_date(material: Material) -> Edit | None:
    """Another year (1 to 40 off) or another month."""
    named = {q.text for q in quantities(material.tokens) if q.sort == "month"}

    def change(token: Token) -> str | None:
        if token.kind == "number":
            years = [y for y in range(int(token.text) - 40, int(token.text) + 41) if str(y) not in material.known]
            return str(material.chance.choice(years))
        others = [m for m in _ENGLISH_MONTHS if MONTHS[m.casefold()] != MONTHS[token.norm]]
        return cased_like(token.text, material.chance.choice([m for m in others if m.casefold() not in material.known]))

    return material.pick(
        [t for t in material.tokens if _is_year(t) or (t.text in named and t.norm in MONTHS and t.norm.isascii())],
        change,
    )


def edit_name(material: Material) -> Edit | None:
    """A name from another case in place of one of this answer."""
    sentences = split_sentences(material.response)
    given = {s.start + t.start for s in sentences for t in names(tokenize(s.text))}
    mine = [t for t in material.tokens if t.start in given or t.norm in material.donors.names]
    fresh = [w for n, w in material.donors.names.items() if not {t.key for t in tokenize(n)} & material.known]
    donors = fresh or list(_SPARE_NAMES)
    return material.pick(mine, lambda token: cased_like(token.text, material.chance.choice(donors)))


def edit_unit(material: Material) -> Edit | None:
    """Another unit of the same sort ("miles" for "kilometers", "billion" for "million") beside a number."""
    tokens = material.tokens
    beside = [
        t
        for i, t in enumerate(tokens)
        if t.norm in _UNIT_SWAPS
        and any(
            n.kind == "number" or n.norm in NUMBER_WORDS for n in (*tokens[max(0, i - 1) : i], *tokens[i + 1 : i + 2])
        )
    ]
    fresh = [t for t in beside if not {u.key for u in tokenize(_UNIT_SWAPS[t.norm])} & material.known]
    return material.pick(fresh, lambda token: _UNIT_SWAPS[token.norm])


def edit_negation(material: Material) -> Edit | None:
    """Drop the negation of the answer, or negate its first verb that can be negated by one word."""
    drop = _DROP_NEGATION.search(material.response)
    if drop:
        group = next(g for g in range(1, 5) if drop.group(g) is not None)
        return Edit(drop.start(group), drop.end(group), "")
    for pattern, replacement in _ADD_NEGATION.items():
        match = re.search(pattern, material.response, re.I)
        if match:
            return Edit(match.start(), match.end(), match.expand(replacement))
    return None


def edit_clause(material: Material) -> Edit | None:
    """A clause from another case's contexts, mostly of words foreign to this one, appended before the full stop."""
    borrowed = _borrow(material)
    end = len(material.response.rstrip(" \n.!?。！？"))
    if end == 0:
        return None
    text = f"，而且{borrowed}" if "\u4e00" <= material.response[end - 1] <= "\u9fff" else f", and {borrowed}"
    if not any(c.isupper() for c in material.response):
        text = text.lower()
    return Edit(end, end, text)


def _borrow(material: Material) -> str:
    for _ in range(20):
        if not material.donors.clauses:
            break
        words = material.chance.choice(material.donors.clauses).split()[:_MAX_CLAUSE_WORDS]
        content = [t for t in tokenize(" ".join(words)) if not t.function]
        foreign = sum(t.key not in material.known for t in content)
        if foreign >= 3 and foreign >= 0.6 * len(content):
            return " ".join(words).rstrip(" .,;:!?。")
    return material.chance.choice(_SPARE_CLAUSES)


def cased_like(model: str, word: str) -> str:
    """Write a word in lower case where the model is."""
    return word.lower() if model.islower() else word
