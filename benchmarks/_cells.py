"""Coverage of the interval, cell by cell: two strata with unequal probabilities, or equal ones; yes-or-no and graded.

A cell is traffic whose true mean is known. Every cell is sampled some hundred times. The cells with the lowest coverage
are sampled again, many more times, so that the reported minimum is not an extreme of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ragpulse_evaluators.statistics import Moments

_STEPS = np.linspace(0.0, 1.0, 21)
_RESAMPLED = 20
_PASSING = ((0.5, 0.5), (0.9, 0.9), (0.95, 0.95), (0.98, 0.98), (0.6, 0.95), (0.3, 0.98), (0.98, 0.6), (0.5, 0.99),
            (0.99, 0.99))  # fmt: skip
_PROBABILITIES = ((1.0, 0.05), (0.5, 0.02), (1.0, 0.2), (1.0, 0.02))


@dataclass(frozen=True)
class Cell:
    """Requests of two strata, each with an inclusion probability and a distribution of scores."""

    total: int
    share: float
    """The share of the first stratum."""
    probabilities: tuple[float, float]
    laws: tuple[Any, Any]
    """Per stratum the probability of each of `values`."""
    values: Any
    label: str

    @property
    def scored(self) -> float:
        """The expected number of scored requests."""
        return self.total * (self.share * self.probabilities[0] + (1 - self.share) * self.probabilities[1])

    @property
    def truth(self) -> float:
        """The mean score of the traffic."""
        return float(self.share * self.laws[0] @ self.values + (1 - self.share) * self.laws[1] @ self.values)


@dataclass(frozen=True)
class Coverage:
    """The coverage of the cells of one kind."""

    worst: float
    mean: float
    count: int
    worst_label: str


def cells() -> Iterator[Cell]:
    """Yes-or-no scores: rates 0.3 to 0.99, equal or different by stratum, weights that differ up to 50 times."""
    sizes = product((200, 500, 1000, 3000, 10_000), (0.02, 0.05, 0.1, 0.3), (1.0, 0.5), (0.02, 0.05, 0.1, 0.2))
    for (total, share, first, second), passing in product(sizes, _PASSING):
        yield _yes_or_no(total, share, (first, second), passing)
    for rate, gap, pis, scored in product((0.5, 0.8, 0.9, 0.95, 0.98), (0.0, 0.3), _PROBABILITIES, (20, 50, 145, 500)):
        total = round(scored / (0.1 * pis[0] + 0.9 * pis[1]))
        yield _yes_or_no(total, 0.1, pis, (max(0.1, rate - gap), rate))


def _yes_or_no(total: int, share: float, pis: tuple[float, float], passing: tuple[float, float]) -> Cell:
    laws = tuple(np.array([1.0 - rate, rate]) for rate in passing)
    label = f"{total} requests, {share:g} at pi {pis[0]:g}/{pis[1]:g}, passing {passing[0]:g}/{passing[1]:g}"
    return Cell(total, share, pis, (laws[0], laws[1]), np.array([0.0, 1.0]), label)


def graded_cells() -> Iterator[Cell]:
    """Scores by twentieths: uniform, humped, skewed towards either end, few low ones, nearly yes or no."""
    laws = _laws()
    kinds = [(name, name) for name in laws]
    kinds += [("half fail", "tenth fails"), ("half fail", "few fail"), ("even", "high"), ("even", "tenth fails")]
    kinds += [("few fail", "half fail"), ("tenth scores", "tenth fails"), ("hard zeros", "even")]
    sizes = list(product((500, 1000, 3000), (0.02, 0.1, 0.3), (1.0, 0.5), (0.02, 0.05, 0.1, 0.2)))
    sizes += [(round(n / (0.1 * a + 0.9 * b)), 0.1, a, b) for (a, b), n in product(_PROBABILITIES, (50, 145, 500))]
    for (total, share, first, second), (law, rest) in product(sizes, kinds):
        label = f"{total} requests, {share:g} at pi {first:g}/{second:g}, {law} / {rest}"
        yield Cell(total, share, (first, second), (laws[law], laws[rest]), _STEPS, label)


def equal_cells() -> Iterator[Cell]:
    """Graded scores of equal probability, near either end of the scale and in the middle."""
    laws = _laws()
    laws |= {f"{name}, upside down": law[::-1].copy() for name, law in laws.items()}
    for n, (name, law) in product((10, 15, 20, 30, 40, 50, 70, 100, 145, 300, 1000), laws.items()):
        yield Cell(n, 1.0, (1.0, 1.0), (law, law), _STEPS, f"{n} scored, {name}")


def _laws() -> dict[str, Any]:
    def failing(share: float) -> Any:
        """A perfect score, but for a share that is spread evenly."""
        law = np.full(21, share / 21)
        law[-1] += 1.0 - share
        return law

    def points(**shares: float) -> Any:
        """A few scores in percent, each with its share."""
        law = np.zeros(21)
        for percent, share in shares.items():
            law[int(percent[1:]) // 5] = share
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


def coverage_of(rng: Any, group: Sequence[Any], seeds: int, *, measure: Callable[[Any, Any, int], float]) -> Coverage:
    """Measure every cell of a group in few samples, then the cells with the lowest coverage in many."""
    first = [measure(rng, cell, max(40, seeds // 20)) for cell in group]
    lowest = sorted(range(len(group)), key=first.__getitem__)[:_RESAMPLED]
    share, label = min((measure(rng, group[index], seeds), group[index].label) for index in lowest)
    return Coverage(share, float(np.mean(first)), len(group), label)


def coverage(rng: Any, cell: Cell, seeds: int) -> float:
    """The share of samples whose interval holds the truth; samples without scores have no interval."""
    first = rng.binomial(cell.total, cell.share, size=seeds)
    strata = zip((first, cell.total - first), cell.probabilities, strict=True)
    scored = [rng.binomial(size, pi) for size, pi in strata]
    counts = np.concatenate([rng.multinomial(n, law) for n, law in zip(scored, cell.laws, strict=True)], axis=1)
    distinct, times = np.unique(counts[counts.sum(axis=1) > 0], axis=0, return_counts=True)
    intervals = [moments.estimate() for moments in _moments(distinct, cell)]
    hits = [(interval.lo or 0.0) - 1e-12 <= cell.truth <= (interval.hi or 0.0) + 1e-12 for interval in intervals]
    return float(np.average(hits, weights=times))


def _moments(counts: Any, cell: Cell) -> Iterator[Moments]:
    """The sums of each row of counts (a column a value, stratum after stratum), each answer a cluster of its own."""
    y = np.tile(cell.values, 2)
    w = np.repeat([1.0 / pi for pi in cell.probabilities], len(cell.values))
    sums = [counts @ column for column in (w, w * y, w * y * y, w * w, w * w * y, w * w * y * y)]
    present, n = counts > 0, counts.sum(axis=1)
    lowest, highest = np.where(present, y, 9.0).min(axis=1), np.where(present, y, -9.0).max(axis=1)
    heaviest = np.where(present, w, 0.0).max(axis=1)
    fractional = (counts * ((y > 0) & (y < 1))).sum(axis=1)
    whole, wy, wyy, ww, wwy, wwyy = sums
    columns = (n, n, whole, wy, wyy, ww, ww, wwy, wwyy, wyy, whole, heaviest, heaviest, lowest, highest, fractional)
    for row in zip(*columns, *by_class(counts, y, w), strict=True):
        moments = Moments.of([float(figure) for figure in row])
        assert moments is not None
        yield moments


def by_class(counts: Any, y: Any, w: Any) -> tuple[Any, Any, Any]:
    """The sums by classes of π: of scores, of their squares, and the least number of answers of a class."""
    classes = np.floor(np.log2(w) + 1e-12)
    wwy, wwyy, least = np.zeros(len(counts)), np.zeros(len(counts)), np.full(len(counts), np.inf)
    for each in np.unique(classes):
        of_class = np.where(classes == each, counts, 0)
        n, whole, ww = of_class.sum(axis=1), of_class @ w, of_class @ (w * w)
        share = n / np.where(whole > 0, whole, 1.0)
        wwy += ww * (share * (of_class @ (w * y)) + 1.0) / (n + 2.0)
        wwyy += ww * (share * (of_class @ (w * y * y)) + 1.0) / (n + 2.0)
        least = np.where(n > 0, np.minimum(least, n), least)
    return wwy, wwyy, np.where(np.isfinite(least), least, 0)


def widest(rng: Any, seeds: int) -> tuple[float, str]:
    """The largest mean half width over that of the design's theory, where each stratum has ten failures and passes."""
    ratios = []
    for cell in cells():
        pi, share = np.array(cell.probabilities), np.array([cell.share, 1.0 - cell.share])
        q = np.array([law[-1] for law in cell.laws])
        n = cell.total * share * pi
        if cell.share == 1.0 or pi[0] == pi[1] or min((n * q).min(), (n * (1.0 - q)).min()) < 10.0:
            continue
        theory = 1.96 * float(np.sqrt((share**2 * (q * (1.0 - q) + (q - share @ q) ** 2) / n).sum()))
        first = rng.binomial(cell.total, cell.share, size=seeds)
        scored = [rng.binomial(size, chance) for size, chance in zip((first, cell.total - first), pi, strict=True)]
        drawn = zip(scored, cell.laws, strict=True)
        counts = np.concatenate([rng.multinomial(size, law) for size, law in drawn], axis=1)
        ends = [moments.estimate() for moments in _moments(counts, cell)]
        width = float(np.mean([((end.hi or 0.0) - (end.lo or 0.0)) / 2.0 for end in ends]))
        ratios.append((width / theory, cell.label))
    return max(ratios)
