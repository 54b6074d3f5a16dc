"""Scripted judges, and judges at another temperature."""

import pytest

from ragpulse_evaluators import Case, Judge, LLMJudge, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import JudgeError
from ragpulse_evaluators.judges.protocol import for_sampling

ASK = [{"role": "user", "content": "hello"}]


async def test_a_scripted_judge_replies_in_call_order_and_running_out_is_an_error() -> None:
    """Texts, fields and exceptions are taken in turn."""
    judge = ScriptedJudge(["a", {"completion": "b", "logprobs": {"b": -0.1}}, ValueError("no")])
    assert [call.completion for call in await judge.ask(ASK, n=2)] == ["a", "b"]
    with pytest.raises(ValueError, match="no"):
        await judge.ask(ASK)
    with pytest.raises(JudgeError, match="no reply number 4"):
        await judge.ask(ASK)
    assert isinstance(judge, Judge)


async def test_a_scripted_mapping_is_a_structured_reply() -> None:
    """A mapping without a completion is the JSON object the judge would write."""
    judge = ScriptedJudge([{"passing": True, "feedback": "好"}])
    result = await get_evaluator("guideline", judge=judge)(Case(query="q", response="r"))
    assert (result.passing, result.feedback) == (True, "好")


def test_sampling_evaluators_warm_a_cold_judge_only() -> None:
    """Samples at temperature 0 would be equal; a judge that was given a temperature keeps it."""
    warm = get_evaluator("geval", judge=LLMJudge("openai/a"))
    assert warm.judge_id == "openai/a temperature=1.0"
    assert get_evaluator("geval", judge=LLMJudge("openai/a", temperature=0.5)).judge_id == "openai/a temperature=0.5"
    assert get_evaluator("geval", judge=LLMJudge("openai/a"), n=1).judge_id == "openai/a temperature=0.0"
    scripted = ScriptedJudge([])
    assert for_sampling(scripted, 1.0) is scripted
