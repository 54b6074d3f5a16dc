"""Numbers, durations, money and times as people read them; a missing value is a dash, never a zero.

Between a number and its unit stands a space at which no line breaks.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Undefined

__all__ = ["TEMPLATE_FILTERS", "by_unit", "interval", "iso", "parse_time", "readable", "unforced", "unit_of"]

DASH = "–"
NBSP = "\u00a0"
_DIMENSIONS = {"name": "operation", "q": "text", "where": "SQL", "user_id": "user", "session_id": "session"}
_SHARES = {"refusal": "answered"}
"""Evaluators whose 1 means that something was done: their mean is a share, in the word for it."""
_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0], "\ufffd")
"""Characters that reverse the text after them, and NUL."""
_FORCED = dict.fromkeys((0x202D, 0x202E), "\ufffd")


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, Undefined | bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def count(value: Any) -> str:
    """12345 → 12,345; fractions (estimates, rates) keep one digit, or two that count."""
    number = _number(value)
    if number is None:
        return DASH
    if 0 < abs(number) < 1:
        return f"{number:.2g}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:,.1f}"


def compact(value: Any) -> str:
    """12345 → 12.3k, for tiles and axes."""
    number = _number(value)
    if number is None:
        return DASH
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if letter == "k" else size)
            return f"{scaled:.1f}{letter}" if scaled < 100 else f"{scaled:.0f}{letter}"
    return count(number)


def ratio(value: Any) -> str:
    """A score on 0..1 with three digits: 0.873."""
    number = _number(value)
    return DASH if number is None else f"{number:.3f}"


def percent(value: Any) -> str:
    """0.0123 → 1.2 %; the smallest share is not shown as none."""
    number = _number(value)
    if number is None:
        return DASH
    share = number * 100
    if 0 < share < 0.1:
        return f"<{NBSP}0.1{NBSP}%"
    return f"{share:.1f}{NBSP}%" if 0 < abs(share) < 10 else f"{share:.0f}{NBSP}%"


def ms(value: Any) -> str:
    """Milliseconds in the unit a person would say: 850 ms, 1.24 s, 2 min 5 s."""
    number = _number(value)
    if number is None:
        return DASH
    if number < 1:
        return f"{number:.2f}{NBSP}ms" if number else f"0{NBSP}ms"
    if number < 1000:
        return f"{number:.1f}{NBSP}ms" if number < 10 else f"{number:.0f}{NBSP}ms"
    if number < 60_000:
        return f"{number / 1000:.2f}{NBSP}s"
    return seconds(number / 1000)


def seconds(value: Any) -> str:
    """Seconds as a span of time: 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h."""
    number = _number(value)
    if number is None:
        return DASH
    whole = round(number)
    for size, small, names in ((86_400, 3_600, ("d", "h")), (3_600, 60, ("h", "min")), (60, 1, ("min", "s"))):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size}{NBSP}{names[0]}" + (f" {rest}{NBSP}{names[1]}" if rest else "")
    return f"{whole}{NBSP}s"


def usd(value: Any) -> str:
    """Money in USD, two significant digits below a dollar: $0.00042, $0.010, $1.23, $1,234."""
    number = _number(value)
    if number is None:
        return DASH
    if number == 0:
        return "$0"
    if abs(number) < 1:
        digits = min(8, 1 - math.floor(math.log10(abs(number))))
        return f"${number:.{digits}f}"
    return f"${number:,.2f}" if abs(number) < 1000 else f"${number:,.0f}"


def p_value(value: Any) -> str:
    """A p-value to two digits; below 0.0001 only that it is."""
    number = _number(value)
    if number is None:
        return DASH
    return "< 0.0001" if number < 0.0001 else f"{number:.2g}"


def size(value: Any) -> str:
    """Bytes as kB, MB, GB (powers of 1000)."""
    number = _number(value)
    if number is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f}{NBSP}{unit}" if unit == "B" or number >= 100 else f"{number:.1f}{NBSP}{unit}"
        number /= 1000
    return f"{number:.1f}{NBSP}TB"


def interval(low: Any, high: Any, kind: str = "ratio") -> str:
    """A 95 % interval: 0.84–0.90."""
    if _number(low) is None or _number(high) is None:
        return DASH
    show = BY_UNIT.get(kind.lower(), ratio)
    below, above = show(low), show(high)
    return above if above.startswith("<") else f"{below}–{above}"


def estimate(one: Any, kind: str = "ratio") -> str:
    """An estimate with half its 95 % interval: `0.87 ± 0.03`, `91 % ± 2 %`; the value alone where none is known."""
    value, low, high = (_number(one.get(name)) for name in ("value", "lo", "hi"))
    if value is None:
        return DASH
    half = None if low is None or high is None else (high - low) / 2
    digits = 3 if half is not None and 0 < half < 0.005 else 2
    show = by_unit if kind != "ratio" else lambda number, _: f"{number:.{digits}f}"
    return show(value, kind) if half is None else f"{show(value, kind)}{NBSP}±{NBSP}{show(half, kind)}"


def rests_on(one: Any, eligible: Any = None) -> str:
    """What an estimate rests on, as far as it is known: `412 of 9,800 answers · 58 users · 169 missing`."""
    n, of = _number(one.get("n")) or 0, round(_number(eligible) or 0)
    answers = f"{count(n)} of {counted(of, 'answer')}" if of and of != n else counted(n, "answer")
    users, missing = _number(one.get("users")), _number(one.get("missing"))
    whose = counted(users, "user") if users else "taken as independent" if _number(one.get("lo")) is not None else ""
    lost = f"{count(missing)} missing" if missing else ""
    return " · ".join(filter(None, (answers, whose, lost)))


def signed(value: Any, kind: str = "ratio") -> str:
    """A difference with its sign: +0.031, −120 ms."""
    number = _number(value)
    if number is None:
        return DASH
    sign = "+" if number > 0 else "−" if number < 0 else "±"
    return sign + BY_UNIT.get(kind, ratio)(abs(number))


def spaced(value: Any) -> str:
    """A span of time as the settings write it: 7d → 7 d."""
    return re.sub(r"(?<=\d)(?=[a-z])", NBSP, str(value))


def parse_time(value: Any) -> datetime | None:
    """An ISO-8601 time as an aware datetime in UTC, or None."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def iso(moment: datetime) -> str:
    """A time in UTC as the API writes it: 2026-11-21T08:00:00Z."""
    return moment.isoformat().replace("+00:00", "Z")


