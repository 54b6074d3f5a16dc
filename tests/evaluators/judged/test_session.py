"""The conversation with a judge: one repair of an unreadable reply."""

from typing import Any

import pytest
from judge_suite import READINGS

from ragpulse_evaluators import Case, EvaluationResult, LLMJudge, ScriptedJudge, Turn, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


@pytest.mark.parametrize(("name", "reply", "score"), READINGS)
async def test_a_reply_is_read_leniently_before_it_is_asked_for_again(name: str, reply: str, score: float) -> None:
    """Trailing commas, single quotes, Python's words, nested and capitalised keys, reasoning: one call is enough."""
    options = {"consensus": False} if name == "pairwise" else {}
    result = await judged(name, reply, **options)
    assert (result.status, result.score, len(result.calls)) == ("ok", score, 1), result.explanation


@pytest.mark.parametrize("reply", ["N/A", '{"reason": "r", "verdict": "n/a"}', '{"verdict": null}', "Not applicable."])
async def test_a_judge_may_say_that_a_case_does_not_apply(reply: str) -> None:
    """Skipped, without asking again and without a score."""
    result = await judged("faithfulness", reply)
    assert (result.status, result.score, len(result.calls)) == ("skipped", None, 1)


@pytest.mark.parametrize(
    "reply", ['{"reason": null, "verdict": "maybe"}', "{'verdict': open('x')}", '{"verdict": "YES"', "{'a': {1, 2}}"]
)
async def test_leniency_guesses_nothing(reply: str) -> None:
    """A missing brace may be a missing word; code is not run; an unknown word is no verdict."""
    result = await judged("faithfulness", reply, repair=False)
    assert (result.status, result.score) == ("invalid", None)


@pytest.mark.parametrize("name", ["faithfulness", "correctness", "answer_relevancy", "custom_yaml"])
async def test_earlier_turns_are_shown_where_there_are_some(name: str) -> None:
    """Fenced, before the material; a case without history has no such part."""
    judge = ScriptedJudge(["hmm"] * 4)
    later = CASE.model_copy(update={"history": (Turn(query="Is there a library?", response="Yes, in Zug."),)})
    evaluator = get_evaluator(name, judge=judge, repair=False)
    for case in (later, CASE):
        await evaluator(case)
    first, second = judge.asked[0], judge.asked[-1]
    assert "[1] user: Is there a library?\n[1] assistant: Yes, in Zug.\n</history" in first
    assert first.index("</history") < first.index("At nine.", first.index("[user]"))
    assert "history" not in second
    assert evaluator.estimate(later).input_tokens > evaluator.estimate(CASE).input_tokens


async def test_the_limit_of_a_reply_is_a_setting_of_the_evaluator() -> None:
    """It reaches the judge, its id and the estimate; without it the judge's own limit holds."""
    plain = get_evaluator("statement_faithfulness", judge=LLMJudge("openai/a"))
    short = get_evaluator("statement_faithfulness", judge=LLMJudge("openai/a"), max_tokens=300)
    assert (plain.estimate(CASE).max_output_tokens, short.estimate(CASE).max_output_tokens) == (4 * 4096, 4 * 300)
    bill = short.estimate(CASE)
    assert bill.max_input_tokens == 2 * bill.input_tokens + 2 * 300  # a repair turn shows the reply too
    marks = get_evaluator("geval", judge=LLMJudge("openai/a"), max_tokens=9, n=2, dimension="fluency").estimate(CASE)
    assert (marks.max_input_tokens, marks.max_output_tokens) == (marks.input_tokens, 18)
    assert (plain.judge_id, short.judge_id) == ("openai/a temperature=0.0", "openai/a max_tokens=300 temperature=0.0")
    assert plain.version == short.version
    with pytest.raises(ConfigurationError, match="max_tokens"):
        get_evaluator("faithfulness", max_tokens=0)


async def test_a_repair_turn_shows_the_problem_and_can_succeed() -> None:
    """An unreadable reply is answered with the problem and the form; the second reply counts, both calls are kept."""
    result = await judged("correctness", "it is good", "4.5")
    assert (result.status, result.score, len(result.calls)) == ("ok", 4.5, 2)
    assert "it is good" in result.calls[1].prompt
