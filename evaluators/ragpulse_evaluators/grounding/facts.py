"""What a sentence commits to beside its words: quantities with units, months, names, negations.

Second stage of the offline checks: tokens → facts that either are in the evidence or are not. A changed number or a
dropped "not" leaves word overlap near 1, so these are checked on their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ragpulse_evaluators.grounding.lexicon import MAGNITUDES, MONTHS, NUMBER_WORDS, UNIT_SCALES, UNITS
from ragpulse_evaluators.grounding.text import Word

Place = TypeVar("Place", bound=Word)

__all__ = ["Quantity", "months", "names", "negations", "quantities"]

_THOUSANDS = re.compile(r"-?\d{1,3}([.,])\d{3}(\1\d{3})*")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::\d\d)?")
_DOTTED_DATE = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4})")
_AMBIGUOUS_MONTHS = frozenset({"may", "march", "mar", "mars", "mai", "dec", "sept", "jun"})
_CAPITAL_MONTHS = frozenset({"may", "march", "mai"})
_CLOSE_ENOUGH = 0.015
"""Converted values may differ by this much: "5 miles" is "8 km"."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written, every value it may mean ("1.000" is 1 or 1000), its unit, and where its tokens are."""

    text: str
    values: frozenset[str]
    unit: str | None
    position: int
    end: int
    """Where the number ends; its unit stands there or before it."""

    @property
    def sort(self) -> str | None:
        """What the unit measures, or the unit itself."""
        return UNIT_SCALES[self.unit][0] if self.unit in UNIT_SCALES else self.unit

    def agrees(self, other: "Quantity") -> bool:
        """Tell whether both may be the same: one value in one unit (or none given), or equal when converted."""
        if self.values & other.values and (self.unit == other.unit or None in (self.unit, other.unit)):
            return True
        slack = 1e-9 if self.unit == other.unit else _CLOSE_ENOUGH
        return any(
            mine == theirs and abs(value - it) <= slack * max(abs(value), abs(it))
            for mine, value in self._measures()
            for theirs, it in other._measures()
        )

    def _measures(self) -> list[tuple[str, float]]:
        dimension, factor = UNIT_SCALES.get(self.unit or "", (self.unit or "ratio", 1.0))
        values = [float(v) for v in self.values if _PLAIN.fullmatch(v)]
        return [(dimension, v * factor) for v in values if self.unit or 0 < v < 1]


_PLAIN = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


def quantities(tokens: Sequence[Word]) -> list[Quantity]:
    """Return the numbers of a sentence: digits, number words over one, and "3.5 million" as one quantity."""
    found: list[Quantity] = []
    if not any([t.numeric or t.norm == "half" for t in tokens]):
        return found
    position = 0
    while position < len(tokens):
        if date := _date(tokens, position):
            end, day, _, year = date
            found += [Quantity(str(n), frozenset({str(n)}), None, position, end) for n in (year, day)]
            position = end
            continue
        end, values = _read_number(tokens, position)
        if values:
            if position and tokens[position - 1].norm == "minus":
                values = {value if value.startswith("-") else f"-{value}" for value in values}
            unit = _unit(tokens, position, end)
            forms = _on_the_clock(values, unit) if unit in ("am", "pm") else values
            if unit and len(values) == 1:  # with a unit 0.50 is no version
                forms = forms | {_plain(float(value)) for value in values if _PLAIN.fullmatch(value)}
            if forms != {"1"} or tokens[position].kind == "number":
                found.append(Quantity(_surface(tokens, position, end), frozenset(forms), unit, position, end))
        position = max(end, position + 1)
    return found


def _date(tokens: Sequence[Word], i: int) -> tuple[int, int, int, int] | None:
    """Read "2024-03-05" or "05.03.2024": where it ends, day, month, year."""
    if tokens[i].kind != "number":
        return None
    if len(tokens[i].norm) == 4 and _iso_tail(tokens, i):
        return i + 3, int(tokens[i + 2].norm), int(tokens[i + 1].norm), int(tokens[i].norm)
    dotted = _DOTTED_DATE.fullmatch(tokens[i].norm)
    if dotted and 0 < int(dotted[2]) < 13:
        return i + 1, int(dotted[1]), int(dotted[2]), int(dotted[3])
    return None


def _surface(tokens: Sequence[Word], start: int, end: int) -> str:
    glue = "" if tokens[start].kind == "char" else " "
    return glue.join(t.text for t in tokens[start:end])


def _read_number(tokens: Sequence[Word], start: int) -> tuple[int, set[str]]:
    token = tokens[start]
    if unit := _half(tokens, start):
        return unit, {"0.5"}
    if not token.numeric:
        return start + 1, set()
    end, values = (start + 1, _digits(token.norm)) if token.kind == "number" else _spelled(tokens, start)
    while end < len(tokens) and (scale := MAGNITUDES.get(tokens[end].norm)) and tokens[end].norm != "m":
        values = {_plain(float(value) * scale) for value in values if _PLAIN.fullmatch(value)}
        end += 1
    if [t.norm for t in tokens[end : end + 3]] == ["and", "a", "half"]:
        return end + 3, {_plain(float(value) + 0.5) for value in values if _PLAIN.fullmatch(value)}
    return end, values


