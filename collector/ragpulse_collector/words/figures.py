"""Numbers, durations and money as people read them; a missing value is a dash, never a zero.

A no-break space stands between a number and its unit.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import wraps
from numbers import Real
from typing import Any

from ragpulse_collector.words import DASH, SHARES, basis, level
from ragpulse_collector.words.times import iso

NBSP = "\u00a0"
_DIMENSIONS = {"name": "operation", "q": "text", "where": "SQL", "user_id": "user", "session_id": "session"}
_UNITS = {
    "latency": "ms", "ttft": "ms", "cost": "usd", "token": "tokens", "request": "count", "errors": "count",
    "error_rate": "share", "empty_rate": "share", "refused_rate": "share", "unanswered_rate": "share",
    "acceptance": "share", "other_share": "share",
}  # fmt: skip
_SHARE_OF = re.compile(r"(coverage|pass_rate|fail_rate|unclear_rate|\w+_share)\Z")
"""Families of metrics that are shares, each of an evaluator or a label."""
_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0], "\ufffd")
"""Characters that change the direction of the text after them, and NUL."""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real | Decimal | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _or_dash(show: Callable[[float], str]) -> Callable[[Any], str]:
    """Return the format of a number as one of any value: a dash where it is no number."""

    @wraps(show)
    def show_any(value: Any) -> str:
        number = _number(value)
        return DASH if number is None else show(number)

    return show_any


@_or_dash
def count(number: float) -> str:
    """12345 → 12,345; fractions (estimates, rates) keep one digit, or two significant ones below 1."""
    if 0 < abs(number) < 1:
        return f"{number:.2g}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:,.1f}"


@_or_dash
def compact(number: float) -> str:
    """12345 → 12.3k, for tiles and axes."""
    for least, scale, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(number) >= least:
            scaled = number / scale
            return f"{scaled:.1f}{letter}" if scaled < 100 else f"{scaled:.0f}{letter}"
    return count(number)


@_or_dash
def ratio(number: float) -> str:
    """A score on 0..1 with three digits: 0.873."""
    return f"{number:.3f}"


@_or_dash
def percent(number: float) -> str:
    """0.0123 → 1.2 %; the smallest share does not look like none."""
    share = number * 100
    if 0 < share < 0.1:
        return f"<{NBSP}0.1{NBSP}%"
    return f"{share:.1f}{NBSP}%" if 0 < abs(share) < 10 else f"{share:.0f}{NBSP}%"


@_or_dash
def ms(number: float) -> str:
    """Milliseconds in a fitting unit: 850 ms, 1.24 s, 2 min 5 s."""
    if number < 1:
        return f"{number:.2f}{NBSP}ms" if number else f"0{NBSP}ms"
    if number < 1000:
        return f"{number:.1f}{NBSP}ms" if number < 10 else f"{number:.0f}{NBSP}ms"
    if number < 60_000:
        return f"{number / 1000:.2f}{NBSP}s"
    return seconds(number / 1000)


@_or_dash
def seconds(number: float) -> str:
    """Seconds as a duration: 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h."""
    whole = round(number)
    for size, small, names in ((86_400, 3_600, ("d", "h")), (3_600, 60, ("h", "min")), (60, 1, ("min", "s"))):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size}{NBSP}{names[0]}" + (f" {rest}{NBSP}{names[1]}" if rest else "")
    return f"{whole}{NBSP}s"


@_or_dash
def usd(number: float) -> str:
    """Money in USD, two significant digits below a dollar: $0.00042, $0.010, $1.23, $1,234."""
    if number == 0:
        return "$0"
    if abs(number) < 1:
        digits = min(8, 1 - math.floor(math.log10(abs(number))))
        return f"${number:.{digits}f}"
    return f"${number:,.2f}" if abs(number) < 1000 else f"${number:,.0f}"


@_or_dash
def p_value(number: float) -> str:
    """A p-value with two digits; below 0.0001 only that fact."""
    return "< 0.0001" if number < 0.0001 else f"{number:.2g}"


@_or_dash
def size(number: float) -> str:
    """Bytes as kB, MB, GB (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f}{NBSP}{unit}" if unit == "B" or number >= 100 else f"{number:.1f}{NBSP}{unit}"
        number /= 1000
    return f"{number:.1f}{NBSP}TB"


def interval(low: Any, high: Any, unit: str = "ratio") -> str:
    """A 95 % interval: 0.84–0.90; of one end (a percentile of few requests) `at least 1.27 s`."""
    if _number(low) is None and _number(high) is None:
        return DASH
    below, above = by_unit(low, unit), by_unit(high, unit)
    if DASH in (below, above):
        return f"at least {below}" if above == DASH else f"at most {above}"
    return above if above.startswith("<") else f"{below}–{above}"


def _field(answer: Any, name: str) -> Any:
    return answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)


