"""Coverage of a judge's interval that a check of all answers narrows, cell by cell, beside the one without the check.

A cell is a service whose truth is known: answers of some merit, a judge that sees it and is asked about a sample, a
check that sees it through noise and is asked about all of them; at times either has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import assisted_mean, hajek

__all__ = ["NOISES", "Case", "cases", "coverage"]

NOISES = {0.2: "about 0.8", 1.0: "about 0.6", 3.0: "about 0.3"}
"""How much noise the check sees through, and how far judge and check then correlate."""
_MANY = 400_000


@dataclass(frozen=True)
class Case:
    """A thousand answers (or so), how well they do, how the judge is asked and how much the check sees."""

    total: int
    rate: float
    chances: tuple[float, float]
    """Where the check doubts, and elsewhere."""
    noise: float
    kind: str
    """yes or no; graded; checks missing (of a third of those that fail); verdicts missing (of hard ones)."""

    @property
    def told(self) -> str:
        """What it is, for whoever reads the figures."""
        chances = f"{self.chances[0]:g}/{self.chances[1]:g}"
        return f"{self.total} answers, rate {self.rate:g}, judged {chances}, noise {self.noise:g}, {self.kind}"

    @cached_property
    def truth(self) -> float:
        """The mean over what the judge can score, of many more answers."""
        y, _, _, scorable = self.answers(np.random.default_rng(1), _MANY)
        return float(y[scorable].mean())

    def answers(self, chance: Any, count: int) -> tuple[Any, Any, Any, Any]:
        """Verdicts, checks, whether the check scored, whether the judge could."""
        merit = chance.normal(size=count)
        limit = NormalDist().inv_cdf(1.0 - self.rate)
        y = (merit > limit).astype(float)
        if self.kind == "graded":
            y = np.clip(np.round(4.0 * (0.5 + 0.6 * (merit - limit))) / 4.0, 0.0, 1.0)
        check = 1.0 / (1.0 + np.exp(-1.5 * (merit - limit) - self.noise * chance.normal(size=count)))
        checked, scorable = np.full(count, True), np.full(count, True)
        if self.kind == "checks missing":
            checked = (y > 0.5) | (chance.random(count) > 1 / 3)
        if self.kind == "verdicts missing":
            scorable = (check > 0.5) | (chance.random(count) > 0.4)
        return y, check, checked, scorable

    def draw(self, chance: Any) -> tuple[bool, bool, float, float]:
        """Whether the assisted and the plain interval hold the truth, and how wide they are."""
        y, check, checked, scorable = self.answers(chance, self.total)
        pi = np.where(checked & (check < 0.5), *self.chances)
        drawn = chance.random(self.total) < pi
        judged = drawn & scorable
        values = [value if there else None for value, there in zip(y.tolist(), judged, strict=True)]
        checks = [value if there else None for value, there in zip(check.tolist(), checked, strict=True)]
        found = [
            assisted_mean(values, checks, pi.tolist(), drawn=drawn.tolist()),
            hajek(y[judged].tolist(), pi[judged].tolist()),
        ]
        ends = [(0.0, 1.0) if one is None else (one.lo or 0.0, one.hi if one.hi is not None else 1.0) for one in found]
        held = [lo - 1e-12 <= self.truth <= hi + 1e-12 for lo, hi in ends]
        widths = [hi - lo for lo, hi in ends]
        return held[0], held[1], widths[0], widths[1]


def cases() -> Iterator[Case]:
    """Rates 0.6 to 0.95, 60 to 600 judged, doubtful answers asked about as often as others or six times as often."""
    chances = ((0.1, 0.1), (0.3, 0.3), (0.5, 0.08))
    for total, rate, asked, noise in product((600, 2000), (0.6, 0.8, 0.9, 0.95), chances, NOISES):
        yield Case(total, rate, asked, noise, "yes or no")
    kinds = ("graded", "checks missing", "verdicts missing")
    for rate, asked, noise, kind in product((0.6, 0.8, 0.9), chances, NOISES, kinds):
        yield Case(1000, rate, asked, noise, kind)


def coverage(chance: Any, case: Case, seeds: int) -> float:
    """The share of draws whose assisted interval holds the truth."""
    return float(np.mean([case.draw(chance)[0] for _ in range(seeds)]))
