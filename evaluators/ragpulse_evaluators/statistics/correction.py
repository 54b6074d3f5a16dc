"""A judge's mean, corrected by people's labels of some of the same answers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ragpulse_evaluators.statistics.distributions import normal_quantile
from ragpulse_evaluators.statistics.intervals import effective_n, hajek, weighted_mean
from ragpulse_evaluators.statistics.weighted import Estimate

_ENOUGH = 30
"""Fewer judged answers do not tell how far the check may be trusted: the plain interval."""
_RARE = 10.0
"""Nor do fewer answers of the rarer kind, in effect: few failures may all have been foreseen by luck."""


@dataclass(frozen=True, kw_only=True)
class AssistedEstimate(Estimate):
    """A mean made more precise by a check that saw everything. `n` and `n_eff` count judged answers.

    `lam` is how far the check was trusted (0: not at all), `n_all` how many answers it scored, `narrowing` the width of
    the interval as a share of the one without the check, at most 1.
    """

    lam: float
    n_all: int
    narrowing: float


def assisted_mean(
    values: Sequence[float | None],
    checks: Sequence[float | None],
    pi: Sequence[float],
    pi_all: Sequence[float] | None = None,
    *,
    drawn: Sequence[bool] | None = None,
    clusters: Sequence[Hashable] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> AssistedEstimate | None:
    """The mean of `values` over all answers: Hajek's of those judged, moved by λ(mean check of all - of those drawn).

    One row an answer: the judge's value or None where it gave none, the check's score, the chance that the judge was
    asked, and the chance that the answer is in the list at all (`pi_all`, default 1). `drawn` says which the judge was
    asked about, where some of those have no value (skipped, failed); by default those with one. A check of None (it
    could not score the answer) counts as the mean of the others: it tells nothing, and the answer still counts.

    λ minimises the variance, summed from the influence of each answer on both means (the difference estimator of survey
    sampling, tuned as in PPI++ by Angelopoulos, Duchi, Zrnic 2023), so a useless check costs nothing. The interval is
    `hajek`'s, narrowed by the ratio of the standard errors. λ is 0 below 30 judged answers, or 10 of the rarer kind.
    `clusters` names the user of each answer, as in `hajek`. None without values.
    """
    if not len(values) == len(checks) == len(pi):
        raise ValueError(f"{len(values)} values, {len(checks)} checks, {len(pi)} chances")
    names: Sequence[Hashable] = range(len(values)) if clusters is None else clusters
    judged_rows = [row for row in zip(values, pi, names, strict=True) if row[0] is not None]
    plain = hajek(
        [float(value or 0.0) for value, _, _ in judged_rows],
        [chance for _, chance, _ in judged_rows],
        clusters=[name for _, _, name in judged_rows],
        bounds=bounds,
        confidence=confidence,
    )
    if plain is None:
        return None
    scores = [check for check in checks if check is not None]
    mean_check = math.fsum(scores) / len(scores) if scores else 0.0
    guesses = [mean_check if check is None else check for check in checks]
    judged_weights = _weights(pi, [value is not None for value in values])
    asked_weights = judged_weights if drawn is None else _weights(pi, drawn)
    value_pulls, _ = _influence([value or 0.0 for value in values], judged_weights)
    pulls_of_all, mean_of_all = _influence(guesses, [1.0] * len(guesses) if pi_all is None else _weights(pi_all))
    pulls_of_asked, mean_of_asked = _influence(guesses, asked_weights)
    check_pulls = [a - b for a, b in zip(pulls_of_all, pulls_of_asked, strict=True)]
    lam, narrowing = _tuned(
        _by_cluster(value_pulls, names), _by_cluster(check_pulls, names), min(plain.n_eff, plain.clusters)
    )
    shift = lam * (mean_of_all - mean_of_asked)
    # The moved mean decides: the move is nearly independent of it, so that leaving it out biases nothing.
    if not _informative(plain, plain.estimate + shift, bounds):
        lam, shift, narrowing = 0.0, 0.0, 1.0
    return _moved(plain, lam, shift, narrowing, bounds, len(scores))


def _weights(pi: Sequence[float], among: Sequence[bool] | None = None) -> list[float]:
    """1/π, and 0 for those not among them."""
    return [1.0 / chance if included else 0.0 for chance, included in zip(pi, among or [True] * len(pi), strict=True)]


def _influence(values: Sequence[float], weights: Sequence[float]) -> tuple[list[float], float]:
    """The pull of each answer on the weighted mean, and that mean."""
    mean = weighted_mean(values, weights)
    total = math.fsum(weights)
    return [weight / total * (value - mean) for weight, value in zip(weights, values, strict=True)], mean


def _by_cluster(pulls: Sequence[float], names: Sequence[Hashable]) -> list[float]:
    """The sum of the pulls of each user's answers."""
    sums: dict[Hashable, float] = {}
    for pull, name in zip(pulls, names, strict=True):
        sums[name] = sums.get(name, 0.0) + pull
    return list(sums.values())


def _informative(plain: Estimate, mean: float, bounds: tuple[float, float]) -> bool:
    """Whether there are enough judged answers of either kind to trust a slope."""
    share = (mean - bounds[0]) / (bounds[1] - bounds[0])
    return plain.n >= _ENOUGH and min(share, 1.0 - share) * plain.n_eff >= _RARE


