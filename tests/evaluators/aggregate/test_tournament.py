"""Versions against each other."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, evaluator
from ragpulse_evaluators.aggregate import Game, play, tournament
from ragpulse_evaluators.errors import ConfigurationError


def games(first: str, second: str, score: float, count: int) -> list[Game]:
    """The same game some times."""
    return [Game(first=first, second=second, score=score) for _ in range(count)]


def test_tournament_ranks_and_its_strengths_tell_the_chances() -> None:
    """v2 beats v1 three of four times, v3 loses to all: order, chances and the sign test."""
    played = (
        games("v2", "v1", 1.0, 30)
        + games("v1", "v2", 1.0, 10)
        + games("v3", "v1", 0.0, 20)
        + games("v2", "v3", 1.0, 20)
    )
    found = tournament(played)
    assert found.ranking == ("v2", "v1", "v3")
    assert sum(found.strengths.values()) == pytest.approx(1.0)
    chance = found.strengths["v2"] / (found.strengths["v2"] + found.strengths["v1"])
    assert chance == pytest.approx(0.75, abs=0.02)
    first = found.pairings[0]
    assert (first.first, first.second, first.wins, first.losses) == ("v1", "v2", 10, 30)
    assert first.p is not None
    assert first.p < 0.01


def test_tournament_is_symmetric_and_ties_decide_nothing() -> None:
    """Only ties: equal strengths, no p-value; mirrored games mirror nothing else."""
    tied = tournament(games("a", "b", 0.5, 6))
    assert tied.strengths["a"] == pytest.approx(tied.strengths["b"])
    assert tied.pairings[0].p is None
    assert tournament(games("a", "b", 1.0, 3)).strengths == pytest.approx(tournament(games("b", "a", 0.0, 3)).strengths)
    with pytest.raises(ConfigurationError, match="between two versions"):
        tournament(games("a", "a", 1.0, 1))


async def test_play_compares_every_two_versions_and_counts_the_unread() -> None:
    """A rule that prefers the longer answer, and cannot tell equal ones."""

    @evaluator
    def longer(response: str, second_response: str) -> float | None:
        return None if len(response) == len(second_response) else float(len(response) > len(second_response))

    answers = {"short": ["a", "b"], "long": ["aaa", "bbb"], "also short": ["x", "y"]}
    versions = {name: [Case(query="q", response=text) for text in texts] for name, texts in answers.items()}
    found = await play(versions, longer)
    assert found.ranking[0] == "long"
    assert found.unread == 2
