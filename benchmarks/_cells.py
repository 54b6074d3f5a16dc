"""Coverage of the interval, cell by cell: two strata drawn with unequal chances, or all alike; yes-or-no and graded.

A cell is a traffic whose truth is known. Every cell is drawn some hundred times; those that covered least are drawn
again, many more times, so that the figure told is none that was picked for being low (or lucky).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import Moments

__all__ = ["Cell", "Told", "cells", "coverage", "equal_cells", "graded_cells", "worst"]

_STEPS = np.linspace(0.0, 1.0, 21)
_REDRAWN = 20
_PASSING = ((0.5, 0.5), (0.9, 0.9), (0.95, 0.95), (0.98, 0.98), (0.6, 0.95), (0.3, 0.98), (0.98, 0.6), (0.5, 0.99),
            (0.99, 0.99))  # fmt: skip
_CHANCES = ((1.0, 0.05), (0.5, 0.02), (1.0, 0.2), (1.0, 0.02))


@dataclass(frozen=True)
class Cell:
    """Requests of which a share lies in the first stratum; each stratum has its chance and its scores' shares."""

    total: int
    share: float
    chances: tuple[float, float]
    laws: tuple[Any, Any]
    """Per stratum the probability of each of `values`."""
    values: Any
    told: str

    @property
    def scored(self) -> float:
        """How many are scored in the mean."""
        return self.total * (self.share * self.chances[0] + (1 - self.share) * self.chances[1])

    @property
    def truth(self) -> float:
        """The mean score of the traffic."""
        return float(self.share * self.laws[0] @ self.values + (1 - self.share) * self.laws[1] @ self.values)


@dataclass(frozen=True)
class Told:
    """What the cells of one kind showed."""

    worst: float
    mean: float
    count: int
    where: str


def cells() -> Iterator[Cell]:
    """Yes-or-no scores: rates 0.3 to 0.99, strata alike or apart either way, weights up to 50 apart."""
    sizes = product((200, 500, 1000, 3000, 10_000), (0.02, 0.05, 0.1, 0.3), (1.0, 0.5), (0.02, 0.05, 0.1, 0.2))
    for (total, share, first, second), passing in product(sizes, _PASSING):
        yield _yes_or_no(total, share, (first, second), passing)
    for rate, apart, chances, scored in product((0.5, 0.8, 0.9, 0.95, 0.98), (0.0, 0.3), _CHANCES, (20, 50, 145, 500)):
        total = round(scored / (0.1 * chances[0] + 0.9 * chances[1]))
        yield _yes_or_no(total, 0.1, chances, (max(0.1, rate - apart), rate))


def _yes_or_no(total: int, share: float, chances: tuple[float, float], passing: tuple[float, float]) -> Cell:
    laws = tuple(np.array([1.0 - rate, rate]) for rate in passing)
    told = f"{total} requests, {share:g} at pi {chances[0]:g}/{chances[1]:g}, passing {passing[0]:g}/{passing[1]:g}"
    return Cell(total, share, chances, (laws[0], laws[1]), np.array([0.0, 1.0]), told)


def graded_cells() -> Iterator[Cell]:
    """Scores by twentieths: spread evenly, humped, skewed towards either end, few low ones, nearly yes or no."""
    laws = _laws()
    kinds = [(name, name) for name in laws]
    kinds += [("half fail", "tenth fails"), ("half fail", "few fail"), ("even", "high"), ("even", "tenth fails")]
    kinds += [("few fail", "half fail"), ("tenth scores", "tenth fails"), ("hard zeros", "even")]
    sizes = list(product((500, 1000, 3000), (0.02, 0.1, 0.3), (1.0, 0.5), (0.02, 0.05, 0.1, 0.2)))
    sizes += [(round(n / (0.1 * a + 0.9 * b)), 0.1, a, b) for (a, b), n in product(_CHANCES, (50, 145, 500))]
    for (total, share, first, second), (one, other) in product(sizes, kinds):
        told = f"{total} requests, {share:g} at pi {first:g}/{second:g}, {one} / {other}"
        yield Cell(total, share, (first, second), (laws[one], laws[other]), _STEPS, told)


