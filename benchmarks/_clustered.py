"""Coverage of the interval where users ask several times: how alike their answers are, how many users, who asks most.

A cell is a traffic whose truth is known: users with sizes, an intraclass correlation, a law of scores and the chances
with which answers are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import Moments

__all__ = ["Cell", "Seen", "cells", "drawn", "look", "redrawn", "scores", "sums"]

CHANCES: dict[str, tuple[tuple[float, float], ...]] = {
    "pi 1": ((1.0, 1.0),),
    "pi 0.3": ((1.0, 0.3),),
    "pi 0.05": ((1.0, 0.05),),
    "pi 0.02": ((1.0, 0.02),),
    "pi 1/0.05": ((0.1, 1.0), (0.9, 0.05)),
    "pi 0.5/0.02": ((0.1, 0.5), (0.9, 0.02)),
}
"""Strata: their share of the answers, and the chance that one is evaluated."""
_PHI = np.vectorize(NormalDist().cdf)
_FINE = np.linspace(-6.0, 6.0, 4001)
_TAILS = _PHI(_FINE)
_REDRAWN = 24


@dataclass(frozen=True)
class Cell:
    """So many users who are evaluated `each` times in the mean."""

    users: int
    each: int
    sizes: str
    icc: float
    law: str
    mean: float
    chances: str

    @property
    def told(self) -> str:
        """The cell in words."""
        law = f"{self.law} {self.mean:g}"
        return f"{self.users} users x {self.each} ({self.sizes}), ICC {self.icc:g}, {law}, {self.chances}"

    @property
    def traffic(self) -> Any:
        """How many answers each user asks for."""
        ranks = np.arange(1, self.users + 1)
        if self.sizes == "geometric":
            shape = -np.log(1.0 - (ranks - 0.5) / self.users)
        elif self.sizes == "zipf":
            shape = 1.0 / ranks
        elif self.sizes == "one asks a quarter":
            shape = np.where(ranks == 1, self.users / 3.0, 1.0)
        else:
            shape = np.ones(self.users)
        rate = sum(share * pi for share, pi in CHANCES[self.chances])
        return np.maximum(1, np.round(shape / shape.mean() * self.each / rate)).astype(int)


@dataclass(frozen=True)
class Seen:
    """What the draws of a cell showed."""

    covered: float
    above: float
    """The share of intervals that lie wholly above the truth ..."""
    below: float
    """... and wholly below."""
    effective: float
    """The effective number of users, in the mean."""
    width: float
    shown: float
    """The share of draws that had an interval at all."""


def cells() -> Iterator[Cell]:
    """Every combination of what the promise speaks of."""
    users = ((6, 10), (10, 10), (20, 3), (20, 10), (60, 3), (60, 10), (300, 3), (300, 10))
    sizes = ("equal", "geometric", "zipf", "one asks a quarter")
    laws = (("yes or no", (0.1, 0.5, 0.8, 0.9)), ("graded", (0.1, 0.5, 0.9)), ("halves", (0.1, 0.9)))
    for (count, each), kind, icc, (law, means), chances in product(users, sizes, (0.0, 0.05, 0.2, 0.5), laws, CHANCES):
        for mean in means:
            yield Cell(count, each, kind, icc, law, mean, chances)


def scores(chance: Any, cell: Cell, owner: Any, users: int) -> Any:
    """One score for each answer; `owner` is the user of each."""
    if cell.law == "yes or no":
        rates = np.full(users, cell.mean)
        if cell.icc > 0:
            spread = (1.0 - cell.icc) / cell.icc
            rates = chance.beta(cell.mean * spread, (1.0 - cell.mean) * spread, size=users)
        return (chance.random(len(owner)) < rates[owner]).astype(float)
    mixed = np.sqrt(cell.icc) * chance.standard_normal(users)[owner]
    mixed += np.sqrt(1.0 - cell.icc) * chance.standard_normal(len(owner))
    return _quantiles(cell)[(np.interp(mixed, _FINE, _TAILS) * 1999.999).astype(int)]


def _quantiles(cell: Cell) -> Any:
    """2,000 equally likely scores of the law: by twentieths from a Beta law, or 0, a half and 1."""
    if cell.law == "halves":
        half = 0.5 * min(cell.mean, 1.0 - cell.mean)
        counts = np.round(2000 * np.array([1.0 - cell.mean - half / 2.0, half, cell.mean - half / 2.0])).astype(int)
        return np.repeat([0.0, 0.5, 1.0], counts)
    draws = np.random.default_rng(0).beta(4.0 * cell.mean, 4.0 * (1.0 - cell.mean), size=400_000)
    return np.round(np.sort(draws)[100::200] * 20.0) / 20.0


def truth(cell: Cell) -> float:
    """The mean score of the service."""
    return cell.mean if cell.law == "yes or no" else float(_quantiles(cell).mean())


def drawn(chance: Any, cell: Cell, seeds: int) -> tuple[Any, Any, Any]:
    """Scores, weights and users of all evaluated answers; user u of draw r is r * users + u."""
    left, rest = np.broadcast_to(cell.traffic, (seeds, cell.users)), 1.0
    owners, weights = [], []
    for share, pi in CHANCES[cell.chances]:
        asked = chance.binomial(left, min(1.0, share / rest))
        left, rest = left - asked, rest - share
        owners.append(np.repeat(np.arange(seeds * cell.users), chance.binomial(asked, pi).ravel()))
        weights.append(np.full(len(owners[-1]), 1.0 / pi))
    owner = np.concatenate(owners)
    return scores(chance, cell, owner, seeds * cell.users), np.concatenate(weights), owner


def sums(y: Any, w: Any, owner: Any, draws: int, users: int) -> Iterator[Moments | None]:
    """The sums a store adds up, of each draw."""

    def by_user(values: Any) -> Any:
        return np.bincount(owner, values, draws * users).reshape(draws, users)

    n, weight, wy, ww = by_user(np.ones(len(y))), by_user(w), by_user(w * y), by_user(w * w)
    among, ends = owner // users, []
    for start, least in ((9.0, True), (-9.0, False)):
        found = np.full(draws, start)
        (np.minimum if least else np.maximum).at(found, among, y)
        ends.append(found)
    heaviest = np.zeros(draws)
    np.maximum.at(heaviest, among, w)
    wyy, between = np.bincount(among, w * y * y, draws), np.bincount(among, (y > 0) & (y < 1), draws)
    whole = np.where(weight > 0, weight, 1.0)
    columns = [
        n.sum(1), (n > 0).sum(1), weight.sum(1), wy.sum(1), wyy, ww.sum(1), (weight**2).sum(1), (weight * wy).sum(1),
        (wy**2).sum(1), (wy**2 / whole).sum(1), (ww / whole).sum(1), heaviest, weight.max(1), *ends, between,
    ]  # fmt: skip
    return map(Moments.of, np.column_stack(columns).tolist())


def look(chance: Any, cell: Cell, seeds: int) -> Seen:
    """Draw the cell so many times and look where the intervals lie."""
    found = [one for one in sums(*drawn(chance, cell, seeds), seeds, cell.users) if one is not None]
    at, intervals = truth(cell), [tuple(one.estimate()) for one in found]
    held = [(lo, hi) for lo, hi in intervals if lo is not None and hi is not None]
    n = max(1, len(held))
    above, below = sum(lo > at + 1e-12 for lo, _ in held) / n, sum(hi < at - 1e-12 for _, hi in held) / n
    effective = float(np.mean([one.w**2 / one.cluster_ww for one in found]))
    width = float(np.mean([hi - lo for lo, hi in held])) if held else float("nan")
    return Seen(1.0 - above - below, above, below, effective, width, len(held) / seeds)


def redrawn(chance: Any, found: Sequence[tuple[Cell, Seen]], seeds: int) -> list[tuple[Cell, Seen]]:
    """Draw those that did worst anew and many more times: the worst of thousands of few draws says little."""
    order = sorted(found, key=lambda pair: min(pair[1].covered, 1.0 - 2.0 * max(pair[1].above, pair[1].below)))
    return [(cell, look(chance, cell, seeds)) for cell, _ in order[:_REDRAWN]]
