"""Reservation, settlement and refusal of a budget."""

from typing import Any

import pytest

from ragpulse_evaluators import ScriptedJudge
from ragpulse_evaluators.errors import BudgetExceeded, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.limits import Budget, BudgetedJudge


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
    """A request that may have been billed does not refill the budget; one that was rejected costs nothing."""
    budget = Budget(1.0)
    judge = BudgetedJudge(Limited([JudgeError("down"), JudgeRejected("no key")], 2), budget, (0.0, 0.1))
    for spent in (0.2, 0.2):
        with pytest.raises(JudgeError):
            await judge.ask(ASK)
        assert budget.spent_usd == pytest.approx(spent)
