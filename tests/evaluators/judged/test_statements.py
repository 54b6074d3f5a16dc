"""RAGAS' faithfulness: the supported share of statements."""

import json
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator

CASE = Case(
    query="When was Apple founded?",
    response="Apple was founded in 1976. It sells phones.",
    contexts=["Apple is founded in 1976.", "Google is founded in 1998. Bread is baked.", "Apples are fruit."],
    reference="Apple was founded in 1976 by Steve Jobs.",
)


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


STATEMENTS = '{"statements": ["Apple was founded in 1976.", "Apple sells phones.", "Apple is big."]}'


def verdicts(*values: int) -> str:
    """A structured reply with these verdicts."""
    return json.dumps({"statements": [{"statement": "s", "reason": "r", "verdict": v} for v in values]})


async def test_statement_faithfulness_is_the_supported_share() -> None:
    """Two of three statements are supported; the parts say which."""
    result = await judged("statement_faithfulness", STATEMENTS, verdicts(1, 0, 1))
    assert result.score == pytest.approx(2 / 3)
    assert [part["verdict"] for part in result.parts["statements"]] == [True, False, True]
    assert result.explanation == "not supported: Apple sells phones. (r)"


async def test_fewer_verdicts_than_statements_are_invalid() -> None:
    """Three statements and two verdicts are no score of 1.0."""
    result = await judged("statement_faithfulness", STATEMENTS, verdicts(1, 1), verdicts(1, 1))
    assert (result.status, result.explanation) == ("invalid", "3 statements but 2 verdicts")


async def test_a_final_line_of_verdicts_is_read() -> None:
    """PolyEval's form: a list of statements, then one line of verdicts in order."""
    listed = "1. Apple was founded in 1976.\n2. Apple sells phones."
    result = await judged(
        "statement_faithfulness", listed, "Reasoning.\nFinal verdict for each statement in order: Yes. No."
    )
    assert result.score == 0.5


async def test_a_response_without_statements_is_invalid() -> None:
    """Nothing to check is no perfect score."""
    assert (await judged("statement_faithfulness", '{"statements": []}')).status == "invalid"
