"""Yes or no, refined over as many calls as the contexts need (LlamaIndex)."""

from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.judged.faithfulness import pack

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("YES", 1.0),
        ("NO", 0.0),
        ("Yes, it says so.", 1.0),
        ("No, yesterday it was different", 0.0),
        ("**NO**\nNothing says so.", 0.0),
        ("Let me see. The text is clear.\nAnswer: YES", 1.0),
        ('{"reason": "stated", "verdict": "YES"}', 1.0),
        ('```json\n{"reason": "", "verdict": false}\n```', 0.0),
    ],
)
async def test_faithfulness_reads_a_verdict(reply: str, score: float) -> None:
    """YES is 1.0 and passes, NO is 0.0 and fails, in every form judges write them."""
    result = await judged("faithfulness", reply)
    assert (result.status, result.score, result.normalized, result.passing) == ("ok", score, score, score == 1.0)


async def test_faithfulness_shows_response_and_contexts_but_not_the_query() -> None:
    """Information is the response; the query plays no part in LlamaIndex's faithfulness."""
    judge = ScriptedJudge(["YES"])
    await get_evaluator("faithfulness", judge=judge)(CASE)
    assert "At nine." in judge.asked[0]
    assert "It opens at nine." in judge.asked[0]
    assert "When does it open?" not in judge.asked[0]


@pytest.mark.parametrize("name", ["faithfulness", "relevancy"])
async def test_the_last_reply_of_a_refinement_decides(name: str) -> None:
    """YES, NO, NO over three pieces of context is a fail in three calls."""
    case = CASE.model_copy(update={"contexts": Case(contexts=["a " * 100, "b " * 100, "c " * 100]).contexts})
    result = await judged(name, "YES", "NO", "NO", case=case, context_window=60)
    assert (result.score, len(result.calls)) == (0.0, 3)
    assert "Answer so far: YES" in result.calls[1].prompt
    assert "Answer so far: NO" in result.calls[2].prompt


async def test_stopping_at_the_first_yes_saves_calls() -> None:
    """With on_yes="stop" a YES ends the refinement."""
    case = Case(response="r", contexts=["a " * 100, "b " * 100])
    result = await judged("faithfulness", "YES", case=case, context_window=60, on_yes="stop")
    assert (result.score, len(result.calls)) == (1.0, 1)


def test_contexts_are_packed_into_as_few_pieces_as_fit() -> None:
    """Short texts share a piece, a long one is cut, order and content stay."""
    pieces = pack(["aaaa " * 10, "bbbb " * 10, "cccc " * 40], 30)
    assert "".join(pieces).replace("\n", "").replace(" ", "") == "aaaa" * 10 + "bbbb" * 10 + "cccc" * 40
    assert len(pieces) == 3
    assert "aaaa" in pieces[0]
    assert "bbbb" in pieces[0]


async def test_empty_contexts_are_skipped_without_a_call() -> None:
    """No contexts is a missing field, not a failed verdict."""
    result = await judged("faithfulness", case=Case(response="r", contexts=[]))
    assert (result.status, result.explanation, result.calls) == ("skipped", "missing: contexts", ())
