"""What a sentence commits to beside its words: quantities with units, months, names, negations.

Second stage of the offline checks: tokens → facts that either are in the evidence or are not. A changed number or a
dropped "not" leaves word overlap near 1, so these are checked on their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ragpulse_evaluators.grounding.lexicon import MAGNITUDES, MONTHS, NUMBER_WORDS, UNITS
from ragpulse_evaluators.grounding.text import Word

Place = TypeVar("Place", bound=Word)

__all__ = ["Quantity", "months", "names", "negations", "quantities"]

_THOUSANDS = re.compile(r"\d{1,3}([.,])\d{3}(\1\d{3})*")
_AMBIGUOUS_MONTHS = frozenset({"may", "march", "mar", "mars", "mai", "dec", "sept", "jun"})


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written, every value it may mean ("1.000" is 1 or 1000), its unit, and its token position."""

    text: str
    values: frozenset[str]
    unit: str | None
    position: int
    end: int


def quantities(tokens: Sequence[Word]) -> list[Quantity]:
    """Return the numbers of a sentence: digits, number words over one, and "3.5 million" as one quantity."""
    found: list[Quantity] = []
    if not any([t.numeric for t in tokens]):
        return found
    position = 0
    while position < len(tokens):
        end, values = _read_number(tokens, position)
        if values:
            written = _surface(tokens, position, end)
            forms = frozenset(_plain(v) for v in values)
            if forms != {"1"} or tokens[position].kind == "number":
                found.append(Quantity(written, forms, _unit(tokens, position, end), position, end))
        position = max(end, position + 1)
    return found


def _surface(tokens: Sequence[Word], start: int, end: int) -> str:
    glue = "" if tokens[start].kind == "char" else " "
    return glue.join(t.text for t in tokens[start:end])


def _read_number(tokens: Sequence[Word], start: int) -> tuple[int, set[float]]:
    token = tokens[start]
    if not token.numeric:
        return start + 1, set()
    if token.kind == "number":
        end, values = start + 1, _digits(token.norm)
    else:
        end, values = _spelled(tokens, start)
    while end < len(tokens) and (scale := MAGNITUDES.get(tokens[end].norm)) and tokens[end].norm != "m":
        values = {value * scale for value in values}
        end += 1
    return end, values


def _spelled(tokens: Sequence[Word], start: int) -> tuple[int, set[float]]:
    if tokens[start].kind == "char":
        return _chinese(tokens, start)
    value = NUMBER_WORDS[tokens[start].norm]
    following = NUMBER_WORDS.get(tokens[start + 1].norm) if start + 1 < len(tokens) else None
    if value >= 20 and following is not None and 0 < following < 10:
        return start + 2, {float(value + following)}
    return start + 1, {float(value)}


def _chinese(tokens: Sequence[Word], start: int) -> tuple[int, set[float]]:
    total, digit, end, digits = 0.0, 0.0, start, ""
    while end < len(tokens):
        norm = tokens[end].norm
        if norm in NUMBER_WORDS and norm != "十":
            digit = float(NUMBER_WORDS[norm])
            digits += str(int(digit))
        elif norm in "十百千":
            total += (digit or 1.0) * {"十": 10.0, "百": 100.0, "千": 1000.0}[norm]
            digit, digits = 0.0, ""
        else:
            break
        end += 1
    return end, {float(digits) if len(digits) > 1 else total + digit}


def _digits(written: str) -> set[float]:
    if ":" in written:
        head, _, tail = written.partition(":")
        return {value + 0.01 * _float(tail.replace(":", "")) for value in _digits(head)}
    values = set()
    if _THOUSANDS.fullmatch(written):
        values.add(float(re.sub(r"[.,]", "", written)))
        if written.count(",") + written.count(".") > 1 or "," in written:
            return values
    values.add(_float(written))
    return values


def _float(written: str) -> float:
    head, _, tail = written.replace(",", ".").rpartition(".")
    return float(f"{head.replace('.', '') or '0'}.{tail}") if head else float(tail or 0)


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() and value < 1e15 else f"{value:.10g}"


def _unit(tokens: Sequence[Word], start: int, end: int) -> str | None:
    if start and tokens[start - 1].kind == "sign" and tokens[start - 1].norm in UNITS:
        return UNITS[tokens[start - 1].norm]
    return UNITS.get(tokens[end].norm) if end < len(tokens) else None


def months(tokens: Sequence[Word]) -> dict[int, str]:
    """Return the months named in a sentence, number of the month to the word; "may" counts only beside a number."""
    found: dict[int, str] = {}
    for i in [i for i, token in enumerate(tokens) if token.norm in MONTHS or token.kind == "number"]:
        token = tokens[i]
        month = MONTHS.get(token.norm)
        if month and (token.norm not in _AMBIGUOUS_MONTHS or _beside_number(tokens, i)):
            found[month] = token.text
        if token.kind == "number" and len(token.norm) == 4 and _iso_tail(tokens, i):
            found.setdefault(int(tokens[i + 1].norm), tokens[i + 1].text)
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