def equal_cells() -> Iterator[Cell]:
    """Graded scores all drawn with one chance, near either end of the scale and in the middle."""
    laws = _laws()
    laws |= {f"{name}, upside down": law[::-1].copy() for name, law in laws.items()}
    for n, (name, law) in product((10, 15, 20, 30, 40, 50, 70, 100, 145, 300, 1000), laws.items()):
        yield Cell(n, 1.0, (1.0, 1.0), (law, law), _STEPS, f"{n} scored, {name}")


def _laws() -> dict[str, Any]:
    def failing(share: float) -> Any:
        law = np.full(21, share / 21)
        law[-1] += 1.0 - share
        return law

    def points(**shares: float) -> Any:
        law = np.zeros(21)
        for at, share in shares.items():
            law[int(at[1:]) // 5] = share
        return law

    centres = np.linspace(0.5 / 21, 1 - 0.5 / 21, 21)
    humps = {name: centres ** (a - 1) * (1 - centres) ** (b - 1) for name, a, b in
             (("high", 5.0, 1.0), ("higher", 9.0, 1.0), ("hump", 2.0, 2.0), ("ends", 0.5, 0.5))}  # fmt: skip
    return {
        "half fail": failing(0.5), "fifth fails": failing(0.2), "tenth fails": failing(0.1), "few fail": failing(0.05),
        "tenth scores": failing(0.1)[::-1].copy(), "even": np.full(21, 1 / 21),
        **{name: law / law.sum() for name, law in humps.items()},
        "halves": points(_50=0.1, _100=0.9), "seldom zero": points(_0=0.02, _50=0.08, _100=0.9),
        "hard zeros": points(_0=0.1, _95=0.5, _100=0.4), "three": points(_0=0.2, _50=0.3, _100=0.5),
        "five": points(_0=0.03, _25=0.05, _50=0.12, _75=0.3, _100=0.5),
        "nearly binary": points(_0=0.008, _50=0.004, _100=0.988),
    }  # fmt: skip


def worst(chance: Any, found: Sequence[Any], seeds: int, *, covered: Callable[[Any, Any, int], float]) -> Told:
    """Draw every cell with `covered`, then those that covered least again."""
    first = [covered(chance, cell, max(40, seeds // 20)) for cell in found]
    least = sorted(range(len(found)), key=first.__getitem__)[:_REDRAWN]
    share, where = min((covered(chance, found[at], seeds), found[at].told) for at in least)
    return Told(share, float(np.mean(first)), len(found), where)


def coverage(chance: Any, cell: Cell, seeds: int) -> float:
    """The share of draws whose interval holds the truth; draws in which nothing was scored show no interval."""
    first = chance.binomial(cell.total, cell.share, size=seeds)
    drawn = [chance.binomial(size, pi) for size, pi in zip((first, cell.total - first), cell.chances, strict=True)]
    counts = np.concatenate([chance.multinomial(n, law) for n, law in zip(drawn, cell.laws, strict=True)], axis=1)
    different, times = np.unique(counts[counts.sum(axis=1) > 0], axis=0, return_counts=True)
    held = [moments.estimate() for moments in _moments(different, cell)]
    hits = [(one.lo or 0.0) - 1e-12 <= cell.truth <= (one.hi or 0.0) + 1e-12 for one in held]
    return float(np.average(hits, weights=times))


def _moments(counts: Any, cell: Cell) -> Iterator[Moments]:
    """The sums a store adds up, of each row of counts (a column a value, stratum after stratum): each answer alone."""
    y = np.tile(cell.values, 2)
    w = np.repeat([1.0 / pi for pi in cell.chances], len(cell.values))
    sums = [counts @ column for column in (w, w * y, w * y * y, w * w, w * w * y, w * w * y * y)]
    there, n = counts > 0, counts.sum(axis=1)
    least, most = np.where(there, y, 9.0).min(axis=1), np.where(there, y, -9.0).max(axis=1)
    heaviest = np.where(there, w, 0.0).max(axis=1)
    between = (counts * ((y > 0) & (y < 1))).sum(axis=1)
    whole, wy, wyy, ww, wwy, wwyy = sums
    for row in zip(
        n, n, whole, wy, wyy, ww, ww, wwy, wwyy, wyy, whole, heaviest, heaviest, least, most, between, strict=True
    ):
        found = Moments.of([float(figure) for figure in row])
        assert found is not None
        yield found
