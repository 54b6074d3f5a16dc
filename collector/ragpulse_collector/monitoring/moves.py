"""A level that may have moved: when to look, how far back, and what is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.selection import Window

__all__ = ["DAY_S", "GROWTH_OF_COUNTS", "Judge", "Move", "Span", "lengths", "onset", "succeeds"]

DAY_S = 86_400
_GROWTH = 4
"""The last window is compared, the last four, the last sixteen, up to half of the baseline ..."""
GROWTH_OF_COUNTS = 2
"""... and of counts the last two, four, eight: all are read at once."""
_SUCCEEDING = frozenset({"model", "prompt_name", "prompt_version", "release", "variant"})
"""A new value of one of these takes the place of an old one, so it is compared with that from its first answers."""


@dataclass(frozen=True, slots=True)
class Span:
    """When to look, and how long a window and the baseline are; the baseline ends half its length before."""

    at: datetime
    step_s: int
    baseline_s: float

    @property
    def baseline(self) -> Window:
        """The range that says what is usual."""
        last = self.at - timedelta(seconds=self.baseline_s / 2.0)
        return Window(last - timedelta(seconds=self.baseline_s), last, 0)

    def recent(self, length_s: float, step_s: int = 0) -> Window:
        """The last so many seconds."""
        return Window(self.at - timedelta(seconds=length_s), self.at, step_s)


@dataclass(frozen=True, slots=True)
class Move:
    """A group's level now and before. `lo` and `hi` bound the difference, or the ratio of counts less one."""

    group: str
    before: float
    after: float
    lo: float
    hi: float
    began: datetime
    against: str | None = None
    """The group that it took the place of."""

    @property
    def sure(self) -> bool:
        """Whether the interval of the difference lies on one side."""
        return self.lo > 0.0 or self.hi < 0.0

    @property
    def evidence(self) -> float:
        """How far the interval lies from no difference, as a share of its half width."""
        middle, half = (self.lo + self.hi) / 2.0, (self.hi - self.lo) / 2.0
        return abs(middle) / half if math.isfinite(half) and half > 0.0 else math.inf if self.sure else 0.0


Judge = Callable[[float], list[Move]]
"""The comparisons of a group at a confidence."""


def lengths(span: Span, growth: int = _GROWTH) -> list[int]:
    """How many seconds back each comparison reaches."""
    found = [span.step_s]
    while found[-1] * growth <= span.baseline_s / 2.0:
        found.append(found[-1] * _GROWTH)
    return found


def succeeds(group: tuple[Any, ...], other: tuple[Any, ...], groups: tuple[str, ...]) -> bool:
    """Whether a group may have taken another's place: they differ in what succeeds, and in nothing else."""
    differing = {name for name, a, b in zip(groups, group, other, strict=True) if a != b}
    return bool(differing) and differing <= _SUCCEEDING


def onset(seen: Sequence[tuple[datetime, float, float]]) -> tuple[datetime, float] | None:
    """Since when the level differs most surely, and by how much; from weights and what each point adds to them."""
    best, since, away, weight, excess = -1.0, None, 0.0, 0.0, 0.0
    for at, usual, more in reversed(seen):
        weight, excess = weight + usual, excess + more
        if weight > 0.0 and excess**2 / weight > best:
            best, since, away = excess**2 / weight, at, excess / weight
    return None if since is None else (since, away)
