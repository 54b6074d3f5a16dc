"""The conversation with a judge: one repair of an unreadable reply."""

from typing import Any

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


async def test_a_repair_turn_shows_the_problem_and_can_succeed() -> None:
    """An unreadable reply is answered with the problem and the form; the second reply counts, both calls are kept."""
    result = await judged("correctness", "it is good", "4.5")
    assert (result.status, result.score, len(result.calls)) == ("ok", 4.5, 2)
    assert "it is good" in result.calls[1].prompt
