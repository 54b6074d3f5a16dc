"""The verdict on pairs of scores of the same answers, from the estimate of their differences."""

from __future__ import annotations

from collections.abc import Mapping

from ragpulse_collector.analysis.answers import uncertain
from ragpulse_collector.analysis.compare.sides import Decided, SideVerdict, more_needed
from ragpulse_evaluators.statistics import Estimate
from ragpulse_evaluators.statistics.comparison import ENOUGH_CLUSTERS

OF_VERSIONS: Mapping[SideVerdict, SideVerdict] = {"better": "more lenient", "worse": "stricter"}
"""Verdicts on two versions or judges of an evaluator, which saw the same answers."""


def paired_verdict(estimate: Estimate) -> Decided:
    """Return the verdict on a mean difference; its interval decides, since it counts users."""
    half = (estimate.hi - estimate.lo) / 2.0 if estimate.lo is not None and estimate.hi is not None else None
    verdict: SideVerdict = "not enough data" if half is None or half >= 0.05 else "no difference"
    if half is not None and ((estimate.lo or 0.0) > 0 or (estimate.hi or 0.0) < 0):
        verdict = "better" if estimate.estimate > 0 else "worse"
    difference = uncertain(estimate)
    if half is None:
        users = max(1, ENOUGH_CLUSTERS - estimate.clusters)
        return Decided(difference=difference, verdict=verdict, need_more=users, need_more_of="users")
    more = more_needed(estimate.estimate, half, estimate.n) if verdict == "not enough data" else None
    return Decided(difference=difference, verdict=verdict, need_more=more)
