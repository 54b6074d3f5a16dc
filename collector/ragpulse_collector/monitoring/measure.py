"""The conditions of monitors and targets: how one is written, and what a reading decides."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragpulse_collector.analysis.figures import Condition
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.store.queries.traces import Filter

LOOKS = 4
"""Looks at a threshold per window."""
_YEAR_S = 365.25 * 86_400
_MIN_ALPHA = 1e-12
"""The smallest error of one side: a smaller one has no quantile."""
_CONDITION = re.compile(r"(<|>)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\Z")


def parse(text: str) -> Condition:
    """Read a condition; raises Invalid that shows how to write one."""
    match word := text.strip():
        case "change" | "no data":
            return Condition(word)
    match = _CONDITION.match(word)
    if match is None:
        raise Invalid(f"condition {text!r}: write '< 0.85', '> 3000', 'change' or 'no data'")
    return Condition("<" if match[1] == "<" else ">", float(match[2]))


def confidence_for(false_alarms_per_year: float, window_s: float, *, looks: float = LOOKS) -> float:
    """Return the two-sided confidence at which one side fails at most so often in a year of looks."""
    return 1.0 - 2.0 * max(_MIN_ALPHA, min(0.25, false_alarms_per_year * window_s / (looks * _YEAR_S)))


def decide(condition: Condition, strict: Figures, lenient: Figures, before: State) -> State:
    """Return the next state from two intervals: the strict interval must lie wholly beyond the limit to fire.

    Hysteresis: a firing monitor recovers only once the lenient interval lies wholly on the good side.
    """
    if strict.value is None:
        return "no data"
    far, near = (strict.hi, lenient.lo) if (below := condition.sign == "<") else (strict.lo, lenient.hi)
    if far is not None and (far < condition.limit if below else far > condition.limit):
        return "firing"
    recovered = near is not None and (near >= condition.limit if below else near <= condition.limit)
    if before == "firing":
        return "ok" if recovered else "firing"
    return "ok" if recovered else "undecided"


@dataclass(frozen=True, slots=True)
class Watched:
    """The traces and groups that a monitor watches."""

    filters: Filter
    groups: tuple[str, ...]
    others: int
    """The groups that are one, `(other)`."""

    def query(self, window: Window) -> Query:
        """Return what a look at a range covers."""
        return Query(window=window, filters=self.filters, groups=self.groups, now=window.last)
