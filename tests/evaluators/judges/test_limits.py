"""Limits on requests to judges: reservation and settlement of a budget; requests at once and a minute."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import CachedJudge, Case, FileCache, JudgeCall, ScriptedJudge, evaluate
from ragpulse_evaluators.errors import BudgetExceeded, ConfigurationError, EvaluatorError, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.protocol import model_of
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge, Gate, GatedJudge


class Limited(ScriptedJudge):
    """A scripted judge whose replies are limited, as those of a model are."""

    def __init__(self, replies: list[Any], max_tokens: int) -> None:
        super().__init__(replies)
        self.max_tokens = max_tokens


ASK = [{"role": "user", "content": "hello"}]


async def test_a_budget_reserves_settles_and_refuses() -> None:
    """What is reserved is given back, what is spent is booked, an unknown cost by the price list."""
    budget = Budget(0.01)
    judge = BudgetedJudge(Limited([{"completion": "abcd", "cost_usd": None}], 2), budget, (0.001, 0.001))
    await judge.ask(ASK)
    assert budget.reserved_usd == 0.0
    assert budget.spent_usd == pytest.approx(0.003)
    with pytest.raises(BudgetExceeded, match=r"budget of 0\.01 USD"):
        await BudgetedJudge(Limited(["x"], 9), budget, (0.001, 0.001)).ask(ASK)


async def test_a_failed_request_is_booked_as_if_billed() -> None:
    """What may be billed does not refill the budget; what was rejected, not sent or counted costs that much."""
    budget = Budget(1.0)
    counted = JudgeError("the provider failed")
    counted.calls = (JudgeCall(output_tokens=1, input_tokens=0),)
    lost = JudgeError("down", maybe_billed=True)
    failures = [lost, JudgeRejected("no key"), JudgeError("no connection"), ConfigurationError("no litellm"), counted]
    judge = BudgetedJudge(Limited(failures, 2), budget, (0.0, 0.1))
    for spent in (0.2, 0.2, 0.2, 0.2, 0.3):
        with pytest.raises(EvaluatorError):
            await judge.ask(ASK)
        assert budget.spent_usd == pytest.approx(spent)


ASK = [{"role": "user", "content": "hello"}]


class Crowd:
    """A judge that knows how many requests it saw at once; it sends one a sample."""

    id, model = "crowd temperature=0.0", "crowd"
    asks_singly = True

    def __init__(self) -> None:
        self.asked = self.inside = self.most = 0

    async def ask(self, messages: Sequence[Any], *, n: int = 1, **asked: Any) -> list[JudgeCall]:
        """Stay for some turns of the loop."""
        self.asked, self.inside = self.asked + 1, self.inside + n
        self.most = max(self.most, self.inside)
        for _ in range(5):
            await asyncio.sleep(0)
        self.inside -= n
        return [JudgeCall(completion="YES")] * n


async def test_no_more_requests_than_allowed_are_inside() -> None:
    """Ten questions of four samples: 40 requests, never more than three at once."""
    crowd = Crowd()
    judge = GatedJudge(crowd, Gate(3))
    found = await asyncio.gather(*(judge.ask(ASK, n=4) for _ in range(10)))
    assert [len(calls) for calls in found] == [4] * 10
    assert (crowd.asked, crowd.most) == (40, 3)


async def test_several_calls_a_case_stay_within_the_concurrency() -> None:
    """Pairwise asks both orders of each case side by side; the judge sees no more than `concurrency`."""
    crowd = Crowd()
    cases = [Case(query="q", response=f"{i}", second_response="b") for i in range(8)]
    await evaluate(cases, "pairwise", judge=crowd, concurrency=2)
    assert (crowd.asked >= 16, crowd.most) == (True, 2)


async def test_the_rate_holds_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 a minute: the fourth request is let in three seconds after the first."""
    now, times = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    gate = Gate(1, requests_per_minute=60, now=lambda: now)
    monkeypatch.setattr("ragpulse_evaluators.judges.wrappers.asyncio.sleep", sleep)
    for _ in range(4):
        async with gate:
            times.append(now)
    assert times == [0.0, 1.0, 2.0, 3.0]


async def test_a_refusal_lets_nobody_in_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pause` delays the next request also where there is no rate."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    gate = Gate(2, now=lambda: now)
    gate.pause(5.0)
    monkeypatch.setattr("ragpulse_evaluators.judges.wrappers.asyncio.sleep", sleep)
    async with gate:
        assert now == 5.0


async def test_a_cancelled_wait_takes_no_slot_away() -> None:
    """The next request gets the only slot at once."""
    gate = Gate(1)
    async with gate:
        waiting = asyncio.ensure_future(gate.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        [left] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    entering = asyncio.ensure_future(gate.__aenter__())
    await asyncio.sleep(0)
    assert entering.done()


async def test_a_wrapped_judge_shows_what_is_inside(tmp_path: Path) -> None:
    """Id, model (by which calls are priced) and sampling are the inner judge's, through every layer."""
    judge = CachedJudge(GatedJudge(Crowd(), Gate(1)), FileCache(tmp_path / "c.jsonl"))
    assert (judge.id, model_of(judge), judge.asks_singly) == ("crowd temperature=0.0", "crowd", True)
    assert isinstance(judge.gate, Gate)


@pytest.mark.parametrize(("spent", "left"), [(0.25, 0.75), (0.0, 1.0), (None, 0.0)])
def test_a_settlement_frees_what_was_not_spent_and_an_unknown_cost_is_the_whole_reservation(
    spent: float | None, left: float
) -> None:
    """As in the collector's ledger."""
    budget = Budget(1.0)
    budget.reserve(1.0)
    budget.settle(1.0, spent)
    budget.reserve(left)
    with pytest.raises(BudgetExceeded):
        budget.reserve(0.01)
