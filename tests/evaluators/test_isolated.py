"""A user's evaluator in a process of its own: its judge stays in this one, and what ends or hangs ends alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from waiting import eventually

from ragpulse_evaluators import Case, Evaluator, JudgeCall, Registry, ScriptedJudge, default_registry
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.isolated import Isolated, ProcessLimits, isolated
from ragpulse_evaluators.judges.protocol import Message
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge
from ragpulse_evaluators.loading import load

USERS = '''
import asyncio, os, time
from pathlib import Path
from pydantic import BaseModel
from ragpulse_evaluators import Case, Evaluator, evaluator
from ragpulse_evaluators.aggregate.composite import Composite
from ragpulse_evaluators.judged.criteria import Rubric
from ragpulse_evaluators.judges.protocol import for_sampling

class Mark(BaseModel):
    mark: float

class Asks(Evaluator):
    """Asks twice at once, and does what the judge says."""
    name = "asks"
    needs = frozenset({"response"})
    wants_judge = True
    cost_class = "k calls"

    def __init__(self, *, judge=None, times: int = 1) -> None:
        super().__init__(times=times)
        self.judge = judge

    async def run(self, case: Case) -> float:
        warm = for_sampling(self.judge, 0.5)
        questions = [{"role": "user", "content": case.response}]
        asked = [warm.ask(questions, schema=Mark, logprobs=True) for _ in range(self.params["times"])]
        found = [calls[0].completion for calls in await asyncio.gather(*asked)]
        if "exit" in found:
            os._exit(3)
        while "hang" in found:
            time.sleep(60)
        return sum(map(float, found))

class Polite(Rubric):
    """Is the response polite?"""
    name = "polite"
    def __init__(self, **options):
        super().__init__(criterion="Politeness", **options)

class Both(Composite):
    """A mean of others."""
    name = "both"

@evaluator(version="7")
def sleeps(response: str) -> bool:
    Path(response).write_text(str(os.getpid()))
    time.sleep(3600)
'''


class Asked(ScriptedJudge):
    """A scripted judge at temperature 0 that keeps what was asked for."""

    def __init__(self, replies: Sequence[Any], *, temperature: float = 0.0, wait_s: float = 0.0) -> None:
        super().__init__(replies)
        self.temperature, self.wait_s = temperature, wait_s
        self.wanted: list[dict[str, Any]] = []

    def with_sampling(self, *, temperature: float) -> Asked:
        """The same judge, whose temperature is seen in what was asked."""
        self.temperature_asked = temperature
        return self

    async def ask(
        self, messages: Sequence[Message], *, n: int = 1, schema: type[BaseModel] | None = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        await asyncio.sleep(self.wait_s)
        shape = None if schema is None else (schema.__name__, schema.model_json_schema())
        self.wanted.append({"n": n, "schema": shape, "logprobs": logprobs})
        return await super().ask(messages, n=n)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of evaluators as a user may write them."""
    path = tmp_path / "my_evals.py"
    path.write_text(USERS)
    return path


def registry(path: Path, time_s: float = 60.0) -> Registry:
    """The evaluators of the file, each in a process of its own."""
    limits = ProcessLimits(time_s=time_s, processes=1)
    return default_registry().with_(*(isolated(item, ("file", str(path)), limits) for item in load(path)))


async def scored(one: Evaluator, *cases: Case) -> list[Any]:
    """The results, one after the other; the process is ended."""
    assert isinstance(one, Isolated)
    try:
        return [await one(case) for case in cases]
    finally:
        await one.aclose()


def test_a_value_of_the_wrong_type_starts_no_process(users: Path) -> None:
    """The types of a user's constructor count here too."""
    with pytest.raises(ConfigurationError, match=r"asks: times='2': .*valid integer"):
        registry(users).get("asks", times="2")


