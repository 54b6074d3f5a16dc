"""What `check` and targets decide: a judge of known errors, corrected by few labels."""

from __future__ import annotations

from datetime import datetime
from itertools import product
from typing import Any

import _clustered
import numpy as np
from _promises import Promise

from ragpulse_collector.analysis.calibration import JudgedUnit, LabelledJudge
from ragpulse_collector.analysis.calibration.decisive import by_labels
from ragpulse_collector.analysis.quality import Bucket, Measured, Missing
from ragpulse_evaluators.statistics import Interval

COUNT, JUDGED, NOON = 1500, 0.5, datetime(2026, 11, 20, 12)
SENSITIVITY, SPECIFICITY = 0.9, 0.8


def decided(seeds: int) -> list[Promise]:
    """Coverage of the corrected figure, and how often a limit at the truth is wrongly above or below."""
    rng, promises = np.random.default_rng(31), []
    for labels, rate, each in product((60, 120), (0.8, 0.9), (1, 3)):
        found = [one for one in (_sample(rng, labels, rate, each) for _ in range(seeds)) if one.uncorrected]
        ends = [(one.least or 0.0, 1.0 if one.most is None else one.most) for one in found]
        above, below = (float(np.mean(side)) for side in zip(*((lo > rate, hi < rate) for lo, hi in ends), strict=True))
        plain = np.mean(
            [(o.uncorrected.lo or 0.0) <= rate <= (o.uncorrected.hi or 0.0) for o in found if o.uncorrected]
        )
        name = f"{labels} labels, rate {rate}, {each} a user: "
        slack = 3.0 / len(found) ** 0.5
        promises += [
            Promise(f"{name}coverage", 1.0 - above - below, 0.93 - slack * 0.255, note=f"judge alone {plain:.3f}"),
            Promise(f"{name}wrong at the limit", max(above, below), high=0.035 + slack * 0.18),
        ]
    return promises


def _sample(rng: Any, labels: int, rate: float, each: int) -> Measured:
    users = np.arange(COUNT) // each
    ease = np.sqrt(0.3) * rng.normal(size=COUNT)[users] + np.sqrt(0.7) * rng.normal(size=COUNT)
    good = ease > -_quantile(rate)
    verdict = np.where(good, rng.random(COUNT) < SENSITIVITY, rng.random(COUNT) > SPECIFICITY).astype(float)
    judged = rng.random(COUNT) < JUDGED
    y, owner = verdict[judged], np.unique(users[judged], return_inverse=True)[1]
    [moments] = _clustered.sums(y, np.full(len(y), 1.0 / JUDGED), owner, 1, int(owner.max()) + 1)
    bucket = Bucket(evaluator="judge", group=(), version="v", judge="j", start=NOON, moments=moments, counts={},
                    online={}, missing=Missing(), last=NOON, bounded=True)  # fmt: skip
    rows = rng.choice(np.flatnonzero(judged), labels, replace=False)
    units = [JudgedUnit("", NOON, "v", "j", float(verdict[row]), JUDGED, int(users[row]), float(good[row]),
                        labels / len(y)) for row in rows]  # fmt: skip
    interval = Interval.of(bucket.estimate)
    assert interval is not None
    return by_labels(bucket, interval, LabelledJudge(bucket, units)).measured


def _quantile(rate: float) -> float:
    return {0.8: 0.8416212335729143, 0.9: 1.2815515655446004}[rate]
