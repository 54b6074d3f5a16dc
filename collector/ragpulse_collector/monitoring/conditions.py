"""When to alert, as pure functions: a condition, its confidence, and the next state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["LOOKS", "Condition", "Reading", "State", "confidence_for", "decide", "parse"]

State = Literal["ok", "firing", "undecided", "no data"]
LOOKS = 4
"""A threshold is looked at this often per window."""
_YEAR_S = 365.25 * 86_400
_CONDITION = re.compile(r"(<|>)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\Z")


@dataclass(frozen=True, slots=True)
class Condition:
    """`< 0.85`, `> 3000`, `change` or `no data`."""

    sign: Literal["<", ">", "change", "no data"]
    limit: float = 0.0


def parse(text: str) -> Condition:
    """Read a condition; raises ValueError that shows how to write one."""
    word = text.strip()
    if word == "change":
        return Condition("change")
    if word == "no data":
        return Condition("no data")
    match = _CONDITION.match(text.strip())
    if match is None:
        raise ValueError(f"condition {text!r}: write '< 0.85', '> 3000', 'change' or 'no data'")
    return Condition("<" if match[1] == "<" else ">", float(match[2]))


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric in one window with its interval at the monitor's confidence; None where nothing was measured."""

    value: float | None
    lo: float | None
    hi: float | None
    n: float | None = None
    """Answers or requests behind it."""


def confidence_for(false_alarms_per_year: float, window_s: float, *, looks: float = LOOKS) -> float:
    """The two-sided confidence at which a year of so many looks a window falls to one side at most so often, in sum."""
    return 1.0 - 2.0 * min(0.25, false_alarms_per_year * window_s / (looks * _YEAR_S))


def decide(condition: Condition, sharp: Reading, easy: Reading, before: State) -> State:
    """The next state from two intervals: the sharp one must lie wholly beyond the limit to fire.

    Hysteresis: a firing monitor recovers only once the easier interval lies wholly on the good side.
    """
    if sharp.value is None:
        return before if before == "firing" else "no data"
    if sharp.lo is None or sharp.hi is None or easy.lo is None or easy.hi is None:
        return before if before == "firing" else "undecided"
    below = condition.sign == "<"
    if sharp.hi < condition.limit if below else sharp.lo > condition.limit:
        return "firing"
    recovered = easy.lo >= condition.limit if below else easy.hi <= condition.limit
    if before == "firing":
        return "ok" if recovered else "firing"
    return "ok" if recovered else "undecided"
