"""Evaluators over a whole session."""

import json
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator

SESSION = Case(
    history=[("I am allergic to nuts.", "Noted."), {"query": "Which cakes do you have?", "response": "Almond cake."}],
    query="Another one?",
    response="Apple cake, it has no nuts.",
)


async def judged(name: str, *replies: str, case: Case = SESSION, **params: Any) -> EvaluationResult:
    """One session through one evaluator."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


def verdicts(*turns: tuple[int, str]) -> str:
    """A reply with these verdicts."""
    return json.dumps({"turns": [{"turn": turn, "reason": f"r{turn}", "verdict": verdict} for turn, verdict in turns]})


@pytest.mark.parametrize("name", ["conversation_relevancy", "knowledge_retention"])
async def test_a_session_scores_the_share_of_its_turns(name: str) -> None:
    """Verdicts are matched by turn, in any order; the explanation quotes what failed."""
    result = await judged(name, verdicts((3, "YES"), (1, "YES"), (2, "NO")))
    assert (result.score, result.explanation) == (pytest.approx(2 / 3), "[2] r2")
    prompt = result.calls[0].prompt
    assert prompt.index("allergic to nuts") < prompt.index("Almond cake.") < prompt.index("Apple cake,")
    assert "There are 3 turns." in prompt


@pytest.mark.parametrize("name", ["conversation_relevancy", "knowledge_retention"])
async def test_a_turn_without_a_verdict_is_invalid_and_one_turn_is_no_session(name: str) -> None:
    """No verdict is guessed; a case without history is skipped."""
    short = verdicts((1, "YES"), (2, "NO"))
    result = await judged(name, short, short)
    assert (result.status, result.explanation) == ("invalid", "no verdict on turn 3 of 3")
    alone = await judged(name, case=Case(query="q", response="r"))
    assert (alone.status, alone.explanation) == ("skipped", "missing: history")
