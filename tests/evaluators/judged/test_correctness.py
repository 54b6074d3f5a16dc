"""Marks from 1 to 5 against a reference (LlamaIndex)."""

from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


@pytest.mark.parametrize(
    ("reply", "score", "passing"),
    [
        ("4.0\nSame facts, less concise.", 4.0, True),
        ("4", 4.0, True),
        ("3.5\nA mistake.", 3.5, False),
        ("Score: 5", 5.0, True),
        ("**2**/5\nPoor.", 2.0, False),
        ('{"reason": "fine", "score": 4.5}', 4.5, True),
        ("Feedback: good, but long. [RESULT] 4", 4.0, True),
    ],
)
async def test_correctness_reads_marks_and_passes_from_four(reply: str, score: float, passing: bool) -> None:
    """The mark keeps its native scale 1..5; threshold 4.0 is inclusive."""
    result = await judged("correctness", reply)
    assert (result.score, result.passing, result.normalized) == (score, passing, (score - 1) / 4)


@pytest.mark.parametrize(
    "reply", ["6", "0", "nan", "good", "3 mistakes", "8/10", "80%", '{"score": 6}', '{"score": true}', ""]
)
async def test_correctness_refuses_what_is_no_mark(reply: str) -> None:
    """A mark outside 1..5 or none at all is invalid after the repair turn, never a score."""
    result = await judged("correctness", reply, reply)
    assert (result.status, result.score, result.normalized, len(result.calls)) == ("invalid", None, None, 2)


@pytest.mark.parametrize(
    ("reply", "explanation"),
    [
        ("4\nSame facts.", "Same facts."),
        ("Same facts,\nless concise.\n\n**Score:** 4", "Same facts,\nless concise."),
        ("Score: 4", "Score: 4"),
    ],
)
async def test_the_explanation_is_what_stands_beside_the_mark(reply: str, explanation: str) -> None:
    """A mark on the first line or, with its label, on the last is no part of the reasoning."""
    assert (await judged("correctness", reply)).explanation == explanation
