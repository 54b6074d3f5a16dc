"""What `plan` promises where users ask several times, and of oversampled traffic."""

from __future__ import annotations

from typing import Any

import _cells
import _clustered
import numpy as np
from _promises import Promise

from ragpulse_evaluators.statistics import Moments

HALF = 0.03


def planned(seeds: int) -> list[Promise]:
    """The half width that the planned answers have, over the promised one: its median over pilots of 600 answers."""
    rng, promises = np.random.default_rng(21), []
    for each, icc, rate in ((5, 0.2, 0.85), (10, 0.2, 0.85), (25, 0.2, 0.85), (3, 0.5, 0.85), (5, 0.2, 0.95)):
        ratios = []
        for _ in range(seeds):
            pilot = _users(rng, 600 // each, each, icc, rate)
            reached = _users(rng, round(pilot.clusters * pilot.times_needed(HALF)), each, icc, rate).estimate()
            ratios.append(((reached.hi or 0.0) - (reached.lo or 0.0)) / 2.0 / HALF)
        name = f"planned half width, users x {each}, ICC {icc:g}, rate {rate:g}: reached over promised"
        promises.append(Promise(name, float(np.median(ratios)), 0.8, 1.15))
    return promises


def _users(rng: Any, users: int, each: int, icc: float, rate: float) -> Moments:
    owner, spread = np.repeat(np.arange(users), each), (1.0 - icc) / icc
    rates = rng.beta(rate * spread, (1.0 - rate) * spread, users)
    y = (rng.random(len(owner)) < rates[owner]).astype(float)
    [moments] = _clustered.sums(y, np.ones(len(y)), owner, 1, users)
    assert moments is not None
    return moments


def by_class(seeds: int) -> list[Promise]:
    """Oversampled traffic, spread by class of inclusion probability: no wider than the design has to be."""
    ratio, label = _cells.widest(np.random.default_rng(23), seeds)
    return [Promise("half width over the design's theory, ten failures in each stratum", ratio, 0.0, 1.1, note=label)]
