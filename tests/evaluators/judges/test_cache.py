"""Recorded judge calls."""

import json
from pathlib import Path

import pytest

from ragpulse_evaluators import CachedJudge, Case, FileCache, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError, NoRecording

ASK = [{"role": "user", "content": "hello"}]


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


async def test_a_schema_is_part_of_the_recorded_question(tmp_path: Path) -> None:
    """The file holds one JSON object a call, readable by anything."""
    path = tmp_path / "c.jsonl"
    cached = CachedJudge(ScriptedJudge(["YES"]), FileCache(path))
    await get_evaluator("faithfulness", judge=cached)(Case(response="r", contexts=["c"]))
    [record] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert record["call"]["completion"] == "YES"
    assert len(record["key"]) == 64


UNREADABLE = {
    "empty": ("faithfulness", {}, [{"completion": "", "problem": "the reply is empty"}, "NO"], 2),
    "cut": ("faithfulness", {}, [{"completion": "NO", "finish_reason": "length"}, "NO"], 2),
    "unreadable twice": ("faithfulness", {}, ["hm", "hm", "NO"], 3),
    "samples": ("judge", {"n": 2}, ["hm", "hm", "False", "False"], 4),
    "marks": ("geval", {"n": 2, "criterion": "It is clear.", "span": (0, 4)}, ["n/a", "n/a", "0", "0"], 4),
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_recorded_reply_that_was_unreadable_is_no_record(tmp_path: Path, kind: str) -> None:
    """It is asked for again, and the new reply takes its place; a third time nothing is asked."""
    name, options, replies, asked = UNREADABLE[kind]
    case, path = Case(query="q", response="r", contexts=["c"]), tmp_path / "c.jsonl"
    judge = ScriptedJudge(replies)
    found = [await get_evaluator(name, judge=CachedJudge(judge, FileCache(path)), **options)(case) for _ in range(3)]
    assert [(result.status, result.score) for result in found] == [("invalid", None), ("ok", 0.0), ("ok", 0.0)]
    assert len(judge.asked) == asked


async def test_a_reply_that_a_repair_made_readable_stays_a_record(tmp_path: Path) -> None:
    """Both replies are one conversation: a second run asks nothing. Without a judge, what is recorded stays."""
    case, cache, judge = (
        Case(response="r", contexts=["c"]),
        FileCache(tmp_path / "c.jsonl"),
        ScriptedJudge(["hm", "NO"]),
    )
    for _ in range(2):
        assert (await get_evaluator("faithfulness", judge=CachedJudge(judge, cache))(case)).score == 0.0
    assert len(judge.asked) == 2
    replayed = await get_evaluator("faithfulness", judge=CachedJudge(None, cache, id="scripted"), repair=False)(case)
    assert (replayed.status, len(replayed.calls)) == ("invalid", 2)
