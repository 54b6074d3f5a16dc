"""Coverage of the interval where users ask several times, by correlation, number of users and their sizes.

A cell is traffic whose true mean is known: users with sizes, an intraclass correlation, a distribution of scores and
the probabilities with which answers are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import Moments

PROBABILITIES: dict[str, tuple[tuple[float, float], ...]] = {
    "pi 1": ((1.0, 1.0),),
    "pi 0.3": ((1.0, 0.3),),
    "pi 0.05": ((1.0, 0.05),),
    "pi 0.02": ((1.0, 0.02),),
    "pi 1/0.05": ((0.1, 1.0), (0.9, 0.05)),
    "pi 0.5/0.02": ((0.1, 0.5), (0.9, 0.02)),
}
"""Strata: their share of the answers, and the probability of an evaluation."""
_PHI = np.vectorize(NormalDist().cdf)
_FINE = np.linspace(-6.0, 6.0, 4001)
_TAILS = _PHI(_FINE)
_RESAMPLED = 24


@dataclass(frozen=True)
class Cell:
    """So many users; `each` of them has so many evaluated answers on average."""

    users: int
    each: int
    sizes: str
    icc: float
    law: str
    mean: float
    probabilities: str

    @property
    def label(self) -> str:
        """The cell in words."""
        law = f"{self.law} {self.mean:g}"
        return f"{self.users} users x {self.each} ({self.sizes}), ICC {self.icc:g}, {law}, {self.probabilities}"

    @property
    def traffic(self) -> Any:
        """The number of answers of each user."""
        ranks = np.arange(1, self.users + 1)
        if self.sizes == "geometric":
            shape = -np.log(1.0 - (ranks - 0.5) / self.users)
        elif self.sizes == "zipf":
            shape = 1.0 / ranks
        elif self.sizes == "a user with a quarter":
            shape = np.where(ranks == 1, self.users / 3.0, 1.0)
        else:
            shape = np.ones(self.users)
        rate = sum(share * pi for share, pi in PROBABILITIES[self.probabilities])
        return np.maximum(1, np.round(shape / shape.mean() * self.each / rate)).astype(int)


@dataclass(frozen=True)
class Coverage:
    """The intervals of a cell's samples."""

    covered: float
    above: float
    """The share of intervals that lie wholly above the truth ..."""
    below: float
    """... and wholly below."""
    effective: float
    """The mean effective number of users."""
    width: float
    defined: float
    """The share of samples that had an interval."""


def cells() -> Iterator[Cell]:
    """Every combination that the promise covers."""
    users = ((6, 10), (10, 10), (20, 3), (20, 10), (60, 3), (60, 10), (300, 3), (300, 10))
    sizes = ("equal", "geometric", "zipf", "a user with a quarter")
    laws = (("yes or no", (0.1, 0.5, 0.8, 0.9)), ("graded", (0.1, 0.5, 0.9)), ("halves", (0.1, 0.9)))
    for (count, each), kind, icc, (law, means), strata in product(
        users, sizes, (0.0, 0.05, 0.2, 0.5), laws, PROBABILITIES
    ):
        for mean in means:
            yield Cell(count, each, kind, icc, law, mean, strata)


def scores(rng: Any, cell: Cell, owner: Any, users: int) -> Any:
    """One score for each answer; `owner` is the user of each."""
    if cell.law == "yes or no":
        rates = np.full(users, cell.mean)
        if cell.icc > 0:
            spread = (1.0 - cell.icc) / cell.icc
            rates = rng.beta(cell.mean * spread, (1.0 - cell.mean) * spread, size=users)
        return (rng.random(len(owner)) < rates[owner]).astype(float)
    latent = np.sqrt(cell.icc) * rng.standard_normal(users)[owner]
    latent += np.sqrt(1.0 - cell.icc) * rng.standard_normal(len(owner))
    return _quantiles(cell)[(np.interp(latent, _FINE, _TAILS) * 1999.999).astype(int)]


