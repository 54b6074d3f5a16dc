"""A judge's mean of a sample, made more precise by a cheap check that scored every answer."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ragpulse_evaluators.statistics.intervals import hajek, influence
from ragpulse_evaluators.statistics.weighted import Estimate

ENOUGH_JUDGED = 30
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


@dataclass(frozen=True, slots=True)
class Pulls:
    """Sums over users of what their answers pull: the judge's mean, and the check's of all less that of those asked."""

    values: float
    """The squares of the pulls on the judge's mean, ..."""
    checks: float
    """... of those on the difference of the check's means, ..."""
    common: float
    """... and the products of both."""
    shift: float
    """The check's mean of all less that of those asked."""
    n_all: int
    """The answers that the check scored."""

    def narrow(self, plain: Estimate, bounds: tuple[float, float] = (0.0, 1.0)) -> AssistedEstimate:
        """Return the judge's mean, moved and narrowed as far as the check foresees the judge."""
        lam, narrowing = self._tuned(min(plain.n_eff, plain.clusters))
        # The moved mean decides: the move is nearly independent of it, so that leaving it out biases nothing.
        if not _informative(plain, plain.estimate + lam * self.shift, bounds):
            lam, narrowing = 0.0, 1.0
        moved = plain.estimate + lam * self.shift

        def cut(value: float) -> float:
            return min(bounds[1], max(bounds[0], value))

        lo = None if plain.lo is None else cut(moved - narrowing * (plain.estimate - plain.lo))
        hi = None if plain.hi is None else cut(moved + narrowing * (plain.hi - plain.estimate))
        return AssistedEstimate(
            estimate=cut(moved), se=None if plain.se is None else plain.se * narrowing, lo=lo, hi=hi, n=plain.n,
            n_eff=plain.n_eff, thin=plain.thin, clusters=plain.clusters,
            reason=plain.reason, lam=lam, n_all=self.n_all, narrowing=narrowing,
        )  # fmt: skip

    def _tuned(self, n_eff: float) -> tuple[float, float]:
        """λ that minimises Σ(pull + λ·away)², and the ratio of the standard errors; it costs a degree of freedom."""
        if self.checks <= 0.0 or self.values <= 0.0 or n_eff <= 2.0:
            return 0.0, 1.0
        unexplained = 1.0 - self.common * self.common / self.checks / self.values
        ratio = math.sqrt(max(0.0, unexplained) * (n_eff - 1.0) / (n_eff - 2.0))
        return (-self.common / self.checks, ratio) if ratio < 1.0 else (0.0, 1.0)


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
    return pulls_of(values, checks, pi, pi_all, drawn=drawn, clusters=clusters).narrow(plain, bounds)


def pulls_of(
    values: Sequence[float | None],
    checks: Sequence[float | None],
    pi: Sequence[float],
    pi_all: Sequence[float] | None = None,
    *,
    drawn: Sequence[bool] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Pulls:
    """Add up what `assisted_mean` narrows by; some value must be there."""
    names: Sequence[Hashable] = range(len(values)) if clusters is None else clusters
    scores = [check for check in checks if check is not None]
    mean_check = math.fsum(scores) / len(scores) if scores else 0.0
    guesses = [mean_check if check is None else check for check in checks]
    judged_weights = _weights(pi, [value is not None for value in values])
    asked_weights = judged_weights if drawn is None else _weights(pi, drawn)
    value_pulls, _ = influence([value or 0.0 for value in values], judged_weights)
    pulls_of_all, mean_of_all = influence(guesses, [1.0] * len(guesses) if pi_all is None else _weights(pi_all))
    pulls_of_asked, mean_of_asked = influence(guesses, asked_weights)
    check_pulls = [a - b for a, b in zip(pulls_of_all, pulls_of_asked, strict=True)]
    a, b = _by_cluster(value_pulls, names), _by_cluster(check_pulls, names)
    values_sq, checks_sq, common = (math.fsum(map(operator.mul, *pair)) for pair in ((a, a), (b, b), (a, b)))
    return Pulls(values_sq, checks_sq, common, mean_of_all - mean_of_asked, len(scores))


def _weights(pi: Sequence[float], among: Sequence[bool] | None = None) -> list[float]:
    """1/π, and 0 for those not among them."""
    return [1.0 / chance if included else 0.0 for chance, included in zip(pi, among or [True] * len(pi), strict=True)]


def _by_cluster(pulls: Sequence[float], names: Sequence[Hashable]) -> list[float]:
    """The sum of the pulls of each user's answers."""
    sums: dict[Hashable, float] = {}
    for pull, name in zip(pulls, names, strict=True):
        sums[name] = sums.get(name, 0.0) + pull
    return list(sums.values())


def _informative(plain: Estimate, mean: float, bounds: tuple[float, float]) -> bool:
    """Whether there are enough judged answers of either kind to trust a slope."""
    share = (mean - bounds[0]) / (bounds[1] - bounds[0])
    return plain.n >= ENOUGH_JUDGED and min(share, 1.0 - share) * plain.n_eff >= _RARE
