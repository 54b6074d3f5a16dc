"""A judge's mean, corrected by people's labels of some of the same answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from ragpulse_evaluators.statistics.comparison import Interval, plus
from ragpulse_evaluators.statistics.distributions import normal_quantile
from ragpulse_evaluators.statistics.intervals import effective_n, hajek, influence, weighted_mean
from ragpulse_evaluators.statistics.moments import Moments
from ragpulse_evaluators.statistics.weighted import Estimate

ENOUGH_LABELS = 30
"""Below this many labels a corrected number is marked 'not enough labels'."""

_FEW_DISAGREEMENTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedEstimate(Estimate):
    """A mean corrected by labels. `n` counts labels; `lam` is how far the judge was trusted, 0 (not at all) to 1.

    `note` is 'not enough labels' below 30 of them, else None: a page then shows the judge's number uncorrected.
    """

    lam: float
    n_judged: int
    note: str | None


def ppi_mean(
    judge_all: Sequence[float],
    judge_labelled: Sequence[float],
    human: Sequence[float],
    pi_all: Sequence[float] | None = None,
    pi_labelled: Sequence[float] | None = None,
    *,
    confidence: float = 0.95,
) -> CorrectedEstimate | None:
    """Prediction-powered mean: the judge's mean over all plus what labelled answers show it to be wrong by.

    PPI++ (Angelopoulos, Duchi, Zrnic 2023): mean(human - λ·judge, labelled) + λ·mean(judge, all), λ in [0, 1] chosen
    for the smallest variance, both means Hajek-weighted by `pi_all` and `pi_labelled` (the chance that an answer was
    judged, respectively judged and labelled). Binary scores with fewer than 10 disagreements (or agreements) take two
    pseudo-labels, one disagreement each way, without which the interval is far too narrow (and λ = 1 below 30 labels,
    which cannot tell it). None without labels.
    """
    pi_all = pi_all if pi_all is not None else [1.0] * len(judge_all)
    pi_labelled = pi_labelled if pi_labelled is not None else [1.0] * len(human)
    if len(judge_labelled) != len(human):
        raise ValueError(f"{len(judge_labelled)} judged but {len(human)} human labels")
    # Refuses unequal lengths, non-finite scores and chances outside (0, 1], with the same words everywhere.
    labels_only = hajek(human, pi_labelled)
    if hajek(judge_all, pi_all) is None or hajek(judge_labelled, pi_labelled) is None or labels_only is None:
        return None
    weights_all, weights = [1.0 / pi for pi in pi_all], [1.0 / pi for pi in pi_labelled]
    scores, n_eff = [*judge_all, *judge_labelled, *human], effective_n(weights)
    lam, labels = _trusted(Judged.of(judge_all, weights_all), judge_labelled, human, weights)
    rectifier, weights = [label.human - lam * label.judge for label in labels], [label.weight for label in labels]
    pulls_all, base = influence(judge_all, weights_all)
    pulls, shift = influence(rectifier, weights)
    estimate, shift_se = lam * base + shift, math.hypot(*pulls)
    quantile, se = normal_quantile(0.5 + confidence / 2.0), math.hypot(*(lam * pull for pull in pulls_all), *pulls)
    lo, hi = estimate - quantile * se, estimate + quantile * se
    if shift_se <= 0.0 and labels_only.lo is not None and labels_only.hi is not None:
        lo, hi = min(estimate, labels_only.lo), max(estimate, labels_only.hi)
    if all(0.0 <= score <= 1.0 for score in scores):
        lo, estimate, hi = (min(1.0, max(0.0, value)) for value in (lo, estimate, hi))
    return CorrectedEstimate(
        value=estimate,
        se=se,
        lo=lo,
        hi=hi,
        n=len(human),
        n_eff=n_eff,
        lam=lam,
        n_judged=len(judge_all),
        note=None if len(human) >= ENOUGH_LABELS else "not enough labels",
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """The judge's scores of all answers: how many, their weighted mean and mean square, Kish's effective number."""

    n: int
    mean: float
    square: float
    n_eff: float
    binary: bool

    @classmethod
    def of(cls, scores: Sequence[float], weights: Sequence[float]) -> Judged:
        """Add up scores."""
        mean, square = (weighted_mean([score**power for score in scores], weights) for power in (1, 2))
        return cls(len(scores), mean, square, effective_n(weights), all(score in (0.0, 1.0) for score in scores))

    @classmethod
    def of_moments(cls, sums: Moments) -> Judged:
        """Read what a store added up."""
        binary = not sums.between and sums.least >= 0.0 and sums.most <= 1.0
        return cls(sums.n, sums.mean, sums.wyy / sums.w, sums.w**2 / sums.ww, binary)


class _Label(NamedTuple):
    judge: float
    human: float
    weight: float


def judge_weight(judged: Judged, guesses: Sequence[float], human: Sequence[float], pi: Sequence[float]) -> float:
    """λ of `ppi_mean`: how far labels of these chances trust the judge that gave `guesses`."""
    return _trusted(judged, guesses, human, [1.0 / chance for chance in pi])[0]


_Error = tuple[float, float, Hashable]
"""An error, the chance of its label, and the user."""


def mean_error(errors: Sequence[float], pi: Sequence[float], users: Sequence[Hashable]) -> Interval | None:
    """The mean of errors from -1 to 1 with its interval: that of each class of π where labels suffice, added up.

    They do where each class, a factor of two wide, has `ENOUGH_LABELS` and users of its own. The heaviest class often
    errs least, which the interval of all together does not see.
    """
    classes = defaultdict[int, list[_Error]](list)
    for row in zip(errors, pi, users, strict=True):
        classes[math.floor(-math.log2(row[1]))].append(row)
    rows = [row for part in classes.values() for row in part]
    parts = [(found, part) for part in classes.values() if len(part) >= ENOUGH_LABELS and (found := _interval(part))]
    if len(parts) < len(classes) or sum(len({user for *_, user in part}) for _, part in parts) > len({*users}):
        return _interval(rows)
    _, chances, names = zip(*rows, strict=True)
    unsure = hajek([found.value for found, part in parts for _ in part], chances, clusters=names)
    total = math.fsum(1.0 / chance for chance in pi)
    shares = (found.times(math.fsum(1.0 / chance for _, chance, _ in part) / total) for found, part in parts)
    return reduce(plus, shares, Interval.normal(0.0, unsure.se if unsure and unsure.se else 0.0))


def _interval(rows: Sequence[_Error]) -> Interval | None:
    errors, pi, users = zip(*rows, strict=True)
    return Interval.of(hajek(errors, pi, clusters=users, bounds=(-1.0, 1.0)))


def _trusted(
    judged: Judged, guesses: Sequence[float], human: Sequence[float], weights: Sequence[float]
) -> tuple[float, list[_Label]]:
    """λ, and the labels with the pseudo-labels where nearly all agree, or nearly none."""
    labels = [_Label(*row) for row in zip(guesses, human, weights, strict=True)]
    binary = judged.binary and {*guesses, *human} <= {0.0, 1.0}
    agreed = sum(label.judge == label.human for label in labels)
    few = binary and min(agreed, len(labels) - agreed) < _FEW_DISAGREEMENTS
    if few:
        mean = math.fsum(weights) / len(weights)
        labels += [_Label(0.0, 1.0, mean), _Label(1.0, 0.0, mean)]
    unlearned = few and len(human) < ENOUGH_LABELS
    return 1.0 if unlearned else _power(judged, labels), labels


def _power(judged: Judged, labels: Sequence[_Label]) -> float:
    """λ = cov(human, judge) / ((1 + n/N)·var(judge)), from weighted moments and effective numbers, cut to [0, 1]."""
    n, (guesses, human, weights) = len(labels), zip(*labels, strict=True)
    mean_judge, mean_human = weighted_mean(guesses, weights), weighted_mean(human, weights)
    deviations = [(label.judge - mean_judge) * (label.human - mean_human) for label in labels]
    covariance = weighted_mean(deviations, weights)
    pooled = (n * mean_judge + judged.n * judged.mean) / (n + judged.n)
    spread = weighted_mean([(guess - pooled) ** 2 for guess in guesses], weights)
    spread_all = judged.square - 2.0 * pooled * judged.mean + pooled**2
    variance = (n * spread + judged.n * spread_all) / (n + judged.n - 1)
    if variance <= 1e-12:
        return 0.0
    ratio = 1.0 + effective_n(weights) / judged.n_eff
    return min(1.0, max(0.0, covariance / (ratio * variance)))


def rogan_gladen(p: float, sensitivity: float, specificity: float) -> float | None:
    """The true rate behind a rate seen through an imperfect yes/no judge (Rogan and Gladen 1978), cut to [0, 1].

    (p + specificity - 1) / (sensitivity + specificity - 1); None where the judge is no better than chance.
    """
    informedness = sensitivity + specificity - 1.0
    if informedness <= 0.0:
        return None
    return min(1.0, max(0.0, (p + specificity - 1.0) / informedness))
