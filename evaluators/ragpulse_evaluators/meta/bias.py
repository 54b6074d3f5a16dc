"""Biases of a judge: the position of an answer, its length, and chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.statistics import krippendorff_alpha, mcnemar, spearman, wilson

_VOTES = {"A": 1.0, "TIE": 0.5, "B": 0.0}


@dataclass(frozen=True, kw_only=True)
class PositionBias:
    """Verdicts of comparisons made in both orders."""

    n: int
    consistent: float
    """Share of comparisons whose verdict did not depend on the order."""
    first_preferred: int
    """Comparisons in which whatever stood first won."""
    second_preferred: int
    p: float | None
    """Of a sign test that both positions are preferred equally often; None where the order never mattered."""


@dataclass(frozen=True, kw_only=True)
class LengthBias:
    """Rank correlations with the length of the answer; None where undefined."""

    n: int
    with_score: float | None
    with_error: float | None
    """Of judge minus people: length that people do not reward. None without people's scores."""


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """The same cases judged several times."""

    n: int
    rounds: int
    flip_rate: float | None
    """Chance that two rounds disagree on a case's verdict."""
    flip_ci: tuple[float, float] | None
    """Wilson's interval, cases as trials."""
    spread: float | None
    """Mean over cases of the standard deviation between rounds, on the score's own scale."""
    alpha: float | None
    """Krippendorff's alpha between rounds."""


def position_bias(
    results: Sequence[EvaluationResult] | Sequence[tuple[float, float]],
) -> PositionBias | None:
    """Measure the influence of the position on a pairwise judge.

    Takes `pairwise` results made with `consensus`, or pairs of votes for one and the same answer, shown first and
    shown second: 1 it won, 0.5 tie, 0 it lost. None where nothing was judged in both orders.
    """
    votes = [pair for item in results if (pair := _orders(item)) is not None]
    if not votes:
        return None
    first, second = sum(a > b for a, b in votes), sum(a < b for a, b in votes)
    test = mcnemar(first, second)
    return PositionBias(
        n=len(votes),
        consistent=sum(a == b for a, b in votes) / len(votes),
        first_preferred=first,
        second_preferred=second,
        p=test.p if test else None,
    )


def _orders(item: EvaluationResult | tuple[float, float]) -> tuple[float, float] | None:
    """Votes for the answer when shown first and when shown second."""
    if not isinstance(item, EvaluationResult):
        return item
    first, flipped = item.parts.get("first"), item.parts.get("flipped")
    return (_VOTES[first], _VOTES[flipped]) if first in _VOTES and flipped in _VOTES else None


def length_bias(scores: Sequence[float], lengths: Sequence[float], human: Sequence[float] | None = None) -> LengthBias:
    """Correlate length with scores, and (with people's scores) with the excess over people's."""
    error = None
    if human is not None:
        error = spearman([score - label for score, label in zip(scores, human, strict=True)], lengths)
    return LengthBias(n=len(scores), with_score=spearman(scores, lengths), with_error=error)


def self_consistency(rounds: Sequence[Sequence[float | bool | None]], *, threshold: float | None = None) -> Consistency:
    """Measure a judge's agreement with itself: `rounds[round][case]`, None where it gave no score.

    Verdicts are scores cut at `threshold`; without one any difference in score is a flip.
    """
    cases = [
        [float(score) for score in scores_of_case if score is not None] for scores_of_case in zip(*rounds, strict=True)
    ]
    cases = [scores for scores in cases if len(scores) > 1]
    flips = [_flips(scores, threshold) for scores in cases]
    rate = fmean(flips) if flips else None
    interval = wilson(math.fsum(flips), len(flips))
    return Consistency(
        n=len(cases),
        rounds=len(rounds),
        flip_rate=rate,
        flip_ci=(interval.lo or 0.0, interval.hi or 0.0) if interval else None,
        spread=fmean(map(stdev, cases)) if cases else None,
        alpha=krippendorff_alpha([[None if s is None else float(s) for s in scores] for scores in rounds]),
    )


def _flips(scores: Sequence[float], threshold: float | None) -> float:
    verdicts = [score if threshold is None else score >= threshold for score in scores]
    pairs = list(combinations(verdicts, 2))
    return sum(a != b for a, b in pairs) / len(pairs)
