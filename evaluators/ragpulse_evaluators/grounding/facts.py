"""Quantities by value: digits and words, units, dates, clock times, shares, and what follows from two of them.

"Nine weeks" and "63 days" are one quantity, "nine weeks" and "five working days" are two. A number without a unit is
equal to any quantity of the same number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from ragpulse_evaluators.grounding.lexicon import (
    APPROXIMATIONS,
    LONG_TIMES,
    MAGNITUDES,
    MONTHS,
    NUMBER_WORDS,
    OPERATIONS,
    UNIT_SCALES,
    UNITS,
)
from ragpulse_evaluators.grounding.text import Word

__all__ = ["Quantity", "is_derived", "quantities"]

_THOUSANDS = re.compile(r"-?\d{1,3}([.,])\d{3}(\1\d{3})*")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{1,2})(?::\d\d)?")
_DOTTED_DATE = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4})")
_DAY = 86400.0
_ROUNDED = 0.015
"""Values in two units may differ by this share: "5 miles" is "8 km"."""
_CALENDAR = 0.09
"""And those of which one counts in months or years: "a month" is "four weeks"."""
_HALVES = {"morning": 0, "afternoon": 12, "evening": 12, "am": 0, "pm": 12, "a": 0, "p": 12, "noon": 12}
_NAMED_TIMES = {"noon": 720.0, "midday": 720.0, "midnight": 0.0}
_PARTS = {"half": 0.5, "third": 1 / 3, "quarter": 0.25, "fifth": 0.2, "tenth": 0.1}
_ONE = frozenset({"a", "an", "one"})
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
        if "version" in (self.sort, other.sort):
            return self.text == other.text
        if {self.unit, other.unit} == {"£", "lb"}:
            return not self.numbers.isdisjoint(other.numbers)
        if self.sort == other.sort:
            slack = _slack(self.unit, other.unit)
            return any(abs(a - b) <= slack * max(abs(a), abs(b)) for a in self.values for b in other.values)
        if "ratio" in (self.sort, other.sort) and None in (self.sort, other.sort):
            return not (self.values | self.numbers).isdisjoint(other.values | other.numbers)
        if "month" in (self.sort, other.sort):
            return False
        return None in (self.sort, other.sort) and not self.numbers.isdisjoint(other.numbers)


def _slack(one: str | None, other: str | None) -> float:
    if one == other:
        return 1e-9
    return _CALENDAR if (one in LONG_TIMES) != (other in LONG_TIMES) else _ROUNDED


def quantities(tokens: Sequence[Word]) -> list[Quantity]:
    """Return the quantities of a sentence in order."""
    found: list[Quantity] = []
    if not any([t.numeric or t.norm in _STARTS for t in tokens]):
        return found
    at = 0
    while at < len(tokens):
        if tokens[at].norm in _POINTERS:
            at = _after_pointer(tokens, at + 1)
            continue
        read = _date(tokens, at) or _time(tokens, at) or _number(tokens, at) or _month(tokens, at)
        found += read
        at = max([at + 1, *(q.end for q in read)])
    return found


def _after_pointer(tokens: Sequence[Word], at: int) -> int:
    """Skip the numbers in "passage 3" and "sources 1, 2 and 4": they point at what was read."""
    while at < len(tokens) and (tokens[at].kind == "number" or tokens[at].norm in ("and", ",", "or")):
        at += 1
    return at


_POINTERS = frozenset({"passage", "passages", "context", "contexts", "document", "documents", "source", "sources"})
_STARTS = frozenset({"a", "an", *_PARTS, *_NAMED_TIMES, *MONTHS})


def _make(tokens: Sequence[Word], start: int, end: int, values: set[float], sort: str | None = None) -> Quantity:
    glue = "" if tokens[start].kind == "char" else " "
    kept = frozenset(values)
    return Quantity(glue.join(t.text for t in tokens[start:end]), kept, None, sort, kept, start, end)


def _date(tokens: Sequence[Word], i: int) -> list[Quantity]:
    """Read "2024-03-05" or "05.03.2024" as year, month and day."""
    norm, end = tokens[i].norm, i + 1
    tail = [t.norm for t in tokens[i + 1 : i + 3] if t.kind == "number" and len(t.norm) == 2]
    if tokens[i].kind == "number" and len(norm) == 4 and len(tail) == 2 and 0 < int(tail[0]) < 13:
        year, month, day, end = norm, tail[0], tail[1], i + 3
    elif (dotted := _DOTTED_DATE.fullmatch(norm)) and 0 < int(dotted[2]) < 13:
        day, month, year = dotted.groups()
    else:
        return []
    parts = ((year, None), (month, "month"), (day, None))
    return [_make(tokens, i, end, {float(value)}, sort) for value, sort in parts]


def _month(tokens: Sequence[Word], i: int) -> list[Quantity]:
    """Read a month; "may" and "march" only beside a number or with a capital inside a sentence."""
    month = MONTHS.get(tokens[i].norm)
    beside = any(t.kind == "number" for t in (*tokens[max(0, i - 1) : i], *tokens[i + 1 : i + 2]))
    sure = len(tokens[i].norm) > 5 or beside or (i > 0 and tokens[i].text.istitle())
    return [_make(tokens, i, i + 1, {float(month)}, "month")] if month and sure else []


def _time(tokens: Sequence[Word], i: int) -> list[Quantity]:
    """Read a time of the day in minutes: "9 am", "21:56", "half past seven", "noon"."""
    norm = tokens[i].norm
    if norm in _NAMED_TIMES:
        return [_make(tokens, i, i + 1, {_NAMED_TIMES[norm]}, "clock")]
    following = [t.norm for t in tokens[i + 1 : i + 3]]
    if norm in ("half", "quarter") and len(following) == 2 and following[0] in ("past", "to"):
        part = 30 if norm == "half" else 15
        return _on_clock(tokens, i, i + 3, following[1], part if following[0] == "past" else -part)
    if clock := _CLOCK.fullmatch(norm):
        after = tokens[i + 1].norm if i + 1 < len(tokens) else ""
        if (":" in norm or after in ("am", "pm", "a", "p")) and int(clock[2]) < 60:
            return _on_clock(tokens, i, i + 1, clock[1], int(clock[2]))
    halved = following[:1] and following[0] in ("am", "pm", "o'clock")
    dotted = len(following) == 2 and following[0] in ("a", "p") and following[1] == "m"
    spoken = following == ["in", "the"] and i + 3 < len(tokens) and tokens[i + 3].norm in _HALVES
    return _on_clock(tokens, i, i + 1, norm, 0) if tokens[i].numeric and (halved or dotted or spoken) else []


def _on_clock(tokens: Sequence[Word], start: int, end: int, hour: str, minutes: int) -> list[Quantity]:
    """Return a time; without "am" or "pm" and up to twelve it may be either."""
    value = float(hour) if hour.isdigit() else float(NUMBER_WORDS.get(hour, 99))
    if value > 24:
        return []
    near = [t.norm for t in tokens[end : end + 4]]
    half = next((_HALVES[word] for word in near if word in _HALVES), None)
    if near[:2] == ["in", "the"] and half is not None:
        end += 3
    elif near[:1] and near[0] in ("am", "pm", "o'clock"):
        end += 1
    hours = (
        {value}
        if value > 12 or hour.startswith("0")
        else {value % 12 + h for h in ((0, 12) if half is None else (half,))}
    )
    made = _make(tokens, start, end, {(60 * h + minutes) % 1440 for h in hours}, "clock")
    return [Quantity(made.text, made.values, None, "clock", frozenset({value} if not minutes else ()), start, end)]


def _number(tokens: Sequence[Word], i: int) -> list[Quantity]:
    """Read a number and its unit; "a month" counts where something measures it ("about a month")."""
    if part := _part(tokens, i):
        return part
    token = tokens[i]
    if token.norm in ("a", "an") and not _measured(tokens, i):
        return []
    if token.norm not in ("a", "an") and not token.numeric:
        return []
    end, values = (i + 1, {1.0}) if token.norm in ("a", "an") else _value(tokens, i)
    if [t.norm for t in tokens[end : end + 2]] == ["and", "a"] and (add := _PARTS.get(_norm(tokens, end + 2))):
        end, values = end + 3, {v + add for v in values}
    elif [t.norm for t in tokens[end : end + 2]] == ["in", "ten"] and values <= {float(n) for n in range(1, 10)}:
        return [_quantity(tokens, i, end + 2, {10 * v for v in values}, "½")]
    unit, place = _unit(tokens, i, end)
    if place and [t.norm for t in tokens[place : place + 2]] == ["and", "a"] and _norm(tokens, place + 2) in _PARTS:
        values = {v + _PARTS[_norm(tokens, place + 2)] for v in values}
        place += 3
    if values == {1.0} and token.kind != "number" and unit is None:
        return []
    named = i > 0 and (tokens[i - 1].capital or tokens[i - 1].norm in ("version", "v", "release"))
    if not values or (unit is None and named and "." in token.norm and token.norm.endswith("0")):
        return [Quantity(token.text, frozenset(), None, "version", frozenset(), i, end)]
    return [_quantity(tokens, i, end, values, unit, place)]


def _norm(tokens: Sequence[Word], i: int) -> str:
    return tokens[i].norm.removesuffix("s") if i < len(tokens) else ""


def _quantity(
    tokens: Sequence[Word], start: int, end: int, values: set[float], unit: str | None, place: int = 0
) -> Quantity:
    if unit == "cent":
        values, unit = {v / 100 for v in values}, None
    sort, factor = UNIT_SCALES.get(unit or "", (unit, 1.0))
    meant = {v * factor for v in values}
    if any(t.norm in ("working", "business") for t in tokens[end : end + 2]):
        meant |= {v * 1.4 for v in meant}
    end = max(end, place)
    glue = "" if tokens[start].kind == "char" else " "
    text = glue.join(t.text for t in tokens[start:end])
    return Quantity(text, frozenset(meant), unit, sort, frozenset(values), start, end)


def _measured(tokens: Sequence[Word], i: int) -> bool:
    """Tell whether "a" before a unit says how much: "takes about a month", not "three times a month"."""
    unit, end = _unit(tokens, i, i + 1)
    measures = (i > 0 and tokens[i - 1].norm in APPROXIMATIONS) or [t.norm for t in tokens[end : end + 2]] == [
        "and",
        "a",
    ]
    return unit is not None and measures and end == i + 2


def _part(tokens: Sequence[Word], i: int) -> list[Quantity]:
    """Read "half an hour", "three quarters of a year", "a third of the members", "one in ten"."""
    counted = tokens[i].norm in _ONE or tokens[i].numeric
    at = i + 1 if counted and _norm(tokens, i + 1) in _PARTS else i
    if _norm(tokens, at) not in _PARTS or (at == i and tokens[i].norm != "half"):
        return []
    count = next(iter(_value(tokens, i)[1]), 1.0) if at > i and tokens[i].norm not in _ONE else 1.0
    value, end = count * _PARTS[_norm(tokens, at)], at + 1
    skip = end + sum(t.norm in ("of", "a", "an", "the") for t in tokens[end : end + 2])
    unit, place = _unit(tokens, i, skip)
    if unit:
        return [_quantity(tokens, i, end, {value}, unit, place)]
    return [_quantity(tokens, i, end, {100 * value}, "½")] if skip > end or tokens[at].norm.endswith("s") else []


def _value(tokens: Sequence[Word], i: int) -> tuple[int, set[float]]:
    """Read a number in digits or words: where it ends, and every value it may mean (none: a version)."""
    end, values = (i + 1, _digits(tokens[i].norm)) if tokens[i].kind == "number" else _spelled(tokens, i)
    money = i > 0 and tokens[i - 1].norm in "$€£"
    while end < len(tokens) and (scale := MAGNITUDES.get(tokens[end].norm)) and (money or tokens[end].norm != "m"):
        values, end = {value * scale for value in values}, end + 1
        rest = tokens[end].norm == "and" if end < len(tokens) else False
        if rest and end + 1 < len(tokens) and tokens[end + 1].norm in NUMBER_WORDS:
            end, more = _spelled(tokens, end + 1)
            values = {value + extra for value in values for extra in more}
    if i and tokens[i - 1].norm == "minus":
        values = {-abs(value) for value in values}
    return end, values


def _spelled(tokens: Sequence[Word], i: int) -> tuple[int, set[float]]:
    if tokens[i].kind == "char":
        return _chinese(tokens, i)
    value = float(NUMBER_WORDS[tokens[i].norm])
    following = NUMBER_WORDS.get(tokens[i + 1].norm, 0) if i + 1 < len(tokens) else 0
    return (i + 2, {value + following}) if value >= 20 and 0 < following < 10 else (i + 1, {value})


def _chinese(tokens: Sequence[Word], i: int) -> tuple[int, set[float]]:
    total, digit, end, digits = 0.0, 0.0, i, ""
    while end < len(tokens):
        norm = tokens[end].norm
        if norm in NUMBER_WORDS and norm != "十":
            digit = float(NUMBER_WORDS[norm])
            digits += str(int(digit))
        elif norm in ("十", "百", "千"):
            total += (digit or 1.0) * {"十": 10.0, "百": 100.0, "千": 1000.0}[norm]
            digit, digits = 0.0, ""
        else:
            break
        end += 1
    return end, {float(digits) if len(digits) > 1 else total + digit}


def _digits(written: str) -> set[float]:
    """Return every value digits may mean ("1.000" is 1 or 1000); none for a version ("2.4.1", "3.10")."""
    if _THOUSANDS.fullmatch(written):
        values = {float(re.sub(r"[.,]", "", written))}
        return values | ({float(written)} if written.count(".") == 1 and "," not in written else set())
    if written.count(",") > 1:  # "boxes 1,2,3"
        return {float(part) for part in written.split(",") if part.isdigit()}
    if written.count(".") > 1 or ":" in written or "/" in written:
        return set()
    sign = -1.0 if written.startswith("-") else 1.0
    head, _, tail = written.lstrip("-").replace(",", ".").rpartition(".")
    return {sign * float(f"{head.replace('.', '') or '0'}.{tail}" if head else tail)}


def _unit(tokens: Sequence[Word], start: int, end: int) -> tuple[str | None, int]:
    """Return the unit before or after a number and where it ends; "five working days" has a word between."""
    if (
        start
        and tokens[start - 1].norm in UNITS
        and (tokens[start - 1].kind == "sign" or tokens[start - 1].kind == "char")
    ):
        return UNITS[tokens[start - 1].norm], end
    for place in (end, end + 1):
        if place < len(tokens) and (unit := UNITS.get(tokens[place].norm)):
            timed = UNIT_SCALES.get(unit, ("",))[0] == "time"
            if place == end or (timed and not tokens[end].function and not tokens[end].numeric):
                return unit, place + 1
    return None, 0


def is_derived(claim: Sequence[Word], quantity: Quantity, known: Sequence[Quantity]) -> bool:
    """Tell whether a quantity follows from two of one sentence by an operation that the claim names.

    A part of something ("80 euros, half of that for students") names its operation itself.
    """
    named = {OPERATIONS[t.norm] for t in claim if t.norm in OPERATIONS}
    results = _results(known[:_MOST_OPERANDS], named)
    return any(abs(v - r) <= 1e-6 * max(1.0, abs(r)) for r in results for v in quantity.values | quantity.numbers)


def _results(known: Sequence[Quantity], named: set[str]) -> Iterator[float]:
    for one, other in permutations(known, 2):
        for a in one.numbers:
            for b in other.numbers:
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
