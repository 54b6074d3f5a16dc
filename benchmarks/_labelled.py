"""The correction by labels whose chances lie far apart: doubtful answers are judged more often, and err differently.

The interval in force adds up those of the classes of inclusion probability; beside it stands that of all labels
together. Both have the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

import _clustered
import numpy as np
from _promises import Promise

from ragpulse_collector.analysis.calibration import JudgedUnit, LabelledJudge, error_of
from ragpulse_collector.analysis.quality import Bucket, Missing
from ragpulse_evaluators.statistics import Interval, hajek, plus

COUNT, DOUBTFUL, NOON = 9_999, 0.2, datetime(2026, 11, 20, 12)
GOOD = np.array((0.6, 0.95))
TRUTH = DOUBTFUL * GOOD[0] + (1.0 - DOUBTFUL) * GOOD[1]
JUDGES = {
    "errs alike": ((0.9, 0.8), (0.9, 0.8)),
    "errs more in doubt": ((0.8, 0.7), (0.95, 0.8)),
    "guesses in doubt": ((0.6, 0.6), (0.99, 0.9)),
}
"""Sensitivity and specificity about doubtful answers, and about the others."""
RATES = ((0.3, 0.1), (0.5, 0.05))
ALIKE = 0.5
"""How often an answer of a user is as good as the user's others."""


@dataclass(frozen=True)
class Sample:
    """Judged answers, some of them labelled."""

    user: Any
    judge: Any
    human: Any
    pi: Any
    labelled: Any


def by_class(seeds: int) -> list[Promise]:
    """Coverage of the correction in force, and its width against that of all labels together."""
    rng, promises, ratios = np.random.default_rng(37), [], []
    low = 0.93 - 3.0 * (0.93 * 0.07 / seeds) ** 0.5
    for labels, (name, errors), rates, each in product((60, 120, 300), JUDGES.items(), RATES, (1, 3)):
        found = [_both(_sample(rng, labels, errors, rates, each)) for _ in range(seeds)]
        ours, pooled = zip(*found, strict=True)
        covered, before = (float(np.mean([one.lo <= TRUTH <= one.hi for one in ones])) for ones in (ours, pooled))
        ratio = float(np.exp(np.mean([np.log(_width(one) / _width(all_)) for one, all_ in found])))
        label = f"{labels} labels, judged {rates[0]:g}/{rates[1]:g}, {name}, {each} a user"
        promises.append(Promise(label, covered, low, note=f"together {before:.3f}; width x {ratio:.2f}"))
        ratios.append(ratio)
    promises.append(Promise("the widest against all labels together", max(ratios), high=1.01))
    return promises


def _sample(rng: Any, labels: int, errors: Any, rates: tuple[float, float], each: int) -> Sample:
    users = np.arange(COUNT) // each
    kind = (rng.random(COUNT // each + 1) > DOUBTFUL).astype(int)[users]
    ease = np.where(rng.random(COUNT) < ALIKE, rng.random(COUNT // each + 1)[users], rng.random(COUNT))
    pi = np.array(rates)[kind]
    judged = rng.random(COUNT) < pi
    kind, pi, ease, users = kind[judged], pi[judged], ease[judged], users[judged]
    human = ease < GOOD[kind]
    sensitivity, specificity = np.array(errors)[kind].T
    judge = np.where(human, rng.random(len(kind)) < sensitivity, rng.random(len(kind)) > specificity)
    labelled = np.zeros(len(kind), bool)
    labelled[rng.choice(len(kind), labels, replace=False)] = True
    return Sample(users, judge.astype(float), human.astype(float), pi, labelled)


def _both(sample: Sample) -> tuple[Interval, Interval]:
    """The figure in force, and the one whose interval is of all labels together."""
    owner = np.unique(sample.user, return_inverse=True)[1]
    [moments] = _clustered.sums(sample.judge, 1.0 / sample.pi, owner, 1, int(owner.max()) + 1)
    bucket = Bucket(evaluator="judge", group=(), version="v", judge="j", start=NOON, moments=moments, counts={},
                    online={}, missing=Missing(), last=NOON, bounded=True)  # fmt: skip
    chance, rows = float(sample.labelled.mean()), np.flatnonzero(sample.labelled)
    units = [JudgedUnit("", NOON, "v", "j", float(sample.judge[row]), float(sample.pi[row]), int(sample.user[row]),
                        float(sample.human[row]), chance) for row in rows]  # fmt: skip
    judged = Interval.of(hajek(sample.judge.tolist(), sample.pi.tolist(), clusters=sample.user.tolist()))
    error = error_of(LabelledJudge(bucket, units))
    assert judged is not None
    assert error is not None
    errors = (sample.human[rows] - error.lam * sample.judge[rows]).tolist()
    pi, users = (sample.pi[rows] * chance).tolist(), sample.user[rows].tolist()
    together = Interval.of(hajek(errors, pi, clusters=users, bounds=(-1.0, 1.0)))
    assert together is not None
    return error(judged), plus(judged.times(error.lam), together).within(0.0, 1.0)


def _width(interval: Interval) -> float:
    return interval.hi - interval.lo
