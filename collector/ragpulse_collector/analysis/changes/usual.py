"""The one test of change: does a window differ from what is usual? Pure functions.

Usual is the same window of the weeks before where there are three, else the same hours of the days before where there
are three, else the range before. Sums are compared as counts, by the exact conditional test of two Poisson counts
(Przyborowski and Wilenski 1940): a share of exactly zero is a number like any other. A count is first divided by its
dispersion: how much a user adds at once, and how much the same windows of the past differ among themselves.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import median
from typing import Literal, NamedTuple

from ragpulse_evaluators.statistics import normal_quantile, student_quantile
from ragpulse_evaluators.statistics.distributions import normal_two_sided_p, regularized_beta

Kind = Literal["share", "total", "score"]
"""A mean from 0 to 1, a count, a mean on an open scale."""
LEAST = 3
"""The fewest weeks, days or windows that show what is usual."""
GROWTH, LENGTHS = 4, 3
"""The last window is compared, the last four, the last sixteen."""
_ROWS = 200
"""The spread of the past is learned from about so many times of the week."""
_OUTLIER = 9.0
"""A window of the past that lies further off, in variances of its like, counts as this far: it was an incident."""
_MEDIAN_OF_SQUARES = 0.455
"""Of a standard normal variable."""
_NEAR = 1.5
"""Nearer to what is expected, in standard errors, no window is sure."""
_NOTHING = 1e-9


class Sums(NamedTuple):
    """Sums over the requests of a window (w = 1/pi), and over its users (W = Σw, S = Σwy)."""

    w: float = 0.0
    wy: float = 0.0
    users_ww: float = 0.0
    users_ws: float = 0.0
    users_ss: float = 0.0
    missing: float = 0.0
    """The weight of answers without a verdict."""
    lasts: float = 0.0
    """Its length in cells: 0 where a clock skipped it."""

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both."""
        return Sums(*map(float.__add__, self, other))

    def turned(self) -> Sums:
        """Return the sums of 1-y."""
        wy, ws = self.w - self.wy, self.users_ww - self.users_ws
        if wy < _NOTHING * self.w:
            return self._replace(wy=0.0, users_ws=0.0, users_ss=0.0)
        return self._replace(wy=wy, users_ws=ws, users_ss=max(0.0, ws - self.users_ws + self.users_ss))

    def squares(self, mean: float) -> float:
        """Return Σ(S - mean·W)²."""
        return max(0.0, self.users_ss - 2.0 * mean * self.users_ws + mean * mean * self.users_ww)


@dataclass(frozen=True, slots=True)
class Usual:
    """What a window is compared with: the windows that begin so many cells back."""

    kind: Literal["weeks", "days", "range"]
    starts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Move:
    """A window beside what is usual."""

    size: int
    """Its cells."""
    usual: Usual
    before: float
    after: float
    chance: float
    """How likely a move so large, to the same side, is without a change."""


@dataclass(frozen=True, slots=True)
class _Spread:
    """How much windows of the past differ: as a factor of the variance by users, and beside it, relative to a count."""

    factor: float = 1.0
    apart: float = 0.0
    freedom: int = 1


@dataclass(frozen=True, slots=True)
class Grid:
    """How time is cut, in cells."""

    window: int
    baseline: int
    day: int
    """0 where a day has no whole number of cells: then only the range before is known."""
    hour: int = 0
    """Clocks may have been shifted by so many cells, nobody knows by whose zone: a change holds on either."""
    lengths: int = LENGTHS


