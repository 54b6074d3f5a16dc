"""A judge against people: how far its scores agree with theirs, and whether the judge can be trusted.

Biases of a judge need no people: the position of an answer, its length, and chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, Literal

from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.statistics import (
    Estimate,
    bootstrap_ci,
    cohen_kappa,
    kendall,
    krippendorff_alpha,
    mcnemar,
    pearson,
    roc_auc,
    spearman,
    wilson,
)

Score = float | bool | None | EvaluationResult
Scores = Sequence[float]
Verdict = Literal["green", "amber", "red"]

_ENOUGH = 30
_RED, _GREEN = 0.2, 0.6
_CORRELATIONS: Mapping[str, Callable[[Scores, Scores], float | None]] = {
    "pearson": pearson,
    "spearman": spearman,
    "kendall": kendall,
}


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """The result of `calibrate`. Undefined numbers, such as a correlation with a constant judge, are None."""

    n: int
    """Pairs in which both gave a score."""
    n_missing: int
    """Pairs left out because one gave none."""
    pearson: float | None
    spearman: float | None
    kendall: float | None
    by_group: Mapping[str, float | None]
    """Mean of each correlation within groups (one question, one system), over the groups where it is defined."""
    n_groups: int
    n_groups_undefined: int
    kappa: float | None
    """Cohen's kappa of passes and fails, or of whole grades with quadratic weights."""
    kappa_ci: Estimate | None
    alpha: float | None
    """Krippendorff's, at interval level."""
    auc: float | None
    """Where people said yes or no: does the judge rank their yes above their no?"""
    sensitivity: float | None
    """Of what people passed, the share the judge passed (TPR)."""
    specificity: float | None
    """Of what people failed, the share the judge failed (TNR)."""
    bias: float | None
    """Mean of judge minus people: positive is too kind."""
    absolute_error: float | None
    constant: bool
    """True where the judge gave everything one and the same score."""
    verdict: Verdict
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        values = {"kappa": self.kappa, "pearson": self.pearson, "spearman": self.spearman, "kendall": self.kendall}
        defined = ", ".join(f"{name} {value:.3f}" for name, value in values.items() if value is not None)
        return f"{self.verdict}: n {self.n}, {defined or 'nothing defined'}. " + " ".join(self.reasons)


def calibrate(
    evaluator_scores: Sequence[Score],
    human_scores: Sequence[float | bool | None],
    groups: Sequence[Hashable] | None = None,
    *,
    threshold: float = 0.5,
    seed: int = 0,
) -> CalibrationReport:
    """Compare an evaluator's scores with people's, item by item.

    Where people said yes or no, the evaluator's scores are cut at `threshold` for kappa, sensitivity and specificity;
    where both gave whole grades, kappa is quadratically weighted over the whole scale. A result or None stands for a
    score; pairs without both are counted, not guessed. `groups` adds correlations within each group. The verdict is
    red for a constant judge or agreement near chance, green only for kappa (else the rank correlation) >= 0.6 with at
    least 30 labels. ValueError for unequal lengths.
    """
    if len(evaluator_scores) != len(human_scores) or (groups is not None and len(groups) != len(human_scores)):
        raise ValueError("calibrate needs one human score (and one group) for each evaluator score")
    group_names: Sequence[Hashable] = groups if groups is not None else [0] * len(human_scores)
    rows = [
        (score, label, group)
        for score, label, group in zip(
            map(_plain, evaluator_scores), map(_plain, human_scores), group_names, strict=True
        )
        if score is not None and label is not None
    ]
    judge, human = [row[0] for row in rows], [row[1] for row in rows]
    binary = bool(rows) and set(human) <= {0.0, 1.0}
    kappa_of = _kappa_of(judge, human, threshold)
    kappa = kappa_of(judge, human) if kappa_of and rows else None
    within = _within_groups(rows) if groups is not None else {}
    defined = [value for value in within.values() if value["spearman"] is not None]
    constant = len(rows) > 1 and len(set(judge)) == 1
    positive = [value >= threshold for value in judge]
    report: dict[str, Any] = {name: measure(judge, human) for name, measure in _CORRELATIONS.items()}
    verdict, reasons = _verdict(kappa, report["spearman"], len(rows), constant=constant)
    return CalibrationReport(
        n=len(rows),
        n_missing=len(human_scores) - len(rows),
        **report,
        by_group={name: _mean([correlations[name] for correlations in within.values()]) for name in _CORRELATIONS},
        n_groups=len(within),
        n_groups_undefined=len(within) - len(defined),
        kappa=kappa,
        kappa_ci=_kappa_interval(judge, human, kappa_of, seed) if kappa_of and kappa is not None else None,
        alpha=krippendorff_alpha([judge, human]) if rows else None,
        auc=roc_auc(judge, [value == 1.0 for value in human]) if binary else None,
        sensitivity=_mean([p for p, h in zip(positive, human, strict=True) if h == 1.0]) if binary else None,
        specificity=_mean([not p for p, h in zip(positive, human, strict=True) if h == 0.0]) if binary else None,
        bias=_mean([j - h for j, h, _ in rows]),
        absolute_error=_mean([abs(j - h) for j, h, _ in rows]),
        constant=constant,
        verdict=verdict,
        reasons=reasons,
    )


