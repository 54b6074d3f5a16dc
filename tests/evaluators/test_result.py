"""Results: aliases of the seeds, and no number that is none."""

import math

import pytest

from ragpulse_evaluators import Case, EvaluationResult, JudgeCall


def test_seed_names_read_the_same_fields() -> None:
    """feedback, reasoning, grade, pass_eval, responses, unit and the case's fields are read-only aliases."""
    call = JudgeCall(prompt="p", completion="c", elapsed_s=0.5)
    case = Case(query="q", response="r", contexts=["c"])
    result = EvaluationResult(
        explanation="why", label="B", passing=True, calls=(call,), normalized=0.5, case=case, score=1.0
    )
    assert (result.feedback, result.reasoning, result.grade) == ("why", "why", "B")
    assert (result.pass_eval, result.responses, result.unit) == (True, (call,), 0.5)
    assert (result.query, result.response, result.contexts) == ("q", "r", case.contexts)
    assert result.responses[0].elapsed_time == 0.5


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_makes_the_result_invalid(number: float) -> None:
    """NaN and infinities never reach storage, whoever made the result."""
    for result in (EvaluationResult(score=number), EvaluationResult(score=1.0, normalized=number)):
        assert (result.status, result.score, result.normalized) == ("invalid", None, None)


def test_the_case_stays_out_of_the_serialised_result() -> None:
    """A stored result does not repeat the texts of its case."""
    assert "case" not in EvaluationResult(case=Case(query="q")).model_dump()


@pytest.mark.parametrize(("costs", "total"), [([], 0.0), ([0.5, 0.25], 0.75), ([0.5, None], None)])
def test_a_results_cost_is_the_sum_of_its_calls_and_unknown_where_one_is(
    costs: list[float | None], total: float | None
) -> None:
    """The ledger, the score's row and a client's budget read it here."""
    assert EvaluationResult(calls=tuple(JudgeCall(cost_usd=cost) for cost in costs)).cost_usd == total
