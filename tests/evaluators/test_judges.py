"""Scripted, cached and budgeted judges."""

import json
from pathlib import Path

import pytest

from ragpulse_evaluators import CachedJudge, Case, FileCache, Judge, LLMJudge, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import BudgetExceeded, ConfigurationError, JudgeError, NoRecording
from ragpulse_evaluators.judges.budget import Budget, BudgetedJudge
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


async def test_equal_questions_are_asked_once_and_samples_stay_apart(tmp_path: Path) -> None:
    """Three samples of one question are three recordings; asking for four asks for one more."""
    cache = FileCache(tmp_path / "c.jsonl")
    judge = ScriptedJudge(["1", "2", "3", "4"])
    cached = CachedJudge(judge, cache)
    assert [call.completion for call in await cached.ask(ASK, n=3)] == ["1", "2", "3"]
    assert [call.completion for call in await cached.ask(ASK, n=4)] == ["1", "2", "3", "4"]
    assert (len(judge.asked), len(cache)) == (4, 4)


async def test_another_prompt_judge_or_schema_is_another_question(tmp_path: Path) -> None:
    """A changed byte of the prompt misses the cache."""
    cache = FileCache(tmp_path / "c.jsonl")
    await CachedJudge(ScriptedJudge(["1"]), cache).ask(ASK)
    with pytest.raises(NoRecording):
        await CachedJudge(None, cache, id="scripted").ask([{"role": "user", "content": "hello!"}])
    with pytest.raises(NoRecording):
        await CachedJudge(None, cache, id="other").ask(ASK)
    assert (await CachedJudge(None, cache, id="scripted").ask(ASK))[0].cached


async def test_a_line_cut_off_by_a_crash_is_dropped_and_a_damaged_one_named(tmp_path: Path) -> None:
    """A half-written last line is asked again; damage in the middle is an error with its line."""
    path = tmp_path / "c.jsonl"
    await CachedJudge(ScriptedJudge(["1", "2"]), FileCache(path)).ask(ASK, n=2)
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    assert len(FileCache(path)) == 1
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"c\.jsonl:1"):
        FileCache(path)


def test_a_replay_needs_the_id_of_the_recorded_judge(tmp_path: Path) -> None:
    """Without a judge there is no id to look under."""
    with pytest.raises(ConfigurationError, match="id="):
        CachedJudge(None, FileCache(tmp_path / "c.jsonl"))


async def test_a_purse_reserves_settles_and_refuses() -> None:
    """What is reserved is given back, what is spent is booked, an unknown cost by the price list."""
    purse = Budget(0.01)
    judge = BudgetedJudge(
        ScriptedJudge([{"completion": "abcd", "cost_usd": None}]), purse, (0.001, 0.001), max_reply_tokens=2
    )
    await judge.ask(ASK)
    assert purse.reserved_usd == 0.0
    assert purse.spent_usd == pytest.approx(0.003)
    with pytest.raises(BudgetExceeded, match=r"budget of 0\.01 USD"):
        await BudgetedJudge(ScriptedJudge(["x"]), purse, (0.001, 0.001), max_reply_tokens=9).ask(ASK)


async def test_a_failed_request_is_booked_as_if_billed() -> None:
    """A request that may have been billed does not refill the purse."""
    purse = Budget(1.0)
    judge = BudgetedJudge(ScriptedJudge([JudgeError("down")]), purse, (0.0, 0.1), max_reply_tokens=2)
    with pytest.raises(JudgeError):
        await judge.ask(ASK)
    assert purse.spent_usd == pytest.approx(0.2)


def test_sampling_evaluators_warm_a_cold_judge_only() -> None:
    """Samples at temperature 0 would be equal; a judge that was given a temperature keeps it."""
    warm = get_evaluator("geval", judge=LLMJudge("openai/a"))
    assert warm.judge_id == "openai/a temperature=1.0"
    assert get_evaluator("geval", judge=LLMJudge("openai/a", temperature=0.5)).judge_id == "openai/a temperature=0.5"
    assert get_evaluator("geval", judge=LLMJudge("openai/a"), n=1).judge_id == "openai/a temperature=0.0"
    scripted = ScriptedJudge([])
    assert for_sampling(scripted, 1.0) is scripted


async def test_a_schema_is_part_of_the_recorded_question(tmp_path: Path) -> None:
    """The file holds one JSON object a call, readable by anything."""
    path = tmp_path / "c.jsonl"
    cached = CachedJudge(ScriptedJudge(["YES"]), FileCache(path))
    await get_evaluator("faithfulness", judge=cached)(Case(response="r", contexts=["c"]))
    [record] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert record["call"]["completion"] == "YES"
    assert len(record["key"]) == 64
