"""What `plan` promises where users ask several times, groups at an equal mix of requests, and oversampled traffic."""

from __future__ import annotations

from typing import Any

import _cells
import _clustered
import numpy as np
from _promises import Promise

from ragpulse_evaluators.statistics import Moments
from ragpulse_evaluators.statistics.standardised import Answer, standardised

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


def equal_mix(seeds: int) -> list[Promise]:
    """The interval of the standardised difference holds .04, whatever the two mixes; users may be on both sides."""
    rng, promises = np.random.default_rng(22), []
    for n, users, strata in ((300, 300, 2), (600, 300, 6), (2000, 600, 20)):
        held = []
        for _ in range(seeds):
            mix = np.linspace(1.0, 3.0, strata) / np.linspace(1.0, 3.0, strata).sum()
            sides = [_group(rng, n, users, share, gain) for share, gain in ((mix, 0.0), (mix[::-1], 0.04))]
            found = standardised(*sides)
            held.append(found is not None and abs(found.difference - 0.04) <= 1.96 * found.se)
        bound = 0.93 - 3.0 * (0.93 * 0.07 / seeds) ** 0.5
        name = f"coverage at an equal mix, {n} answers of {users} users, {strata} strata"
        promises.append(Promise(name, float(np.mean(held)), bound))
    return promises


def _group(rng: Any, n: int, users: int, mix: Any, gain: float) -> list[Answer]:
    strata, pi = rng.choice(len(mix), n, p=mix), np.where(rng.random(n) < 0.5, 1.0, 0.3)
    y = rng.random(n) < np.linspace(0.5, 0.95, len(mix))[strata] + gain
    rows = zip(y, pi, rng.integers(0, users, n), strata, rng.random(n) < pi, strict=True)
    return [Answer(float(value), float(chance), int(user), int(s)) for value, chance, user, s, kept in rows if kept]


def by_class(seeds: int) -> list[Promise]:
    """Oversampled traffic, spread by class of inclusion probability: no wider than the design has to be."""
    ratio, label = _cells.widest(np.random.default_rng(23), seeds)
    return [Promise("half width over the design's theory, ten failures in each stratum", ratio, 0.0, 1.1, note=label)]
