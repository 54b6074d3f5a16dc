"""How far missing verdicts could move a difference: a verdict on two sides has to hold for the best and the worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ragpulse_collector.analysis.compare.sides import Decided, SideUnits
from ragpulse_evaluators.statistics import Uncertain, weighted_mean

Reach = tuple[float, float, float]
"""By how much the missing verdicts could lower and raise the difference; and the share of it that is known."""


def reach_of_sides(a: SideUnits, b: SideUnits) -> Reach:
    """Return the reach of two groups: with a share u missing a mean m becomes m(1-u) to m(1-u) + u."""
    mean_a, mean_b = (
        weighted_mean([one.value for one in side.scored.values()], [1.0 / one.pi for one in side.scored.values()])
        for side in (a, b)
    )
    lost_a, lost_b = a.missing_share, b.missing_share
    return -lost_b * mean_b - lost_a * (1.0 - mean_a), lost_b * (1.0 - mean_b) + lost_a * mean_a, 1.0


def reach_of_pairs(a: SideUnits, b: SideUnits) -> Reach:
    """Return the reach of pairs of which one side has a verdict: the other one may be 0 or 1."""
    lost = [
        (sign / scored[unit].pi, scored[unit].value)
        for scored, side, sign in ((a.scored, b, 1.0), (b.scored, a, -1.0))
        for unit in (side.failed.keys() | side.dropped.keys()) & scored.keys()
    ]
    known = math.fsum(1.0 / min(a.scored[unit].pi, b.scored[unit].pi) for unit in a.scored.keys() & b.scored.keys())
    return reach_of_halves(lost, known)


def reach_of_halves(lost: Sequence[tuple[float, float]], known: float) -> Reach:
    """Return the reach of half pairs, each given as its weight (negative where a is missing) and the value it has.

    `known` is the weight of the whole pairs.
    """
    ends = [sorted((weight * (0.0 - value), weight * (1.0 - value))) for weight, value in lost]
    whole = known + math.fsum(abs(weight) for weight, _ in lost)
    return math.fsum(low for low, _ in ends) / whole, math.fsum(high for _, high in ends) / whole, known / whole


def ends_of(difference: Uncertain | None, reach: Reach) -> tuple[float, float] | None:
    """Return the interval of a difference with all missing verdicts against b, and for it; None where none is."""
    lower, raised, known = reach
    if not (lower or raised) or difference is None or difference.lo is None or difference.hi is None:
        return None
    return difference.lo * known + lower, difference.hi * known + raised


def held(decided: Decided, reach: Reach) -> Decided:
    """Return the comparison with the interval that decides, and without a verdict that the missing ones could turn."""
    ends = ends_of(decided.difference, reach)
    if ends is None:
        return decided
    least, most = ends
    bounded = replace(decided, least=least, most=most)
    kept = {"better": least > 0.0, "worse": most < 0.0, "no difference": max(-least, most) < _NO_DIFFERENCE}
    if kept.get(decided.verdict, True):
        return bounded
    return replace(bounded, verdict="not enough data", need_more=None, need_more_of="verdicts")


_NO_DIFFERENCE = 0.05
