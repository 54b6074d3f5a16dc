"""A limit on the money that a judge may cost: it reserves before asking and settles afterwards."""

from __future__ import annotations

from ragpulse_evaluators.errors import BudgetExceeded, JudgeRejected
from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Question, count_tokens, max_tokens_of, transcript
from ragpulse_evaluators.result import JudgeCall

__all__ = ("Budget", "BudgetedJudge")


class Budget:
    """Money shared by the judges of one run; never spends more than `max_usd`."""

    def __init__(self, max_usd: float) -> None:
        self.max_usd = max_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0

    def reserve(self, usd: float) -> None:
        """Reserve money for a request; raises `BudgetExceeded` where the rest may not suffice."""
        if self.spent_usd + self.reserved_usd + usd > self.max_usd:
            left = self.max_usd - self.spent_usd
            raise BudgetExceeded(f"the budget of {self.max_usd:g} USD is reached ({left:.4f} USD left)")
        self.reserved_usd += usd

    def settle(self, reserved: float, spent: float) -> None:
        """Release a reservation and record what the request cost."""
        self.reserved_usd -= reserved
        self.spent_usd += spent


class BudgetedJudge(JudgeWrapper):
    """Asks `judge` only while the budget allows it.

    `prices` are USD per input and per output token. A reply is reserved at the judge's `max_tokens`, which every
    request carries, so the limit is hard. A call whose provider reports no cost is settled at these prices, so an
    unknown cost is never zero.
    """

    def __init__(self, judge: Judge, budget: Budget, prices: tuple[float, float]) -> None:
        super().__init__(judge)
        self._budget = budget
        self._prices = prices

    async def answer(self, question: Question) -> list[JudgeCall]:
        """Reserve, ask, settle; raises `BudgetExceeded` without asking."""
        input_tokens = question.n * count_tokens(transcript(question.messages))
        reserved = self._cost(input_tokens, question.n * max_tokens_of(self._inner))
        self._budget.reserve(reserved)
        spent = reserved  # a failed request may still be billed
        try:
            calls = await question.put_to(self._inner)
            spent = sum(self._price(call) for call in calls)
            return calls
        except JudgeRejected:  # rejected before any token was generated
            spent = 0.0
            raise
        finally:
            self._budget.settle(reserved, spent)

    def _cost(self, input_tokens: int, output_tokens: int) -> float:
        return input_tokens * self._prices[0] + output_tokens * self._prices[1]

    def _price(self, call: JudgeCall) -> float:
        if call.cost_usd is not None:
            return call.cost_usd
        input_tokens = count_tokens(call.prompt) if call.input_tokens is None else call.input_tokens
        output_tokens = count_tokens(call.completion) if call.output_tokens is None else call.output_tokens
        return self._cost(input_tokens, output_tokens)