def _half(tokens: Sequence[Word], start: int) -> int:
    """Where "half an hour" and "half hour" count a unit, return its place, else 0; "half of them" counts nothing."""
    if tokens[start].norm != "half":
        return 0
    unit = start + 1 + any(t.norm in ("a", "an") for t in tokens[start + 1 : start + 2])
    return unit if any(t.norm in UNITS for t in tokens[unit : unit + 1]) else 0


def _spelled(tokens: Sequence[Word], start: int) -> tuple[int, set[str]]:
    if tokens[start].kind == "char":
        return _chinese(tokens, start)
    value = NUMBER_WORDS[tokens[start].norm]
    following = NUMBER_WORDS.get(tokens[start + 1].norm) if start + 1 < len(tokens) else None
    if value >= 20 and following is not None and 0 < following < 10:
        return start + 2, {str(value + following)}
    return start + 1, {str(value)}


def _chinese(tokens: Sequence[Word], start: int) -> tuple[int, set[str]]:
    total, digit, end, digits = 0.0, 0.0, start, ""
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
    return end, {_plain(float(digits) if len(digits) > 1 else total + digit)}


def _digits(written: str) -> set[str]:
    """Every value digits may mean; a version ("2.4.1", "3.10") is its own spelling."""
    if clock := _CLOCK.fullmatch(written):
        whole = {clock[1].lstrip("0") or "0"} if clock[2] == "00" else set()
        return {f"{int(clock[1])}:{clock[2]}"} | whole
    if _THOUSANDS.fullmatch(written):
        values = {_plain(float(re.sub(r"[.,]", "", written)))}
        single = written.count(",") + written.count(".") == 1 and "." in written
        return values | ({_plain(float(written))} if single else set())
    if written.count(".") > 1 or ":" in written or "/" in written:
        return {written}
    if "." in written and written.endswith("0"):
        return {written}
    return {_plain(_float(written))}


def _on_the_clock(values: set[str], half: str) -> set[str]:
    """Hours of the morning or afternoon as those of the day: "6 pm" is "18:00"."""
    times = set()
    for value in values:
        hour, _, minutes = value.partition(":")
        if hour.isdigit() and int(hour) <= 12:
            times.add(f"{int(hour) % 12 + 12 * (half == 'pm')}:{minutes or '00'}")
    return values | times


def _float(written: str) -> float:
    sign = -1.0 if written.startswith("-") else 1.0
    head, _, tail = written.lstrip("-").replace(",", ".").rpartition(".")
    return sign * (float(f"{head.replace('.', '') or '0'}.{tail}") if head else float(tail or 0))


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.10g}"


def _unit(tokens: Sequence[Word], start: int, end: int) -> str | None:
    signed = start and (tokens[start - 1].kind == "sign" or tokens[start - 1].norm == "百分之")
    if signed and tokens[start - 1].norm in UNITS:
        return UNITS[tokens[start - 1].norm]
    if end < len(tokens) - 1 and tokens[end].norm in ("a", "p") and tokens[end + 1].norm == "m":
        return tokens[end].norm + "m"
    return UNITS.get(tokens[end].norm) if end < len(tokens) else None


def months(tokens: Sequence[Word]) -> dict[int, str]:
    """Return the months of a sentence, number to word; "may" only with a capital or beside a number."""
    found: dict[int, str] = {}
    for i in [i for i, token in enumerate(tokens) if token.norm in MONTHS or token.kind == "number"]:
        token = tokens[i]
        month = MONTHS.get(token.norm)
        certain = token.norm not in _AMBIGUOUS_MONTHS or (
            i > 0 and token.text.istitle() and token.norm in _CAPITAL_MONTHS
        )
        if month and (certain or _beside_number(tokens, i)):
            found[month] = token.text
        if date := _date(tokens, i):
            found.setdefault(date[2], str(date[2]))
        if i + 1 < len(tokens) and tokens[i + 1].norm == "月" and token.norm.isdigit() and 0 < int(token.norm) < 13:
            found.setdefault(int(token.norm), token.text + "月")
    return found


def _beside_number(tokens: Sequence[Word], i: int) -> bool:
    near = (*tokens[max(0, i - 1) : i], *tokens[i + 1 : i + 2])
    return any(t.kind == "number" for t in near)


def _iso_tail(tokens: Sequence[Word], i: int) -> bool:
    tail = tokens[i + 1 : i + 3]
    return len(tail) == 2 and all(t.kind == "number" and len(t.norm) == 2 for t in tail) and 0 < int(tail[0].norm) < 13


def names(tokens: Sequence[Place]) -> list[Place]:
    """Return tokens written like names: capital inside a sentence, acronyms, letters in a script that has case."""
    return [
        token for i, token in enumerate(tokens) if token.capital and (i > 0 or any(c.isupper() for c in token.text[1:]))
    ]


def negations(tokens: Sequence[Word]) -> list[int]:
    """Return the positions of negating tokens ("not", "don't", "no", "不", "nicht", ...)."""
    return [i for i, token in enumerate(tokens) if token.negation]
