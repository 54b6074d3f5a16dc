"""Coverage of a judge's interval assisted by a check of all answers, cell by cell, beside the interval without it.

A cell is a service whose true mean is known. Answers have a latent quality; a judge scores a sample of them exactly, a
check scores all of them with noise. In some cells either has no score for some answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import Estimate, Interval, assisted_mean, hajek, minus

NOISES = {0.2: "about 0.8", 1.0: "about 0.6", 3.0: "about 0.3"}
"""Noise of the check → the correlation of judge and check."""
_MANY = 400_000
WORTH = 0.9


@dataclass(frozen=True)
class Case:
    """A number of answers, their pass rate, the judge's sample and the noise of the check."""

    total: int
    rate: float
    probabilities: tuple[float, float]
    """Of a judge's verdict: where the check scores low, and elsewhere."""
    noise: float
    kind: str
    """yes or no; graded; checks missing (of a third of the failing answers); verdicts missing (of hard answers); users
    (of three alike answers); upstream (a sampler before kept a quarter of what the check finds good)."""
    by_rule: bool = False
    """Whether the check is used only where it narrows by a tenth: the rule of pages, `check` and targets."""

    @property
    def label(self) -> str:
        """The case in words."""
        judged = f"{self.probabilities[0]:g}/{self.probabilities[1]:g}"
        return f"{self.total} answers, rate {self.rate:g}, judged {judged}, noise {self.noise:g}, {self.kind}"

    @cached_property
    def truth(self) -> float:
        """The mean over many more answers that the judge can score."""
        y, _, _, scorable = self.answers(np.random.default_rng(1), _MANY)
        return float(y[scorable].mean())

    def answers(self, rng: Any, count: int) -> tuple[Any, Any, Any, Any]:
        """Verdicts, checks, whether the check has a score, whether the judge can score."""
        quality = rng.normal(size=count)
        if self.kind == "users":
            quality = np.sqrt(0.4) * rng.normal(size=count)[self.users(count)] + np.sqrt(0.6) * quality
        limit = NormalDist().inv_cdf(1.0 - self.rate)
        y = (quality > limit).astype(float)
        if self.kind == "graded":
            y = np.clip(np.round(4.0 * (0.5 + 0.6 * (quality - limit))) / 4.0, 0.0, 1.0)
        check = 1.0 / (1.0 + np.exp(-1.5 * (quality - limit) - self.noise * rng.normal(size=count)))
        checked, scorable = np.full(count, True), np.full(count, True)
        if self.kind == "checks missing":
            checked = (y > 0.5) | (rng.random(count) > 1 / 3)
        if self.kind == "verdicts missing":
            scorable = (check > 0.5) | (rng.random(count) > 0.4)
        return y, check, checked, scorable

    def users(self, count: int) -> Any:
        """The number of each answer's user: three answers each, or one."""
        return np.arange(count) // 3 if self.kind == "users" else np.arange(count)

    def sample(self, rng: Any) -> tuple[bool, bool, float, float]:
        """Whether the assisted and the plain interval hold the truth, and their widths."""
        (lo, hi), (plain_lo, plain_hi) = (_ends(figure) for figure in self.figures(rng))
        return self._covered(lo, hi), self._covered(plain_lo, plain_hi), hi - lo, plain_hi - plain_lo

    def moved(self, rng: Any) -> bool:
        """Whether the headline finds a change where there is none: this range by the rule, the one before plain."""
        now, before = Interval.of(self.figures(rng)[0]), Interval.of(self.figures(rng)[1])
        difference = now and before and minus(now, before)
        return difference is not None and not difference.lo <= 0.0 <= difference.hi

    def figures(self, rng: Any) -> tuple[Estimate | None, Estimate | None]:
        """The assisted and the plain estimate of one sample."""
        y, check, checked, scorable = self.answers(rng, self.total)
        up = np.where(check > 0.5, 0.25, 1.0) if self.kind == "upstream" else np.ones(self.total)
        kept = rng.random(self.total) < up
        pi = np.where(checked & (check < 0.5), *self.probabilities) * up
        sampled = kept & (rng.random(self.total) * up < pi)
        judged, users = sampled & scorable, self.users(self.total)
        values = [value if present else None for value, present in zip(y.tolist(), judged, strict=True)]
        checks = [value if present else None for value, present in zip(check.tolist(), checked, strict=True)]
        rows = np.flatnonzero(kept)
        assisted = assisted_mean(
            [values[row] for row in rows], [checks[row] for row in rows], pi[kept].tolist(), up[kept].tolist(),
            drawn=sampled[kept].tolist(), clusters=users[kept].tolist(),
        )  # fmt: skip
        plain = hajek(y[judged].tolist(), pi[judged].tolist(), clusters=users[judged].tolist())
        return (plain if self.by_rule and (assisted is None or assisted.narrowing > WORTH) else assisted), plain

    def _covered(self, lo: float, hi: float) -> bool:
        return lo - 1e-12 <= self.truth <= hi + 1e-12


def _ends(interval: Any) -> tuple[float, float]:
    """The limits; the whole scale where there is no interval."""
    if interval is None:
        return 0.0, 1.0
    return interval.lo or 0.0, interval.hi if interval.hi is not None else 1.0


def cases() -> Iterator[Case]:
    """Rates 0.6 to 0.95, 60 to 600 judged, low-scored answers judged as often as others or six times as often."""
    probabilities = ((0.1, 0.1), (0.3, 0.3), (0.5, 0.08))
    for total, rate, judged, noise in product((600, 2000), (0.6, 0.8, 0.9, 0.95), probabilities, NOISES):
        yield Case(total, rate, judged, noise, "yes or no")
    kinds = ("graded", "checks missing", "verdicts missing")
    for rate, judged, noise, kind in product((0.6, 0.8, 0.9), probabilities, NOISES, kinds):
        yield Case(1000, rate, judged, noise, kind)


def cases_of_pages() -> Iterator[Case]:
    """The rule of pages, `check` and targets, with users, upstream weights and classes of pi."""
    for rate, judged, noise, kind in product((0.6, 0.9), ((0.1, 0.1), (0.5, 0.08)), NOISES, ("users", "upstream")):
        yield Case(1500, rate, judged, noise, kind, by_rule=True)


def coverage(rng: Any, case: Case, seeds: int) -> float:
    """The share of samples whose assisted interval holds the truth."""
    return float(np.mean([case.sample(rng)[0] for _ in range(seeds)]))