def _plain(score: Score) -> float | None:
    value = score.score if isinstance(score, EvaluationResult) else score
    return None if value is None or not math.isfinite(value) else float(value)


def _kappa_of(judge: Scores, human: Scores, threshold: float) -> Callable[[Scores, Scores], float | None] | None:
    """The kappa that fits: of passes and fails, of whole grades, or none for free numbers."""
    if set(human) <= {0.0, 1.0}:
        return lambda a, b: cohen_kappa([value >= threshold for value in a], [value == 1.0 for value in b])
    if all(value.is_integer() for value in (*judge, *human)):
        low, high = int(min(*judge, *human)), int(max(*judge, *human))
        if high - low <= 100:
            return partial(cohen_kappa, weights="quadratic", labels=[float(grade) for grade in range(low, high + 1)])
    return None


def _kappa_interval(judge: Scores, human: Scores, agreement: Callable[..., float | None], seed: int) -> Estimate | None:
    def measure(rows: list[tuple[float, float]]) -> float:
        kappa = agreement([row[0] for row in rows], [row[1] for row in rows])
        return math.nan if kappa is None else kappa

    rows = list(zip(judge, human, strict=True))
    # Kappa costs time linear in n: fewer resamples for large n keep it well under a second.
    return bootstrap_ci(rows, seed=seed, statistic=measure, resamples=max(200, min(1000, 200_000 // len(rows))))


def _within_groups(rows: Sequence[tuple[float, float, Hashable]]) -> dict[Hashable, dict[str, float | None]]:
    members: dict[Hashable, list[tuple[float, float]]] = {}
    for score, label, group in rows:
        members.setdefault(group, []).append((score, label))
    return {
        group: {name: measure(*map(list, zip(*pairs, strict=True))) for name, measure in _CORRELATIONS.items()}
        for group, pairs in members.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def _verdict(kappa: float | None, rank: float | None, n: int, *, constant: bool) -> tuple[Verdict, tuple[str, ...]]:
    reasons = []
    if constant:
        reasons.append("The judge gives everything the same score.")
    agreement, name = (kappa, "kappa") if kappa is not None else (rank, "rank correlation")
    if agreement is None:
        reasons.append("Agreement is undefined: one side never varies.")
    elif agreement < _GREEN:
        reasons.append(f"Agreement ({name} {agreement:.2f}) is {'near chance' if agreement < _RED else 'moderate'}.")
    if n < _ENOUGH:
        reasons.append(f"Not enough labels: {n} of {_ENOUGH}.")
    if constant or agreement is None or agreement < _RED:
        return "red", tuple(reasons)
    return ("amber" if reasons else "green"), tuple(reasons)


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


def length_bias(scores: Scores, lengths: Scores, human: Scores | None = None) -> LengthBias:
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


def _flips(scores: Scores, threshold: float | None) -> float:
    verdicts = [score if threshold is None else score >= threshold for score in scores]
    pairs = list(combinations(verdicts, 2))
    return sum(a != b for a, b in pairs) / len(pairs)
