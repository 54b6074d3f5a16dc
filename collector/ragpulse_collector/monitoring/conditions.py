"""When to alert, as pure functions: thresholds on intervals, changes by CUSUM, each with its false-alarm rate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ragpulse_evaluators.statistics import cusum, cusum_threshold

__all__ = ["Change", "Condition", "Reading", "State", "confidence_for", "decide", "find_change", "parse"]

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


def confidence_for(false_alarms_per_year: float, window_s: float) -> float:
    """The two-sided confidence at which so many looks a year raise at most so many false alarms, even in sum."""
    looks = LOOKS * _YEAR_S / window_s
    return 1.0 - 2.0 * min(0.25, false_alarms_per_year / looks)


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


@dataclass(frozen=True, slots=True)
class Change:
    """A level that left its baseline: when it began, when it was noticed, and the two levels."""

    began: datetime
    noticed: datetime
    before: float
    after: float


def find_change(
    times: Sequence[datetime],
    values: Sequence[float],
    sigmas: Sequence[float],
    *,
    target: float,
    run_length: float,
) -> Change | None:
    """Two-sided CUSUM of standardized buckets; alarms falsely once in `run_length` buckets on average.

    The change began after the last bucket at which the alarming sum was still zero.
    """
    if not values:
        return None
    found = cusum(values, target=target, sigma=list(sigmas), threshold=cusum_threshold(max(2.0, run_length)))
    if not found.alarms:
        return None
    alarm = found.alarms[0]
    sums = found.upper if found.direction == "up" else found.lower
    began = alarm
    while began > 0 and sums[began - 1] > 0:
        began -= 1
    since = values[began:]
    weights = [1.0 / (sigma * sigma) for sigma in sigmas[began:]]
    after = sum(v * w for v, w in zip(since, weights, strict=True)) / sum(weights)
    return Change(began=times[began], noticed=times[alarm], before=target, after=after)
