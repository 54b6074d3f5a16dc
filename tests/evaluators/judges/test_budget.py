"""Reservation, settlement and refusal of a budget."""

import pytest

from ragpulse_evaluators import ScriptedJudge
from ragpulse_evaluators.errors import BudgetExceeded, JudgeError
from ragpulse_evaluators.judges.budget import Budget, BudgetedJudge

ASK = [{"role": "user", "content": "hello"}]


async def test_a_budget_reserves_settles_and_refuses() -> None:
    """What is reserved is given back, what is spent is booked, an unknown cost by the price list."""
    budget = Budget(0.01)
    judge = BudgetedJudge(
        ScriptedJudge([{"completion": "abcd", "cost_usd": None}]), budget, (0.001, 0.001), max_reply_tokens=2
    )
    await judge.ask(ASK)
    assert budget.reserved_usd == 0.0
    assert budget.spent_usd == pytest.approx(0.003)
    with pytest.raises(BudgetExceeded, match=r"budget of 0\.01 USD"):
        await BudgetedJudge(ScriptedJudge(["x"]), budget, (0.001, 0.001), max_reply_tokens=9).ask(ASK)


async def test_a_failed_request_is_booked_as_if_billed() -> None:
    """A request that may have been billed does not refill the budget."""
    budget = Budget(1.0)
    judge = BudgetedJudge(ScriptedJudge([JudgeError("down")]), budget, (0.0, 0.1), max_reply_tokens=2)
    with pytest.raises(JudgeError):
        await judge.ask(ASK)
    assert budget.spent_usd == pytest.approx(0.2)
