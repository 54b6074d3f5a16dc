"""Quantities by value: digits and words, units, dates, clock times, shares, and what follows from two of them.

"Nine weeks" and "63 days" are one quantity, "nine weeks" and "five working days" are two. A number without a unit is
equal to any quantity of the same number. Each form is a pattern over the normalized words of a sentence, joined by
spaces, and a function that reads what it matches.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from ragpulse_evaluators.grounding.lexicon import (
    APPROXIMATIONS,
    MAGNITUDES,
    MONTHS,
    NUMBER_WORDS,
    OPERATIONS,
    UNIT_SCALES,
    UNITS,
)
from ragpulse_evaluators.grounding.text import Word

_ROUNDED = 0.09
"""Values in two units may differ by this share: "5 miles" is "8 km", "a month" is "four weeks"."""
_WORKING = 1.4
"""Five working days are a week."""
_PARTS = {"half": 0.5, "third": 1 / 3, "quarter": 0.25, "fifth": 0.2, "tenth": 0.1}
_PARTS |= {"in three": 1 / 3, "in four": 0.25, "in five": 0.2, "in 5": 0.2, "in ten": 0.1, "in 10": 0.1}
_NAMED_TIMES = {"noon": 12.0, "midday": 12.0, "midnight": 0.0}
_SHIFTS = {"half past": 30, "quarter past": 15, "quarter to": -15}
_MORNING = frozenset({"am", "a m", "in the morning"})
_AFTERNOON = frozenset({"pm", "p m", "noon", "in the afternoon", "in the evening"})
_STARTS = frozenset({"a", "an", "half", "quarter", *_NAMED_TIMES, *MONTHS})
_BEFORE = frozenset({"$", "€", "£", "¥", "usd", "eur", "gbp", "百分之", "千分之"})
"""Units that stand before their number."""
_MOST_OPERANDS = 12


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written, every value it may mean in the base unit of its sort, and where its words are."""

    text: str
    values: frozenset[float]
    unit: str | None
    sort: str | None
    """What the unit measures; `clock`, `month` and `version` for those; None for a number without a unit."""
    numbers: frozenset[float]
    """The values before they are converted."""
    start: int
    end: int

    def agrees(self, other: "Quantity") -> bool:
        """Tell whether both may be the same."""
        sorts = {self.sort, other.sort}
        if "version" in sorts:
            return self.text == other.text
        if len(sorts) == 1:
            slack = 1e-9 if self.unit == other.unit else _ROUNDED
            return any(abs(a - b) <= slack * max(abs(a), abs(b)) for a, b in product(self.values, other.values))
        return None in sorts and not self._plain.isdisjoint(other._plain)

    @property
    def _plain(self) -> frozenset[float]:
        """The numbers that it may be without its unit: 15% is 15 or 0.15."""
        return {"ratio": self.numbers | self.values, "month": frozenset[float]()}.get(self.sort or "", self.numbers)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a form matches from a word of a sentence on."""

    tokens: Sequence[Word]
    start: int
    match: re.Match[str]

    def __getitem__(self, group: str) -> Any:
        return self.match[group]

    @property
    def before(self) -> str:
        """The normalized word before it."""
        return self.tokens[self.start - 1].norm if self.start else ""

    def size(self, group: str) -> int:
        """Return how many words stand up to the end of a group."""
        return self.match.string.count(" ", self.match.start(), self.match.end(group)) + 1

    def quantity(
        self, last: str, values: Iterable[float], unit: str | None = None, sort: str | None = None
    ) -> Quantity:
        """Return a quantity made of the words up to a group; its values are converted to the base unit."""
        end, numbers = self.start + self.size(last), frozenset(values)
        words = self.tokens[self.start : end]
        measured, factor = UNIT_SCALES.get(unit or "", (sort or unit, 1.0))
        working = _WORKING if any(t.norm in ("working", "business") for t in words) else 1.0
        text = ("" if words[0].kind == "char" else " ").join(t.text for t in words)
        meant = frozenset(v * factor * extra for v in numbers for extra in (1.0, working))
        return Quantity(text, meant, unit, measured, numbers, self.start, end)


_Reader = Callable[[_Found], list[Quantity]]


def quantities(tokens: Sequence[Word]) -> list[Quantity]:
    """Return the quantities of a sentence in order."""
    found: list[Quantity] = []
    starts = [t.numeric or t.norm in _STARTS for t in tokens]
    if not any(starts):
        return found
    text, at = _plain(tokens), 0
    for i, token in enumerate(tokens):
        if starts[i] and (not found or i >= found[-1].end):
            found += _read(tokens, i, text, at)
        at += len(token.norm) + 1
    return found


def _plain(tokens: Sequence[Word]) -> str:
    """Return the normalized text of a sentence; numbers that point at what was read are left out."""
    return _POINTER.sub(lambda m: re.sub(r"\S", "_", m[0]), " ".join([t.norm for t in tokens]))


def _read(tokens: Sequence[Word], start: int, text: str, at: int) -> list[Quantity]:
    """Return what the first form reads that fits a place of the text."""
    for form, read in _FORMS:
        if (match := form.match(text, at)) and (found := read(_Found(tokens, start, match))):
            return found
    return []


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word)))


_POINTER = re.compile(r"\b(?:passage|context|document|source)s?(?: (?:and|or|\d+))+(?!\S)")
_TENS = _any(word for word, value in NUMBER_WORDS.items() if value >= 20)
_CHINESE = "[〇零一二两兩三四五六七八九十百千]"
_SPELLED = (
    rf"(?:(?:{_TENS}) (?:one|two|three|four|five|six|seven|eight|nine)|{_CHINESE}(?: {_CHINESE})+|{_any(NUMBER_WORDS)})"
)
_SCALE = rf"(?:{_any(MAGNITUDES.keys() - {'m'})})"
_SCALED = rf"(?:(?: {_SCALE})+(?: (?:and )?{_SPELLED})?)"
_NUMBER = rf"(?:(?<=[$€£¥] )\d[\d.,]* m|an?{_SCALED}+|(?:-?\d[\d.,:/]*|{_SPELLED}){_SCALED}*)(?!\S)"
_PART = rf"(?:{_any(_PARTS)})"
_UNIT = rf"(?: (?P<unit>\S+)(?: and a (?P<late>{_PART})(?!\S)| (?P<second>\S+))?)?"


def _values(written: str) -> set[float]:
    """Return every value that a number in digits or words may mean."""
    head, *rest = written.split()
    if head[-1].isdigit() and head.isascii():
        return {_spelled(rest, value) for value in _digits(head)}
    return {_spelled([head, *rest], 0.0)}


def _spelled(words: Sequence[str], digit: float) -> float:
    """Add up number words after a number in digits: "2.5 million", "two hundred and fifty", 二十五."""
    total = part = 0.0
    for word in words:
        scale = MAGNITUDES.get(word)
        if scale is None:
            digit = digit * (1 if word.isascii() else 10) + NUMBER_WORDS.get(word, 0)
        elif scale < 1000:
            part, digit = part + (digit or 1.0) * scale, 0.0
        else:
            total, part, digit = total + (part + digit or 1.0) * scale, 0.0, 0.0
    return total + part + digit


def _digits(written: str) -> set[float]:
    """Return every value digits may mean ("1.000" is 1 or 1000); none for a version ("2.4.1") or a fraction."""
    if re.fullmatch(r"-?\d{1,3}([.,])\d{3}(\1\d{3})*", written):
        plain = {float(re.sub("[.,]", "", written))}
        return plain | ({float(written)} if written.count(".") == 1 else set())
    decimal = re.fullmatch(r"-?[\d,]*\d(?:\.\d+)?|-?[\d.]*\d,\d+", written)
    if not decimal or written.count(".") > 1:
        return set()
    return {float(written.replace(",", "." if written.count(",") == 1 and "." not in written else ""))}


def _unit(found: _Found) -> tuple[str | None, str]:
    """Return the unit before or after a number and the group where it ends; "five working days" has a word between."""
    before, first, second = found.before, found["unit"] or "", found["second"] or ""
    if before in _BEFORE:
        return UNITS[before], ""
    if first in UNITS:
        return UNITS[first], "late" if found["late"] else "unit"
    if first + second in UNITS:  # "per cent", "° c"
        return UNITS[first + second], "second"
    timed = UNIT_SCALES.get(UNITS.get(second, ""), ("",))[0] == "time"
    between = found.tokens[found.start + found.size("number")] if timed else None
    return (UNITS[second], "second") if between and not between.function and not between.numeric else (None, "")


def _number(found: _Found) -> list[Quantity]:
    """Read a number and its unit; "a month" counts where something measures it ("about a month")."""
    written, token = found["number"], found.tokens[found.start]
    unit, last = _unit(found)
    part = _PARTS.get(found["more"] or (found["late"] if last == "late" else ""), 0.0)
    values = {1.0 + part} if written in ("a", "an") else {value + part for value in _values(written)}
    measured = last == "late" or (last == "unit" and found.before in APPROXIMATIONS)
    if not measured if written in ("a", "an") else values == {1.0} and token.kind != "number" and not unit:
        return []
    end = last or ("more" if found["more"] else "number")
    named = found.start and (found.tokens[found.start - 1].capital or found.before in ("version", "v", "release"))
    if not values or (unit is None and named and "." in written and written.endswith("0")):
        return [found.quantity(end, (), sort="version")]
    if found.before == "minus":
        values = {-abs(value) for value in values}
    return [found.quantity(end, values, unit)]


def _part(found: _Found) -> list[Quantity]:
    """Read "half an hour", "three quarters of a year", "half a million", "a third of the members", "one in ten"."""
    count, unit, scale = found["count"], UNITS.get(found["unit"] or ""), found["scale"]
    value = _PARTS[found["part"]] * (1.0 if count in (None, "a", "an") else max(_values(count), default=1.0))
    if unit or scale:
        value *= MAGNITUDES.get(scale, 1.0)
        return [found.quantity("unit" if unit else "scale", {value}, unit)]
    whole = found["of"] or found["many"] or " " in found["part"] or found.before in APPROXIMATIONS
    return [found.quantity("part", {100 * value}, "½")] if whole else []


def _date(found: _Found) -> list[Quantity]:
    """Read "2024-03-05" or "05.03.2024" as year, month and day."""
    year, day = sorted((float(found["first"]), float(found["last"])), reverse=True)
    month = found.quantity("last", {float(found["month"])}, sort="month")
    return [found.quantity("last", {year}), month, found.quantity("last", {day})]


def _month(found: _Found) -> list[Quantity]:
    """Read a month; "may" and "march" only beside a number or with a capital inside a sentence."""
    start, tokens = found.start, found.tokens
    word, near = tokens[start], tokens[max(0, start - 1) : start + 2]
    sure = len(word.norm) > 5 or any(t.kind == "number" for t in near) or (start > 0 and word.text.istitle())
    return [found.quantity("month", {MONTHS[word.norm]}, sort="month")] if sure else []


def _time(found: _Found) -> list[Quantity]:
    """Read a time of the day in hours; without "am" or "pm" and up to twelve it may be either."""
    hour, half, minute, shift = found["hour"], found["half"], found["minute"] or "", found["shift"]
    if not (half or shift or ":" in minute or hour in _NAMED_TIMES):
        return []
    (value,) = {_NAMED_TIMES[hour]} if hour in _NAMED_TIMES else _values(hour)
    halves = (0,) if half in _MORNING else (12,) if half in _AFTERNOON else (0, 12)
    either = value <= 12 and not hour.startswith("0") and hour not in _NAMED_TIMES
    more = (int(minute[1:3].rstrip(":") or 0) + _SHIFTS.get(shift or "", 0)) / 60
    hours = {(h + more) % 24 for h in ([value % 12 + add for add in halves] if either else [value])}
    return [found.quantity("half" if half else "hour", hours, sort="clock")]


_FORMS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (re.compile(r"(?P<first>\d{4}) (?P<month>0[1-9]|1[0-2]) (?P<last>\d\d)(?!\S)"), _date),
    (re.compile(r"(?P<first>\d{1,2})[./](?P<month>0?[1-9]|1[0-2])[./](?P<last>\d{4})(?!\S)"), _date),
    (
        re.compile(
            rf"(?:(?P<shift>{_any(_SHIFTS)}) )?(?P<hour>[01]?\d|2[0-4]|{_SPELLED}|{_any(_NAMED_TIMES)})"
            r"(?P<minute>[:.][0-5]?\d(?::\d\d)?)?(?!\S)"
            rf"(?: (?P<half>{_any((*_MORNING, *_AFTERNOON))}|o'clock)(?!\S))?"
        ),
        _time,
    ),
    (
        re.compile(
            rf"(?:(?P<count>an?|{_NUMBER}) (?={_PART})|(?<!first )(?<!second )(?<!other )(?=half))"
            rf"(?P<part>{_PART})(?P<many>s)?(?!\S)"
            r"(?P<of>(?: (?:of|an?|the|its|their|his|her|your|our|my)(?!\S))+)?"
            rf"(?: (?P<scale>{_SCALE})(?!\S))?{_UNIT}"
        ),
        _part,
    ),
    (re.compile(rf"(?P<number>{_NUMBER}|an?)(?!\S)(?: and a (?P<more>{_PART})(?!\S))?{_UNIT}"), _number),
    (re.compile(rf"(?P<month>{_any(MONTHS)})(?!\S)"), _month),
)


def is_derived(claim: Sequence[Word], quantity: Quantity, known: Sequence[Quantity]) -> bool:
    """Tell whether a quantity follows from two of one sentence by an operation that the claim names.

    A part of something ("80 euros, half of that for students") names its operation itself.
    """
    named = {OPERATIONS[t.norm] for t in claim if t.norm in OPERATIONS}
    results = _results(known[:_MOST_OPERANDS], named)
    return any(abs(v - r) <= 1e-6 * max(1.0, abs(r)) for r in results for v in quantity.values | quantity.numbers)


def _results(known: Sequence[Quantity], named: set[str]) -> Iterator[float]:
    for one, other in permutations(known, 2):
        for a, b in product(one.numbers, other.numbers):
            if one.unit == "½":
                yield a / 100 * b
            if "+" in named:
                yield a + b
            if "-" in named:
                yield a - b
            if "*" in named:
                yield a * b
            if "/" in named and b:
                yield from (a / b, round(100 * a / b))
