"""How far missing verdicts could move a difference: a verdict on two sides has to hold for the best and the worst."""

from __future__ import annotations

import math
from dataclasses import replace

from ragpulse_collector.analysis.compare.sides import Decided, SideUnits, Units
from ragpulse_evaluators.statistics import weighted_mean

Reach = tuple[float, float, float]
"""By how much the missing verdicts could lower and raise the difference; and the share of it that is known."""


def reach_of_sides(a: SideUnits, b: SideUnits) -> Reach:
    """Return the reach of two groups: with a share u missing a mean m becomes m(1-u) to m(1-u) + u."""
    (mean_a, lost_a), (mean_b, lost_b) = ((_mean(side.scored), side.missing_share) for side in (a, b))
    return -lost_b * mean_b - lost_a * (1.0 - mean_a), lost_b * (1.0 - mean_b) + lost_a * mean_a, 1.0


def reach_of_pairs(a: SideUnits, b: SideUnits) -> Reach:
    """Return the reach of pairs of which one side has a verdict: the other one may be 0 or 1."""
    lowest = highest = lost = 0.0
    for scored, side, sign in ((a.scored, b, 1.0), (b.scored, a, -1.0)):
        for unit in (side.failed.keys() | side.dropped.keys()) & scored.keys():
            weight, value = 1.0 / scored[unit].pi, scored[unit].value
            ends = sorted((sign * (0.0 - value), sign * (1.0 - value)))
            lowest, highest, lost = lowest + weight * ends[0], highest + weight * ends[1], lost + weight
    known = math.fsum(1.0 / min(a.scored[unit].pi, b.scored[unit].pi) for unit in a.scored.keys() & b.scored.keys())
    whole = known + lost
    return lowest / whole, highest / whole, known / whole


def held(decided: Decided, reach: Reach) -> Decided:
    """Return the comparison with the interval that decides, and without a verdict that the missing ones could turn."""
    lower, raised, known = reach
    difference = decided.difference
    if not (lower or raised) or difference is None or difference.lo is None or difference.hi is None:
        return decided
    least, most = difference.lo * known + lower, difference.hi * known + raised
    bounded = replace(decided, least=least, most=most)
    kept = {"better": least > 0.0, "worse": most < 0.0, "no difference": max(-least, most) < _NO_DIFFERENCE}
    if kept.get(decided.verdict, True):
        return bounded
    return replace(bounded, verdict="not enough data", need_more=None, need_more_of="verdicts")


_NO_DIFFERENCE = 0.05


def _mean(scored: Units) -> float:
    answers = scored.values()
    return weighted_mean([answer.value for answer in answers], [1.0 / answer.pi for answer in answers])
