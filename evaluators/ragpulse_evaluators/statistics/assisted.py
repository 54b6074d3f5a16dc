"""What a judge says of a sample, made more precise by what a cheap check says of everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_evaluators.statistics.estimate import Estimate
from ragpulse_evaluators.statistics.intervals import hajek, weighted_mean

__all__ = ["AssistedEstimate", "assisted_mean"]

_ENOUGH = 30
"""Fewer judged answers do not tell how far the check may be trusted: the plain interval."""
_RARE = 10.0
"""Nor do fewer answers of the rarer kind, in effect: few failures may all have been foreseen by luck."""


@dataclass(frozen=True, kw_only=True)
class AssistedEstimate(Estimate):
    """A mean made more precise by a check that saw everything. `n` and `n_eff` count judged answers.

    `lam` is how far the check was trusted (0: not at all), `n_all` how many answers it saw, `narrowing` the width of
    the interval as a share of the one without the check, at most 1.
    """

    lam: float
    n_all: int
    narrowing: float


def assisted_mean(
    values: Sequence[float | None],
    checks: Sequence[float],
    pi: Sequence[float],
    pi_all: Sequence[float] | None = None,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> AssistedEstimate | None:
    """The mean of `values` over all answers: Hajek's of those judged, moved by λ(mean check of all - of those judged).

    One row an answer: the judge's value or None where it was not asked, the check's score, the chance that the judge
    was asked, and the chance that the answer is in the list at all (`pi_all`, default 1). λ minimises the variance,
    summed from the influence of each answer on both means (the difference estimator of survey sampling, tuned as in
    PPI++ by Angelopoulos, Duchi, Zrnic 2023), so a useless check costs nothing. The interval is `hajek`'s, narrowed by
    the ratio of the standard errors. λ is 0 below 30 judged answers, or 10 of the rarer kind. None without values.
    """
    if not len(values) == len(checks) == len(pi):
        raise ValueError(f"{len(values)} values, {len(checks)} checks, {len(pi)} chances")
    asked = [index for index, value in enumerate(values) if value is not None]
    judged = [float(value) for value in values if value is not None]
    chances = [pi[index] for index in asked]
    plain = hajek(judged, chances, bounds=bounds, confidence=confidence)
    whole = hajek(checks, pi_all if pi_all is not None else [1.0] * len(checks), bounds=bounds)
    if plain is None or whole is None:
        return None
    guessed = [checks[index] for index in asked]
    weights = [1.0 / chance for chance in chances]
    guess, _ = weighted_mean(guessed, weights)
    total = math.fsum(weights)
    pull = [weight / total * (value - plain.estimate) for weight, value in zip(weights, judged, strict=True)]
    away = _shares(checks, whole.estimate, pi_all)
    for place, index in enumerate(asked):
        away[index] -= weights[place] / total * (guessed[place] - guess)
    lam, narrowing = _tuned(pull, [away[index] for index in asked], away, plain.n_eff)
    shift = lam * (whole.estimate - guess)
    # Asked of the moved mean: what moves it is next to independent of it, so that leaving it unmoved biases nothing.
    if not _tells(plain, plain.estimate + shift, bounds):
        lam, shift, narrowing = 0.0, 0.0, 1.0
    return _moved(plain, lam, shift, narrowing, bounds, len(checks))


def _shares(checks: Sequence[float], mean: float, pi_all: Sequence[float] | None) -> list[float]:
    """The influence of each answer on the mean of all checks."""
    weights = [1.0] * len(checks) if pi_all is None else [1.0 / chance for chance in pi_all]
    total = math.fsum(weights)
    return [weight / total * (check - mean) for weight, check in zip(weights, checks, strict=True)]


def _tells(plain: Estimate, mean: float, bounds: tuple[float, float]) -> bool:
    """Whether enough was judged, of either kind, to trust a slope."""
    share = (mean - bounds[0]) / (bounds[1] - bounds[0])
    return plain.n >= _ENOUGH and min(share, 1.0 - share) * plain.n_eff >= _RARE


def _tuned(
    pull: Sequence[float], away_judged: Sequence[float], away: Sequence[float], n_eff: float
) -> tuple[float, float]:
    """λ that minimises Σ(pull + λ·away)², and the ratio of the standard errors; it costs one degree of freedom."""
    spread, alone = (math.fsum(one * one for one in parts) for parts in (away, pull))
    if spread <= 0.0 or alone <= 0.0 or n_eff <= 2.0:
        return 0.0, 1.0
    common = math.fsum(a * b for a, b in zip(pull, away_judged, strict=True))
    left = 1.0 - common * common / spread / alone
    ratio = math.sqrt(max(0.0, left) * (n_eff - 1.0) / (n_eff - 2.0))
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
        n_eff=plain.n_eff, thin=plain.thin, lam=lam, n_all=n_all, narrowing=narrowing,
    )  # fmt: skip