class Line:
    """The cells of a group, the newest first."""

    def __init__(self, kind: Kind, cells: Sequence[Sums], grid: Grid) -> None:
        """`cells` reach back to the first that the store, or the group, has."""
        self.kind, self.known, self.grid = kind, len(cells), grid
        self._until = [list(accumulate(column, initial=0.0)) for column in zip(*cells, strict=True)] or [[0.0]] * 7
        self._exposed = self._until[6 if kind == "total" else 0]
        self._filled = [index for index, cell in enumerate(cells) if cell.w > 0.0]
        lengths = (grid.window * GROWTH**power for power in range(grid.lengths))
        self.sizes = [size for size in lengths if size == grid.window or 2 * size <= grid.baseline]
        """The lengths that are compared."""
        self.usual, self._spread, self._unit = cache(self._usual), cache(self._spread_of), cache(self._unit_of)

    def latest(self, at: int) -> float:
        """Return the newest cell from one on that has answers."""
        place = bisect_left(self._filled, at)
        return self._filled[place] if place < len(self._filled) else math.inf

    def of(self, start: int, size: int) -> Sums:
        """Return the sums of so many cells, from one on backwards."""
        first, last = min(start, self.known), min(start + size, self.known)
        return Sums(*[column[last] - column[first] for column in self._until])

    def _all(self, starts: Sequence[int], size: int) -> Sums:
        ends = [start + size for start in starts]
        return Sums(*[sum(map(c.__getitem__, ends)) - sum(map(c.__getitem__, starts)) for c in self._until])

    def _usual(self, at: int, size: int, shift: int = 0) -> Usual | None:
        """Return what the window that ended `at` cells ago is compared with; None where too little is known."""
        day = self.grid.day
        days: Sequence[tuple[Literal["weeks", "days"], int]] = (("weeks", 7 * day), ("days", day))
        for kind, period in days:
            if size <= period and len(starts := self._starts(at, period + shift, size, period)) >= LEAST:
                return Usual(kind, starts)
        # The range before all windows that are compared, and before some time in which nobody looked: a change is not
        # its own past. It holds a whole day.
        known = min(self.grid.baseline * 3 // 2, self.known - at)
        starts = self._starts(at, max(size, self.sizes[-1], known // 3), size, size)
        is_enough = len(starts) >= LEAST and self.known - at >= min(day, self.grid.baseline)
        return Usual("range", starts) if is_enough else None

    def _starts(self, at: int, first: int, size: int, period: int) -> list[int]:
        """Return the starts of the windows that hold anything; of a total, nothing is 0."""
        last, exposed = min(at + first + self.grid.baseline, self.known) - size, self._exposed
        return [start for start in range(at + first, last + 1, period) if exposed[start + size] > exposed[start]]

    def _exposure(self, sums: Sums) -> float:
        return sums.lasts if self.kind == "total" else sums.w

    def _level(self, sums: Sums) -> float:
        exposure = self._exposure(sums)
        return sums.wy / exposure * (self.grid.window if self.kind == "total" else 1) if exposure else 0.0

    def moves(self, at: int, tail: float, past: Line | None = None) -> Iterator[Move]:
        """Yield how the window that ended `at` cells ago, the last four and the last sixteen differ from what is usual.

        `past` has the cells of the group that this one replaced; `tail` is the chance below which a move is sure.
        """
        shifts = (0, -self.grid.hour, self.grid.hour) if self.grid.hour else (0,)
        for size in self.sizes:
            moves = [move for shift in shifts if (move := self._move(at, size, shift, tail, past or self))]
            if moves:
                yield max(moves, key=lambda move: move.chance)

    def _move(self, at: int, size: int, shift: int, tail: float, past: Line) -> Move | None:
        now, usual = self.of(at, size), past.usual(at, size, shift)
        if usual is None or self._exposure(now) <= 0.0:
            return None
        before = past._all(usual.starts, size)
        turned = self.kind == "share" and now.wy + before.wy > (now.w + before.w) / 2.0
        a, b = (sums.turned() if turned else sums for sums in (now, before))
        chance = past._chance(a, b, past._learned(at, size), size, turned, tail, len(usual.starts))
        return Move(size, usual, self._level(before), self._level(now), chance)

    def _chance(self, a: Sums, b: Sums, at: int, size: int, turned: bool, tail: float, windows: int) -> float:
        """Return the chance of a count as far from what is usual, whatever the missing verdicts are."""
        rises = a.wy * self._exposure(b) > b.wy * self._exposure(a)
        exposure, before = self._exposure(a) + a.missing, self._exposure(b) + b.missing
        k, j = (a.wy, b.wy + b.missing) if rises else (a.wy + a.missing, b.wy)
        unit, expected = self._unit(at, size, turned) or a.users_ss / (a.wy or 1.0), j / before * exposure
        counted = exposure if self.kind == "score" else expected
        variance, distance = unit * counted * (1.0 + exposure / before), (k - expected) * (1.0 if rises else -1.0)
        if distance <= 0.0 or distance**2 < _NEAR**2 * variance or unit <= 0.0:
            return 1.0
        spread = self._spread(at, size, turned)
        widened = (student_quantile(1.0 - tail, spread.freedom) / normal_quantile(1.0 - tail)) ** 2
        apart = spread.apart * counted**2 * (1.0 + 1.0 / windows) * widened
        if self.kind == "score":
            return normal_two_sided_p(distance / max(spread.factor * variance, variance + apart) ** 0.5) / 2.0
        widest = max(spread.factor, 1.0 + apart / variance if variance else 1.0)
        # Counts come by users: one more is a whole one before the past widens it.
        share, unit, one = exposure / (exposure + before), unit * widest, 1.0 / widest
        if rises:
            return regularized_beta(share, k / unit, j / unit + one)
        return 1.0 - regularized_beta(share, k / unit + one, j / unit)

    def _learned(self, at: int, size: int) -> int:
        """Return the end of the past to learn from: one serves all windows of a day."""
        day = self.grid.day
        past = -(-at // day) * day if day else at
        now, then = self.usual(at, size), self.usual(past, size)
        return past if now and then and now.kind == then.kind and len(now.starts) == len(then.starts) else at

    def _unit_of(self, at: int, size: int, turned: bool) -> float:
        """Return the variance of a count over its mean, as users of the past show it; 0 where nothing was counted."""
        past = self.of(at + size, self.grid.baseline)
        past = past.turned() if turned else past
        if self.kind == "total":
            return past.users_ss / past.wy if past.wy else 0.0
        weight = past.w if self.kind == "score" else past.wy
        return past.squares(past.wy / past.w) / weight if weight else 0.0

    def _spread_of(self, at: int, size: int, turned: bool) -> _Spread:
        """Learn from windows of the past, each beside its like: those of other weeks, of other days, or all."""
        usual, unit = self.usual(at, size), self._unit(at, size, turned)
        if usual is None or not unit:
            return _Spread()
        if usual.kind == "range" and size > self.grid.window:  # so few of these may look alike by chance
            return self._spread(at, self.grid.window, turned)
        period = {"weeks": 7 * self.grid.day, "days": self.grid.day, "range": size}[usual.kind]
        step = size * max(1, round(period / size / _ROWS))
        squares, variances, counts, n = [], [], [], 0
        for first in range(size, period + 1, step):
            starts = usual.starts if usual.kind == "range" else self._starts(at, first, size, period)
            like = [self.of(start, size) for start in starts]
            like = [sums.turned() for sums in like] if turned else like
            n = max(n, len(like))
            if len(like) < 2:
                continue
            hits, total = sum(one.wy for one in like), sum(map(self._exposure, like))
            for one in like:
                exposure = self._exposure(one)
                expected = (hits - one.wy) / (total - exposure) * exposure
                count = exposure if self.kind == "score" else expected
                if count > 0.0:
                    squares.append((one.wy - expected) ** 2)
                    variances.append(unit * count * (1.0 + exposure / (total - exposure)))
                    counts.append(count**2 * len(like) / (len(like) - 1))
        if not squares:
            return _Spread()
        ratios = [square / variance for square, variance in zip(squares, variances, strict=True)]
        most = _OUTLIER * max(1.0, median(ratios) / _MEDIAN_OF_SQUARES)
        usual_squares = sum(min(square, most * variance) for square, variance in zip(squares, variances, strict=True))
        return _Spread(
            max(1.0, sum(min(ratio, most) for ratio in ratios) / len(ratios)),
            max(0.0, usual_squares - sum(variances)) / sum(counts),
            max(1, (n * period // self.grid.day if usual.kind == "weeks" else n) - 1),
        )

    def since(self, at: int, move: Move, past: Line | None = None) -> Move:
        """Return a sure move as one of the time in which the level differs: up to half of the baseline."""
        past, window = past or self, self.grid.window
        best, size, excess, weight = -1.0, move.size, 0.0, 0.0
        sign = math.copysign(1.0, move.after - move.before)
        for start in range(at, min(at + max(move.size, self.grid.baseline // 2), self.known), window):
            usual, now = past.usual(start, window), self.of(start, window)
            if usual is None or self._exposure(now) <= 0.0:
                continue
            before = past._all(usual.starts, window)
            expected = before.wy / self._exposure(before) * self._exposure(now)
            excess, weight = excess + now.wy - expected, weight + abs(expected)
            if sign * excess > 0.0 and excess**2 / (weight + 1.0) > best:
                best, size = excess**2 / (weight + 1.0), start + window - at
        now, usual = self.of(at, size), past.usual(at, size) or move.usual
        before = past._all(usual.starts, size if usual is not move.usual else move.size)
        return Move(size, usual, self._level(before), self._level(now), move.chance)
