"""Which topics are surely worse: rates of small topics are drawn to the rate of all, and all tests are joint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_collector.analysis.explain import p_of_shares
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of one topic, and the number of independent answers that are as informative."""

    mean: float
    trials: float
    proves: bool = True
    """False where a few users gave nearly all answers: then it proves nothing."""

    @classmethod
    def of(cls, moments: Moments | None, *, failing: bool = False) -> Rate | None:
        """Return the rate of a mean from 0 to 1, of one minus it where it counts what is good."""
        if moments is None:
            return None
        trials = moments.trials()
        mean = min(1.0, max(0.0, moments.mean))
        return cls(1.0 - mean if failing else mean, trials or moments.w**2 / moments.cluster_ww, trials is not None)


def shrunk(rates: Sequence[Rate | None]) -> list[float | None]:
    """Return each rate, drawn to that of all as far as its size explains the distance (empirical Bayes).

    The variance between topics is DerSimonian and Laird's: with none, all topics have the same rate.
    """
    known = [rate for rate in rates if rate is not None]
    weight = sum(rate.trials for rate in known)
    if not weight:
        return [None] * len(rates)
    centre = sum(rate.trials * rate.mean for rate in known) / weight
    noise = max(centre * (1.0 - centre), 1e-9)
    excess = sum(rate.trials * (rate.mean - centre) ** 2 for rate in known) / noise - (len(known) - 1)
    spread = weight - sum(rate.trials**2 for rate in known) / weight
    between = max(0.0, excess) * noise / spread if spread > 0.0 else 0.0

    def drawn(rate: Rate) -> float:
        return centre + (rate.mean - centre) * between / (between + noise / rate.trials)

    return [None if rate is None else drawn(rate) for rate in rates]


def p_worse(rates: Sequence[Rate | None]) -> list[float]:
    """Return the p-value of each rate being higher than that of the others together; 1 where it is not."""
    weight = sum(rate.trials for rate in rates if rate)
    events = sum(rate.trials * rate.mean for rate in rates if rate)
    return [_p(rate, weight, events) for rate in rates]


def _p(rate: Rate | None, weight: float, events: float) -> float:
    if rate is None or not rate.proves or weight - rate.trials < 1.0:
        return 1.0
    rest, own = weight - rate.trials, rate.trials * rate.mean
    if rate.mean <= (events - own) / rest:
        return 1.0
    return p_of_shares(round(own), round(rate.trials), round(events - own), round(rest))


def adjusted(*tests: Sequence[float]) -> list[float]:
    """Return the p-values of topics of which each had several tests: the best by Bonferroni, then the joint one."""
    return benjamini_hochberg([min(1.0, len(tests) * min(of_topic)) for of_topic in zip(*tests, strict=True)])


def p_changed(now: Moments, before: Moments | None) -> float:
    """Return the p-value of a share that was another one before; 1 where too few users tell."""
    trials, trials_before = now.trials(), before.trials() if before else None
    if trials is None or trials_before is None or before is None:
        return 1.0
    counts = round(now.mean * trials), round(trials), round(before.mean * trials_before), round(trials_before)
    return p_of_shares(*counts)
