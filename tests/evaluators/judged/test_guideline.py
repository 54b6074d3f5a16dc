"""Guidelines in plain words (LlamaIndex)."""

from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


async def test_guideline_takes_feedback_and_passing() -> None:
    """The structured reply of LlamaIndex's guideline evaluator is read."""
    result = await judged("guideline", '{"passing": false, "feedback": "Name the day."}', guidelines="Name the day.")
    assert (result.score, result.passing, result.feedback) == (0.0, False, "Name the day.")


async def test_several_guidelines_must_all_be_met() -> None:
    """One call a guideline; the broken one is named first."""
    result = await judged("guideline", "YES\nok", "NO\nrude", guidelines=["Be short.", "Be polite."])
    assert (result.passing, len(result.calls)) == (False, 2)
    assert (result.explanation or "").startswith("Be polite.: rude")
    assert result.parts["Be short."]["passing"] is True


@pytest.mark.parametrize(
    ("replies", "status", "passing"),
    [
        (["NO", "n/a"], "ok", False),
        (["n/a", "NO"], "ok", False),
        (["NO", "hm", "hm"], "ok", False),
        (["hm", "NO", "hm"], "ok", False),
        (["YES", "hm", "hm"], "invalid", None),
        (["YES", "n/a"], "skipped", None),
    ],
)
async def test_a_guideline_that_is_surely_broken_decides(replies: list[str], status: str, passing: bool | None) -> None:
    """Whatever the others are; without one, every verdict is needed."""
    result = await judged("guideline", *replies, guidelines=["Be short.", "Be polite."])
    assert (result.status, result.passing) == (status, passing)


def test_an_empty_guideline_is_refused() -> None:
    """A guideline without words is a mistake of configuration."""
    with pytest.raises(ConfigurationError):
        get_evaluator("guideline", guidelines=" ")
