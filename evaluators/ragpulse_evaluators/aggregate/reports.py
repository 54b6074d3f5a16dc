"""Reports over many results: means, rates and counts of one evaluator; the best of several prompt versions."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import overload

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.statistics import Estimate, hajek, mcnemar, mean_ci, wilson


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means, rates and counts of a set of results; a mean leaves out results without the number."""

    evaluator: str
    version: str
    judge: str | None
    n: int
    """Results of every status."""
    counts: Mapping[str, int]
    """Results by status: ok, skipped, invalid, error."""
    mean: float | None
    """Mean native score."""
    mean_ci: Estimate | None
    normalized: Estimate | None
    """Mean of `normalized` with its interval."""
    pass_rate: float | None
    """Share of passing results among those with a verdict."""
    pass_ci: Estimate | None
    """The pass rate with Wilson's interval."""
    parsing_success: float | None
    """Share of readable replies among those that came: ok / (ok + invalid)."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean of each numeric part over the results that have it, also where another part could not be read (GroUSE's
    report); also read as attributes."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """Count of each label."""
    precision: float | None = None
    """With `expected`: of the results that passed, how many should have."""
    recall: float | None = None
    f1: float | None = None
    accuracy: float | None = None

    def __getattr__(self, name: str) -> float:
        parts = self.__dict__.get("parts", {})
        if name in parts:
            return float(parts[name])
        raise AttributeError(f"{type(self).__name__} has no {name!r}; parts are {', '.join(parts) or 'none'}")

    def __str__(self) -> str:
        counts = [f"{status} {count}" for status, count in self.counts.items() if count]
        return f"{self.evaluator}: {_value(self.normalized)}, pass rate {_value(self.pass_ci)} ({', '.join(counts)})"


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    lo, hi = estimate
    return f"{estimate.estimate:.3f}" + (f" [{lo:.3f}, {hi:.3f}]" if lo is not None and hi is not None else "")


@overload
def summarize(results: Sequence[EvaluationResult], *, expected: Sequence[bool] | None = None) -> Summary: ...
@overload
def summarize(
    results: Mapping[str, Sequence[EvaluationResult]], *, expected: Sequence[bool] | None = None
) -> dict[str, Summary]: ...
def summarize(
    results: Sequence[EvaluationResult] | Mapping[str, Sequence[EvaluationResult]],
    *,
    expected: Sequence[bool] | None = None,
) -> Summary | dict[str, Summary]:
    """Sum up results of one evaluator, or each of what `evaluate` returned.

    `expected` says for each result whether it should pass: precision, recall, F1 and accuracy of the verdicts then
    appear. Raises `ConfigurationError` for results of several evaluators or versions in one list: they do not pool.
    """
    if isinstance(results, Mapping):
        return {name: _summary(list(group), expected) for name, group in results.items()}
    return _summary(list(results), expected)


def _summary(results: list[EvaluationResult], expected: Sequence[bool] | None) -> Summary:
    series = {(result.evaluator, result.version, result.judge) for result in results}
    if len(series) > 1:
        raise ConfigurationError(f"results of {len(series)} evaluators or versions do not pool; sum each up alone")
    name, version, judge = series.pop() if series else ("", "", None)
    counts = Counter(result.status for result in results)
    readable = [result for result in results if result.status == "ok"]
    scores = [result.score for result in readable if result.score is not None]
    units = [result.normalized for result in readable if result.normalized is not None]
    verdicts = [result.passing for result in readable if result.passing is not None]
    rate = wilson(sum(verdicts), len(verdicts))
    replies = counts["ok"] + counts["invalid"]
    mean = mean_ci(scores, bounds=_bounds(readable))
    return Summary(
        evaluator=name,
        version=version,
        judge=judge,
        n=len(results),
        counts={status: counts[status] for status in ("ok", "skipped", "invalid", "error")},
        mean=mean.estimate if mean else None,
        mean_ci=mean,
        normalized=hajek(units, [1.0] * len(units)),
        pass_rate=rate.estimate if rate else None,
        pass_ci=rate,
        parsing_success=counts["ok"] / replies if replies else None,
        parts=_part_means(results),
        labels=dict(Counter(result.label for result in results if result.label is not None)),
        **_against(results, expected),
    )


def _bounds(results: Sequence[EvaluationResult]) -> tuple[float, float] | None:
    """The native scale, derived from scores and their 0..1 forms; None where it has no ends or they do not show it.

    The 0..1 form is linear in the score, so two results with different forms determine where 0 and 1 lie.
    """
    pairs = [(result.score, result.normalized) for result in results if result.score is not None]
    points = sorted({(unit, score) for score, unit in pairs if unit is not None})
    if len(points) < len(set(pairs)) or len(points) < 2 or points[0][0] == points[-1][0]:
        return None
    (low, first), (high, last) = points[0], points[-1]
    slope = (last - first) / (high - low)
    if any(abs(first + slope * (unit - low) - score) > 1e-6 * (1 + abs(score)) for unit, score in points):
        return None
    ends = first - slope * low, first + slope * (1.0 - low)
    return min(ends), max(ends)


def _part_means(results: Iterable[EvaluationResult]) -> dict[str, float]:
    by_part: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.parts.items():
            if isinstance(value, int | float):
                by_part.setdefault(name, []).append(float(value))
    return {name: fmean(values) for name, values in by_part.items()}


def _against(results: Sequence[EvaluationResult], expected: Sequence[bool] | None) -> dict[str, float | None]:
    if expected is None:
        return {}
    if len(expected) != len(results):
        raise ConfigurationError(f"{len(results)} results but {len(expected)} expectations")
    pairs = [
        (result.passing, expectation)
        for result, expectation in zip(results, expected, strict=True)
        if result.status == "ok" and result.passing is not None
    ]
    hits = sum(passing and expectation for passing, expectation in pairs)
    passed, positives = (sum(map(bool, flags)) for flags in zip(*pairs, strict=True)) if pairs else (0, 0)
    return {
        "precision": hits / passed if passed else None,
        "recall": hits / positives if positives else None,
        "f1": 2.0 * hits / (passed + positives) if passed + positives else None,
        "accuracy": fmean(passing == expectation for passing, expectation in pairs) if pairs else None,
    }


@dataclass(frozen=True, kw_only=True)
class Game:
    """One comparison: `score` is 1 where the first won, 0 where the second did, 0.5 for a tie."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """The games of two versions against each other; `p` is the sign test's, None where every game was a tie."""

    first: str
    second: str
    wins: int
    losses: int
    ties: int
    p: float | None