def estimate(measured: Any, unit: str = "ratio") -> str:
    """An estimate with its 95 % interval as `words.level` writes it; the value alone where none is known."""
    value, low, high = (_number(_field(measured, name)) for name in ("value", "lo", "hi"))
    if value is None:
        return DASH
    if low is None or high is None:
        return f"{value:.2f}" if unit == "ratio" else by_unit(value, unit)
    return level(value, low, high, share=unit == "share").replace(" ", NBSP)


def rests_on(measured: Any, eligible: Any = None) -> str:
    """The basis of an estimate: `412 of 9,800 answers · 58 users · 169 missing`."""
    n, total = _number(_field(measured, "n")) or 0, round(_number(eligible) or 0)
    users, users_are, passed = (_field(measured, name) for name in ("users", "users_are", "passed"))
    missing = _number(_field(measured, "missing"))
    answers = basis(round(n), asked=total, passed=passed, users=users, users_are=users_are)
    if users is None and _number(_field(measured, "lo")) is None:
        answers = answers.removesuffix(" · without user ids")
    return " · ".join(filter(None, (answers, f"{count(missing)} missing" if missing else "")))


def signed(value: Any, unit: str = "ratio") -> str:
    """A difference with its sign: +0.031, −120 ms."""
    number = _number(value)
    if number is None:
        return DASH
    sign = "+" if number > 0 else "−" if number < 0 else ""
    return sign + by_unit(abs(number), unit)


def spaced(value: Any) -> str:
    """A duration as settings write it: 7d → 7 d."""
    return re.sub(r"(?<=\d)(?=[a-z])", NBSP, str(value))


def snippet(value: Any, length: int = 120) -> str:
    """The beginning of a text, cut between words, with white space folded and direction controls made visible."""
    if value is None:
        return ""
    text = worded(" ".join(str(value)[: length * 4].translate(_CONTROLS).split()) or str(value)[:1])
    if len(text) <= length:
        return text
    space = text.rfind(" ", 0, length)
    return text[: space if 3 * space > 2 * length else length - 1].rstrip() + "…"


def worded(value: Any) -> str:
    """A text; `(blank)` where nothing of it is visible, so that a link or a heading has words; empty for none."""
    text = "" if value is None else str(value)
    seen = any(char.isprintable() and not char.isspace() for char in text)
    return text if seen or not text else "(blank)"


def short(value: Any, length: int = 8) -> str:
    """The beginning of an id or hash."""
    return "" if value is None else str(value)[:length]


def unit_of(metric: Any) -> str:
    """The unit of a metric, from its name."""
    name = str(metric)
    family, colon, _ = name.partition(":")
    if (colon and _SHARE_OF.match(family)) or name.removeprefix("quality:") in SHARES:
        return "share"
    return next((unit for word, unit in _UNITS.items() if word in name and ":" not in name), "ratio")


def metric_name(metric: Any) -> str:
    """A metric in words: `quality:refusal` → answered, `fail_rate:x` → fail rate of x, `latency_p95` → latency p95."""
    name = str(metric).removeprefix("quality:").removeprefix("coverage:")
    family, colon, of = name.partition(":")
    if colon and family == "feedback":
        return f"{of.replace('_', ' ')} (people)"
    if colon and _SHARE_OF.match(family):
        plain = {"topic_share": of, "failure_share": of.replace("_", " ")}
        return f"{family.replace('_', ' ')} of {plain.get(family) or metric_name(of)}"
    return SHARES.get(name) or name.replace("_usd", "").replace("_", " ")


def judge_name(identifier: Any) -> str:
    """A judge as people call it: `openai/gpt-5-mini temperature=0.0` → openai/gpt-5-mini, an address by its host."""
    name, at, address = re.sub(r" \w+=\S*", "", str(identifier or "")).partition(" at ")
    return f"{name}{at}{address.partition('/')[0]}"


def title(text: Any) -> str:
    """A text with a capital first letter, the others unchanged."""
    return str(text)[:1].upper() + str(text)[1:]


def dimension(name: Any) -> str:
    """A filter or group in words: `prompt_version` → prompt version."""
    return _DIMENSIONS.get(str(name)) or re.sub(r"\Alabel[.:]", "label ", str(name)).replace("_", " ")


def sentence(text: Any) -> str:
    """A text of the API as a sentence: with a capital and a full stop."""
    return title(text) + ("" if str(text).endswith((".", "?")) else ".")


def counted(number: Any, thing: str) -> str:
    """A number with its noun: 1 trace, 2 traces."""
    return f"{count(number)} {thing}{'' if _number(number) == 1 else 's'}"


def by_unit(value: Any, unit: str) -> str:
    """A number in the unit of its metric: ms, s, usd, ratio, share, count, tokens, bytes."""
    return BY_UNIT.get(unit.lower(), count)(value)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV; a text that a spreadsheet would run as a formula gets a quote in front."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


BY_UNIT = {
    "ratio": ratio,
    "share": percent,
    "ms": ms,
    "s": seconds,
    "usd": usd,
    "count": count,
    "tokens": compact,
    "bytes": size,
}
