"""Which of several prompt versions answers best, from pairwise comparisons."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.statistics import mcnemar


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


def _points(games: Sequence[Game]) -> dict[tuple[str, str], float]:
    """Points of the first name against the second."""
    points: dict[tuple[str, str], float] = {}
    for game in games:
        for pair, gained in (((game.first, game.second), game.score), ((game.second, game.first), 1.0 - game.score)):
            points[pair] = points.get(pair, 0.0) + gained
    return points


def _win_rate(name: str, names: Sequence[str], points: Mapping[tuple[str, str], float]) -> float:
    won = math.fsum(points.get((name, other), 0.0) for other in names)
    lost = math.fsum(points.get((other, name), 0.0) for other in names)
    return won / (won + lost)


def _strengths(names: Sequence[str], points: Mapping[tuple[str, str], float]) -> dict[str, float]:
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