def _quantiles(cell: Cell) -> Any:
    """2,000 equally likely scores: by twentieths from a Beta distribution, or 0, a half and 1."""
    if cell.law == "halves":
        half = 0.5 * min(cell.mean, 1.0 - cell.mean)
        counts = np.round(2000 * np.array([1.0 - cell.mean - half / 2.0, half, cell.mean - half / 2.0])).astype(int)
        return np.repeat([0.0, 0.5, 1.0], counts)
    draws = np.random.default_rng(0).beta(4.0 * cell.mean, 4.0 * (1.0 - cell.mean), size=400_000)
    return np.round(np.sort(draws)[100::200] * 20.0) / 20.0


def truth(cell: Cell) -> float:
    """The mean score of the service."""
    return cell.mean if cell.law == "yes or no" else float(_quantiles(cell).mean())


def sample(rng: Any, cell: Cell, seeds: int) -> tuple[Any, Any, Any]:
    """Scores, weights and users of all evaluated answers; user u of sample r is r * users + u."""
    answers, rest = np.broadcast_to(cell.traffic, (seeds, cell.users)), 1.0
    owners, weights = [], []
    for share, pi in PROBABILITIES[cell.probabilities]:
        stratum = rng.binomial(answers, min(1.0, share / rest))
        answers, rest = answers - stratum, rest - share
        owners.append(np.repeat(np.arange(seeds * cell.users), rng.binomial(stratum, pi).ravel()))
        weights.append(np.full(len(owners[-1]), 1.0 / pi))
    owner = np.concatenate(owners)
    return scores(rng, cell, owner, seeds * cell.users), np.concatenate(weights), owner


def sums(y: Any, w: Any, owner: Any, samples: int, users: int) -> Iterator[Moments | None]:
    """The sums of each sample, as a store aggregates them."""

    def by_user(values: Any) -> Any:
        return np.bincount(owner, values, samples * users).reshape(samples, users)

    n, weight, wy, ww = by_user(np.ones(len(y))), by_user(w), by_user(w * y), by_user(w * w)
    row = owner // users
    lowest, highest, heaviest = np.full(samples, 9.0), np.full(samples, -9.0), np.zeros(samples)
    np.minimum.at(lowest, row, y)
    np.maximum.at(highest, row, y)
    np.maximum.at(heaviest, row, w)
    wyy, fractional = np.bincount(row, w * y * y, samples), np.bincount(row, (y > 0) & (y < 1), samples)
    total = np.where(weight > 0, weight, 1.0)
    columns = [
        n.sum(1), (n > 0).sum(1), weight.sum(1), wy.sum(1), wyy, ww.sum(1), (weight**2).sum(1), (weight * wy).sum(1),
        (wy**2).sum(1), (wy**2 / total).sum(1), (ww / total).sum(1), heaviest, weight.max(1), lowest, highest,
        fractional,
    ]  # fmt: skip
    return map(Moments.of, np.column_stack(columns).tolist())


def coverage(rng: Any, cell: Cell, seeds: int) -> Coverage:
    """Sample the cell so many times and compare the intervals with the truth."""
    moments = [each for each in sums(*sample(rng, cell, seeds), seeds, cell.users) if each is not None]
    mean = truth(cell)
    intervals = [(lo, hi) for lo, hi in (each.estimate() for each in moments) if lo is not None and hi is not None]
    n = max(1, len(intervals))
    above = sum(lo > mean + 1e-12 for lo, _ in intervals) / n
    below = sum(hi < mean - 1e-12 for _, hi in intervals) / n
    effective = float(np.mean([each.w**2 / each.cluster_ww for each in moments]))
    width = float(np.mean([hi - lo for lo, hi in intervals])) if intervals else float("nan")
    return Coverage(1.0 - above - below, above, below, effective, width, len(intervals) / seeds)


def resampled(rng: Any, results: Sequence[tuple[Cell, Coverage]], seeds: int) -> list[tuple[Cell, Coverage]]:
    """Sample the worst cells again, many more times: the worst of thousands of small samples is mostly noise."""
    order = sorted(results, key=lambda pair: min(pair[1].covered, 1.0 - 2.0 * max(pair[1].above, pair[1].below)))
    return [(cell, coverage(rng, cell, seeds)) for cell, _ in order[:_RESAMPLED]]
