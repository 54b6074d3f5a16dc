"""Position bias, length bias and self-consistency of judges whose faults are known."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.meta import (
    length_bias,
    position_bias,
    self_consistency,
)


def test_position_bias_is_seen_in_both_orders() -> None:
    """Eight of ten follow the first position; results of `pairwise` are read as they are."""
    swayed = position_bias([(1.0, 0.0)] * 8 + [(1.0, 1.0)] * 2)
    assert swayed is not None
    assert (swayed.consistent, swayed.first_preferred, swayed.second_preferred) == (0.2, 8, 0)
    assert swayed.p == pytest.approx(2 / 2**8)
    pairwise = EvaluationResult(evaluator="pairwise", parts={"first": "A", "flipped": "A", "position_bias": False})
    steady = position_bias([pairwise])
    assert steady is not None
    assert (steady.consistent, steady.p) == (1.0, None)
    assert position_bias([]) is None


async def test_position_bias_of_a_judge_that_always_takes_the_first() -> None:
    """Through the pairwise evaluator itself."""
    made = get_evaluator("pairwise", judge=ScriptedJudge(["1\nfirst"] * 4))
    results = [await made(Case(query="q", response=text, second_response="other")) for text in ("a", "b")]
    found = position_bias(results)
    assert found is not None
    assert (found.n, found.consistent, found.first_preferred) == (2, 0.0, 2)


def test_length_bias_is_what_people_do_not_reward() -> None:
    """Scores rise with length though people's do not."""
    lengths, human = list(range(20)), [1.0, 2.0] * 10
    found = length_bias([h + 0.1 * size for h, size in zip(human, lengths, strict=True)], lengths, human)
    assert found.with_error == pytest.approx(1.0)
    assert length_bias([1.0, 1.0], [1, 2]).with_score is None


def test_self_consistency_counts_flips() -> None:
    """One of four cases flips in one of three rounds: two of its three pairs disagree."""
    found = self_consistency([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, None]])
    assert found.flip_rate == pytest.approx((2 / 3) / 4)
    assert found.n == 4
    assert found.alpha is not None
    assert self_consistency([[0.6, 0.4], [0.9, 0.1]], threshold=0.5).flip_rate == 0.0
    assert self_consistency([[1.0]]).flip_rate is None