@dataclass(frozen=True, kw_only=True)
class Standings:
    """The result of a tournament.

    `strengths` are Bradley-Terry's (1952), ties counting half to each: the chance that a beats b is
    strength[a] / (strength[a] + strength[b]); they sum to 1.
    """

    ranking: tuple[str, ...]
    strengths: Mapping[str, float]
    win_rates: Mapping[str, float]
    pairings: tuple[Pairing, ...]
    unread: int = 0
    """Comparisons that gave no verdict."""


def tournament(games: Sequence[Game], *, unread: int = 0) -> Standings:
    """Rank the versions that played. Raises `ConfigurationError` for a version that plays itself or an odd score."""
    for game in games:
        if game.first == game.second or game.score not in (0.0, 0.5, 1.0):
            raise ConfigurationError(f"a game is won (1), lost (0) or tied (0.5) between two versions, not {game}")
    names = sorted({name for game in games for name in (game.first, game.second)})
    points = _points(games)
    rates = {name: _win_rate(name, names, points) for name in names}
    strengths = _strengths(names, points)
    ranking = tuple(sorted(names, key=lambda name: (-strengths[name], -rates[name], name)))
    pairings = tuple(
        _pairing(a, b, games) for a, b in combinations(names, 2) if points.get((a, b), 0) + points.get((b, a), 0)
    )
    return Standings(ranking=ranking, strengths=strengths, win_rates=rates, pairings=pairings, unread=unread)


Points = dict[tuple[str, str], float]
"""Points of the first name against the second."""


def _points(games: Sequence[Game]) -> Points:
    points: Points = {}
    for game in games:
        for pair, gained in (((game.first, game.second), game.score), ((game.second, game.first), 1.0 - game.score)):
            points[pair] = points.get(pair, 0.0) + gained
    return points


def _win_rate(name: str, names: Sequence[str], points: Points) -> float:
    won = math.fsum(points.get((name, other), 0.0) for other in names)
    lost = math.fsum(points.get((other, name), 0.0) for other in names)
    return won / (won + lost)


def _strengths(names: Sequence[str], points: Points) -> dict[str, float]:
    """Bradley-Terry by minorization-maximization (Hunter 2004).

    Half a tie between all pairs keeps a version that won every game at a finite strength.
    """
    count = len(names)
    matrix = [[0.0 if a == b else points.get((a, b), 0.0) + 0.25 for b in names] for a in names]
    won = [math.fsum(row) for row in matrix]
    strengths = [1.0 / count] * count
    for _ in range(1000):
        updated = [
            won[i]
            / math.fsum((matrix[i][j] + matrix[j][i]) / (strengths[i] + strengths[j]) for j in range(count) if j != i)
            for i in range(count)
        ]
        total = math.fsum(updated)
        previous, strengths = strengths, [value / total for value in updated]
        if max(abs(a - b) for a, b in zip(previous, strengths, strict=True)) < 1e-12:
            break
    return dict(zip(names, strengths, strict=True))


def _pairing(first: str, second: str, games: Sequence[Game]) -> Pairing:
    scores = [game.score for game in games if (game.first, game.second) == (first, second)]
    scores += [1.0 - game.score for game in games if (game.first, game.second) == (second, first)]
    wins, losses, ties = (scores.count(value) for value in (1.0, 0.0, 0.5))
    test = mcnemar(wins, losses)
    return Pairing(first=first, second=second, wins=wins, losses=losses, ties=ties, p=test.p if test else None)


async def play(versions: Mapping[str, Sequence[Case]], evaluator: Evaluator, *, concurrency: int = 8) -> Standings:
    """Let every two versions' answers to the same questions be compared by a pairwise evaluator.

    `versions`: name → cases in one order of questions. Comparisons without a verdict are counted in `unread`.
    """
    if len(versions) < 2 or len({len(cases) for cases in versions.values()}) != 1:
        raise ConfigurationError("a tournament takes at least two versions with as many cases each")
    gate = asyncio.Semaphore(concurrency)

    async def compare(first: str, second: str, index: int) -> Game | None:
        case = versions[first][index].model_copy(update={"second_response": versions[second][index].response})
        async with gate:
            result = await evaluator(case)
        return None if result.score is None else Game(first=first, second=second, score=result.score)

    rounds = [
        compare(first, second, index)
        for first, second in combinations(sorted(versions), 2)
        for index in range(len(versions[first]))
    ]
    played = await asyncio.gather(*rounds)
    games = [game for game in played if game is not None]
    return tournament(games, unread=len(played) - len(games))
