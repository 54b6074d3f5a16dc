"""Names and estimates as people read them, for pages, terminals and alerts; it needs no library."""

from __future__ import annotations

import math
from typing import Literal

DASH = "–"
"""Stands for a missing value."""
SHARES = {"refusal": "answered"}
"""Evaluators that answer yes or no: their mean is a share, named by what a yes means.

Files, API and SQL keep the name.
"""


def called(name: object) -> str:
    """The name that a person reads: `refusal` and `quality:refusal` → answered; other names as they are."""
    evaluator, at, version = str(name).removeprefix("quality:").partition("@")
    return f"{SHARES[evaluator]}{at}{version}" if evaluator in SHARES else str(name)


def usual_words(kind: Literal["weeks", "days", "range"], windows: int) -> str:
    """What a window is compared with: `the same hours of 7 days before`."""
    return "the range before" if kind == "range" else f"the same hours of {windows} {kind} before"


FEW = 30
"""Below so many answers, and for fewer errors than a third of it, counts say more than a rate."""
_SMALLEST = 1e-6


def level(value: float, lo: float, hi: float, *, share: bool = False) -> str:
    """An estimate with its interval: `0.87 ± 0.03`, or `1.00 (0.21-1.00)` where the ends do not lie equally far.

    The half width keeps a digit, so rounding neither hides it (`± 0.00`) nor makes uneven ends even. `share`: percent.
    """
    scale, unit = (100.0, " %") if share else (1.0, "")
    half = (hi - lo) / 2.0 * scale
    digits = _digits(half, 0 if share or max(abs(lo), abs(hi)) >= 10.0 else 2)
    texts = [f"{number * scale:,.{digits}f}{unit}" for number in (value, lo, hi)]
    if half > _SMALLEST and abs(lo + hi - 2.0 * value) * scale < 0.5 * 10.0**-digits:
        return f"{texts[0]} ± {half:,.{digits}f}{unit}"
    return f"{texts[0]} ({texts[1]}{'-' if lo >= 0.0 else ' to '}{texts[2]})"


def half_width(half: float) -> str:
    """Half of an interval on the scale from 0 to 1: `± 0.03`, `± 0.0004`."""
    return f"± {half:.{_digits(half, 2)}f}"


def _digits(half: float, least: int) -> int:
    return max(least, -math.floor(math.log10(half) + 1e-6)) if half > _SMALLEST else least


def few_errors(errors: int | None, n: int) -> str | None:
    """An error rate of none or few errors as their number, `0 errors in 99,837`; None where the rate says more."""
    if errors is None or not n or errors >= FEW // 3:
        return None
    return f"{errors} error{'' if errors == 1 else 's'} in {n:,}"


def basis(
    n: int, *, asked: float = 0.0, passed: tuple[int, int] | None = None, users: int | None = None,
    users_are: str | None = None,
) -> str:  # fmt: skip
    """What an estimate rests on: `412 of 9,800 answers · 58 users`, or below thirty answers `10 of 12 passed`."""
    total = max(n, round(asked))
    answers = f"{f'{n:,} of ' if total > n else ''}{total:,} answer{'' if total == 1 else 's'}"
    if passed and n < FEW:
        unclear = f", {n - passed[1]} unclear" if n > passed[1] else ""
        of_asked = f" · {answers}" if total > n else ""
        answers = f"{passed[0]} of {passed[1]} passed{unclear}{of_asked}"
    kind = users_are or "users"
    whose = "without user ids" if users is None else f"{users:,} {kind[:-1] if users == 1 else kind}"
    return f"{answers} · {whose}"