def _tuned(value_pulls: Sequence[float], check_pulls: Sequence[float], n_eff: float) -> tuple[float, float]:
    """λ that minimises Σ(pull + λ·away)², and the ratio of the standard errors; it costs one degree of freedom."""
    spread, unassisted = (math.fsum(pull * pull for pull in pulls) for pulls in (check_pulls, value_pulls))
    if spread <= 0.0 or unassisted <= 0.0 or n_eff <= 2.0:
        return 0.0, 1.0
    common = math.fsum(a * b for a, b in zip(value_pulls, check_pulls, strict=True))
    unexplained = 1.0 - common * common / spread / unassisted
    ratio = math.sqrt(max(0.0, unexplained) * (n_eff - 1.0) / (n_eff - 2.0))
    return (-common / spread, ratio) if ratio < 1.0 else (0.0, 1.0)


def _moved(
    plain: Estimate, lam: float, shift: float, narrowing: float, bounds: tuple[float, float], n_all: int
) -> AssistedEstimate:
    def cut(value: float) -> float:
        return min(bounds[1], max(bounds[0], value))

    moved = plain.estimate + shift
    lo = None if plain.lo is None else cut(moved - narrowing * (plain.estimate - plain.lo))
    hi = None if plain.hi is None else cut(moved + narrowing * (plain.hi - plain.estimate))
    return AssistedEstimate(
        estimate=cut(moved), se=None if plain.se is None else plain.se * narrowing, lo=lo, hi=hi, n=plain.n,
        n_eff=plain.n_eff, thin=plain.thin, clusters=plain.clusters,
        reason=plain.reason, lam=lam, n_all=n_all, narrowing=narrowing,
    )  # fmt: skip


ENOUGH_LABELS = 30
"""Below this many labels a corrected number is marked 'not enough labels'."""

_FEW_DISAGREEMENTS = 10


@dataclass(frozen=True, kw_only=True)
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
    scores = [*judge_all, *judge_labelled, *human]
    binary = all(score in (0.0, 1.0) for score in scores)
    guesses, truths, n_eff = list(judge_labelled), list(human), effective_n(weights)
    agreed = sum(a == b for a, b in zip(guesses, truths, strict=True))
    few = binary and min(agreed, len(truths) - agreed) < _FEW_DISAGREEMENTS
    if few:
        guesses, truths = [*guesses, 0.0, 1.0], [*truths, 1.0, 0.0]
        weights += [math.fsum(weights) / len(weights)] * 2
    unlearned = few and len(human) < ENOUGH_LABELS
    lam = 1.0 if unlearned else _power(judge_all, weights_all, guesses, truths, weights)
    rectifier = [truth - lam * guess for truth, guess in zip(truths, guesses, strict=True)]
    pulls_all, base = _influence(judge_all, weights_all)
    pulls, shift = _influence(rectifier, weights)
    estimate, shift_se = lam * base + shift, math.hypot(*pulls)
    quantile, se = normal_quantile(0.5 + confidence / 2.0), math.hypot(*(lam * pull for pull in pulls_all), *pulls)
    lo, hi = estimate - quantile * se, estimate + quantile * se
    if shift_se <= 0.0 and labels_only.lo is not None and labels_only.hi is not None:
        lo, hi = min(estimate, labels_only.lo), max(estimate, labels_only.hi)
    if all(0.0 <= score <= 1.0 for score in scores):
        lo, estimate, hi = (min(1.0, max(0.0, value)) for value in (lo, estimate, hi))
    return CorrectedEstimate(
        estimate=estimate,
        se=se,
        lo=lo,
        hi=hi,
        n=len(human),
        n_eff=n_eff,
        lam=lam,
        n_judged=len(judge_all),
        note=None if len(human) >= ENOUGH_LABELS else "not enough labels",
    )


def _power(
    judge_all: Sequence[float],
    weights_all: Sequence[float],
    judge_labelled: Sequence[float],
    human: Sequence[float],
    weights: Sequence[float],
) -> float:
    """λ = cov(human, judge) / ((1 + n/N)·var(judge)), from weighted moments and effective numbers, cut to [0, 1]."""
    n, n_all = len(human), len(judge_all)
    mean_judge = weighted_mean(judge_labelled, weights)
    mean_human = weighted_mean(human, weights)
    deviations = [(g - mean_judge) * (t - mean_human) for g, t in zip(judge_labelled, human, strict=True)]
    covariance = weighted_mean(deviations, weights)
    pooled = (n * mean_judge + n_all * weighted_mean(judge_all, weights_all)) / (n + n_all)
    spread = weighted_mean([(guess - pooled) ** 2 for guess in judge_labelled], weights)
    spread_all = weighted_mean([(guess - pooled) ** 2 for guess in judge_all], weights_all)
    variance = (n * spread + n_all * spread_all) / (n + n_all - 1)
    if variance <= 0.0:
        return 0.0
    ratio = 1.0 + effective_n(weights) / effective_n(weights_all)
    return min(1.0, max(0.0, covariance / (ratio * variance)))


def rogan_gladen(p: float, sensitivity: float, specificity: float) -> float | None:
    """The true rate behind a rate seen through an imperfect yes/no judge (Rogan and Gladen 1978), cut to [0, 1].

    (p + specificity - 1) / (sensitivity + specificity - 1); None where the judge is no better than chance.
    """
    informedness = sensitivity + specificity - 1.0
    if informedness <= 0.0:
        return None
    return min(1.0, max(0.0, (p + specificity - 1.0) / informedness))