def when(value: Any) -> str:
    """An ISO time as `Nov 21 22:10:54` (UTC, as everywhere on the pages)."""
    moment = parse_time(value)
    return DASH if moment is None else f"{moment:%b %d %H:%M:%S}"


def minute(value: Any) -> str:
    """An ISO time to the minute, as chart buckets are named: `Nov 21 22:10`."""
    moment = parse_time(value)
    return DASH if moment is None else f"{moment:%b %d %H:%M}"


def clock(value: Any) -> str:
    """An ISO time of today as `22:10`, of another day with its date."""
    moment = parse_time(value)
    if moment is None:
        return DASH
    return f"{moment:%H:%M}" if moment.date() == datetime.now(UTC).date() else f"{moment:%b %d %H:%M}"


def snippet(value: Any, length: int = 120) -> str:
    """The first line's worth of a text, white space folded, writing-direction tricks made visible."""
    if value is None or isinstance(value, Undefined):
        return ""
    text = " ".join(str(value)[: length * 4].translate(_CONTROLS).split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def unforced(value: Any) -> Any:
    """A text with what forces its direction made visible: such a text reads otherwise than it is."""
    return value.translate(_FORCED) if isinstance(value, str) and not value.isascii() else value


def short(value: Any, length: int = 8) -> str:
    """The head of an id or hash."""
    return "" if value is None or isinstance(value, Undefined) else str(value)[:length]


def unit_of(metric: Any) -> str:
    """The unit a metric is measured in, from its name."""
    name = str(metric)
    if name.startswith("coverage:") or name.removeprefix("quality:") in _SHARES:
        return "share"
    kinds = {"latency": "ms", "ttft": "ms", "cost": "usd", "token": "tokens", "request": "count", "errors": "count"}
    kinds["error_rate"] = "share"
    return next((unit for word, unit in kinds.items() if word in name and ":" not in name), "ratio")


def metric_name(metric: Any) -> str:
    """A metric as a person says it: `quality:refusal` → answered, `latency_p95` → latency p95."""
    name = str(metric).removeprefix("quality:")
    return _SHARES.get(name) or name.replace("_usd", "").replace("_", " ")


def dimension(name: Any) -> str:
    """What requests are filtered and grouped by, as a person says it: `prompt_version` → prompt version."""
    return _DIMENSIONS.get(str(name)) or str(name).replace("_", " ")


def as_judged(name: str, score: Mapping[str, Any]) -> Mapping[str, Any]:
    """A score as pages mark it: a person's thumb passes or fails an answer as a check does."""
    return {**score, "passing": (score.get("normalized") or 0.0) > 0.0} if name == "thumbs" else score


def sentence(text: Any) -> str:
    """A text of the API as a sentence: with a capital and a full stop."""
    whole = str(text)
    return whole[:1].upper() + whole[1:] + ("" if whole.endswith((".", "?")) else ".")


def counted(number: Any, thing: str) -> str:
    """A number with what it counts: 1 trace, 2 traces."""
    return f"{count(number)} {thing}{'' if _number(number) == 1 else 's'}"


def urlencode(value: Any) -> str:
    """A value as one part of a URL, slashes included; a lone surrogate becomes a question mark."""
    return "" if value is None or isinstance(value, Undefined) else quote(str(value), safe="", errors="replace")


def readable(value: Any) -> str:
    """A value as text; JSON, also inside a text, is indented."""
    found = _parsed(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2, default=str)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def by_unit(value: Any, unit: str) -> str:
    """A number in the unit a metric is measured in: ms, s, usd, ratio, share, count."""
    return BY_UNIT.get(unit.lower(), count)(value)


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
TEMPLATE_FILTERS = {
    **{one.__name__: one for one in (count, compact, ratio, percent, ms, seconds, usd, size, signed, p_value)},
    **{
        one.__name__: one
        for one in (
            when,
            minute,
            clock,
            estimate,
            rests_on,
            snippet,
            short,
            by_unit,
            unit_of,
            metric_name,
            dimension,
            sentence,
            counted,
            spaced,
        )
    },
    "readable": readable,
    "urlencode": urlencode,
}