async def test_the_judge_is_asked_in_this_process(users: Path) -> None:
    """Questions at once, schema, log-probabilities and temperature reach the judge; its calls are the result's."""
    judge = Asked(["0.25", "0.5", "1"])
    (first, second) = await scored(registry(users).get("asks", judge=judge, times=2), *[Case(response="r")] * 2)
    assert (first.status, first.score, [call.completion for call in first.calls]) == ("ok", 0.75, ["0.25", "0.5"])
    schema = {"properties": {"mark": {"title": "Mark", "type": "number"}}, "required": ["mark"]}
    assert judge.wanted[0] == {
        "n": 1,
        "schema": ("Mark", {**schema, "title": "Mark", "type": "object"}),
        "logprobs": True,
    }
    assert (judge.asked[0], judge.temperature_asked, first.judge) == ("r", 0.5, "scripted")
    assert (second.status, second.explanation[:13], len(second.calls)) == ("error", "NoRecording: ", 1)


async def test_a_class_of_a_judged_family_is_scored_as_in_process(users: Path) -> None:
    """Prompt, reply, version and judge are the same."""
    case = Case(query="q", response="r")
    inside = await Registry(()).with_(*load(users)).get("polite", judge=ScriptedJudge(['{"score": 0.5}']))(case)
    (apart,) = await scored(registry(users).get("polite", judge=ScriptedJudge(['{"score": 0.5}'])), case)
    assert apart == inside
    assert apart.score == 0.5


@pytest.mark.parametrize(
    ("reply", "explanation", "retriable", "calls"),
    [
        ("exit", "EvaluatorStopped: the evaluator ended its process with exit code 3", True, 1),
        ("hang", "EvaluatorStopped: no result within 12 s", True, 1),
        ("hm", "ValueError: could not convert string to float: 'hm'", False, 1),
        (ValueError("no"), "JudgeError: ValueError: no", False, 0),
    ],
)
async def test_what_was_asked_is_recorded_whatever_follows(
    users: Path, reply: Any, explanation: str, retriable: bool, calls: int
) -> None:
    """The process may end or hang after a paid call; the next case gets another process."""
    one = registry(users, 12.0 if reply == "hang" else 60.0).get("asks", judge=Asked([reply]))
    (result,) = await scored(one, Case(response="r"))
    assert (result.status, result.explanation) == ("error", explanation)
    assert (result.retriable, len(result.calls)) == (retriable, calls)


async def test_budget_and_patience_are_of_this_process(users: Path) -> None:
    """A spent budget refuses in the child too; the time that the judge takes is not the evaluator's."""
    spent = BudgetedJudge(Asked(["1"]), Budget(0.0), (1.0, 1.0))
    (refused,) = await scored(registry(users).get("asks", judge=spent), Case(response="r"))
    assert (refused.status, refused.retriable, refused.explanation[:16]) == ("error", False, "BudgetExceeded: ")
    (slow,) = await scored(registry(users, 12.0).get("asks", judge=Asked(["1"], wait_s=12.5)), Case(response="r"))
    assert (slow.status, slow.score) == ("ok", 1.0)


async def test_a_cancelled_case_ends_its_process(users: Path, tmp_path: Path) -> None:
    """What nobody waits for does not run on."""
    pid_file = tmp_path / "pid"
    one = registry(users).get("sleeps")
    task = asyncio.create_task(one(Case(response=str(pid_file))))
    await asyncio.to_thread(eventually, lambda: pid_file.exists() and pid_file.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_evaluators_of_others_are_made_in_the_child(users: Path) -> None:
    """A composite of built-in evaluators resolves them there, and is made with objects that can be sent."""
    one = registry(users).get("both", weights={"exact_match": 1.0})
    (result,) = await scored(one, Case(response="r", reference="r"))
    assert (result.status, result.score) == ("ok", 1.0)
    with pytest.raises(ConfigurationError, match="asks: its process cannot receive the parameters"):
        registry(users).get("asks", judge=ScriptedJudge(()), times=lambda: 1)


async def test_yaml_holds_no_code(tmp_path: Path) -> None:
    """It stays in this process."""
    path = tmp_path / "tone.yaml"
    path.write_text("prompt: 'Tone of {completion}?'\nchoice_strings: [dry, warm]\nchoice_scores: {dry: 0, warm: 1}\n")
    (item,) = load(path)
    assert isolated(item, ("file", str(path)), ProcessLimits()) is item
