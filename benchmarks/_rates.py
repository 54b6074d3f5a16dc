"""The rates that are proposed for a rule with strata, on planted traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from _promises import Promise

from ragpulse_collector.sampling.proposal import RateClass, propose
from ragpulse_evaluators.statistics import hajek

_DESIGNS = {
    "doubtful tenth": ((0.9, 0.05, 0.995), (0.1, 0.10, 0.6)),
    "documents' own cascade": ((0.9, 0.05, 0.97), (0.1, 0.5, 0.6)),
    "watched too much": ((0.9, 0.01, 0.9), (0.1, 1.0, 0.7)),
    "three classes": ((0.8, 0.05, 0.99), (0.15, 0.1, 0.8), (0.05, 0.2, 0.3)),
}
"""Designs: of each class its share of the traffic, its rate today, and how many of its answers pass."""


def proposed(seeds: int) -> list[Promise]:
    """The interval at the rates proposed from one day's scores: as narrow as predicted, and at the same cost."""
    rng, promises, total = np.random.default_rng(17), [], 20_000
    for name, design in _DESIGNS.items():
        found = []
        for _ in range(max(20, seeds)):
            rates = [rate for _, rate, _ in design]
            now, classes = _day_at(rng, design, rates, total)
            proposal = propose("judge", classes)
            moved = [each.rate for each in proposal.rates] or rates
            then, _ = _day_at(rng, design, moved, total)
            spent = sum(share * rate for (share, _, _), rate in zip(design, moved, strict=True))
            today = sum(share * rate for share, rate, _ in design)
            found.append((now, then, proposal.half_width or proposal.half_width_now or math.nan, spent / today))
        now, then, predicted, cost = np.mean(found, axis=0)
        promises += [
            Promise(f"proposed rates, {name}: width over predicted", then / predicted, 0.9, 1.1),
            Promise(f"proposed rates, {name}: width over today's", then / now, high=1.03),
            Promise(f"proposed rates, {name}: cost over today's", cost, 0.97, 1.0 + 1e-9),
        ]
    return promises


def _day_at(
    rng: Any, design: Sequence[tuple[float, float, float]], rates: Sequence[float], total: int
) -> tuple[float, list[RateClass]]:
    """Draw a day; returns half the width of its interval, and its classes as the collector counts them."""
    classes, values, pis = [], list[float](), list[float]()
    for number, ((share, _, passing), rate) in enumerate(zip(design, rates, strict=True)):
        units = int(total * share)
        n = int(rng.binomial(units, rate))
        passed = int(rng.binomial(n, passing))
        values += [1.0] * passed + [0.0] * (n - passed)
        pis += [rate] * n
        mean, where = passed / max(1, n), f"class {number}" if number else None
        classes.append(RateClass(where, rate, units, n, mean, mean, 0.01))
    estimate = hajek(values, pis, bounds=(0.0, 1.0))
    assert estimate is not None
    return ((estimate.hi or 1.0) - (estimate.lo or 0.0)) / 2.0, classes
