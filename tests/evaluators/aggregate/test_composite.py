"""Several metrics as one weighted number."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, ScriptedJudge, evaluate_sync, evaluator, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, JudgeRejected


@evaluator
def correctness_of(response: str) -> float:
    """A stand-in that is always 0.9."""
    return 0.9


@evaluator
def relevance_of(response: str) -> float:
    """A stand-in that is always 0.7."""
    return 0.7


@evaluator
def conciseness_of(response: str) -> float:
    """A stand-in that is always 0.8."""
    return 0.8


PARTS = {"correctness": correctness_of, "relevance": relevance_of, "conciseness": conciseness_of}


WEIGHTS = {"correctness": 0.5, "relevance": 0.3, "conciseness": 0.2}


def test_composite_reproduces_the_seed() -> None:
    """S3: .5·.9 + .3·.7 + .2·.8 = .82."""
    made = get_evaluator("composite", weights=WEIGHTS, evaluators=PARTS)
    found = evaluate_sync([Case(response="x")], made)["composite"][0]
    assert found.score == pytest.approx(0.82)
    assert found.parts == pytest.approx({"correctness": 0.9, "relevance": 0.7, "conciseness": 0.8})


def test_a_missing_part_makes_the_composite_invalid() -> None:
    """Not 0, and not the mean of what is left."""
    params = {"weights": {"exact_match": 1, "is_json": 1}}
    found = evaluate_sync([Case(response="{}")], ["composite"], params={"composite": params})["composite"][0]
    assert (found.status, found.score) == ("invalid", None)
    assert "exact_match (missing: reference)" in (found.explanation or "")


@pytest.mark.parametrize("weights", [{}, {"is_json": -1.0}, {"is_json": 0.0}])
def test_composite_weights_are_checked(weights: dict[str, float]) -> None:
    """When it is configured."""
    with pytest.raises(ConfigurationError, match="composite needs"):
        get_evaluator("composite", weights=weights)


@pytest.mark.parametrize(("failure", "retriable"), [(JudgeError("down"), True), (JudgeRejected("no key"), False)])
async def test_a_part_that_fails_for_good_fails_the_composite_for_good(failure: JudgeError, retriable: bool) -> None:
    """An outage of a part may pass; a rejected key does not."""
    composite = get_evaluator("composite", weights={"faithfulness": 1.0}, judge=ScriptedJudge([failure]))
    result = await composite(Case(response="r", contexts=["c"]))
    assert (result.status, result.retriable) == ("error", retriable)
