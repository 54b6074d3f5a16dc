"""A limit on the money that a judge may cost: it reserves before asking and settles afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Message, transcript
from ragpulse_evaluators.judges.tokens import count_tokens
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

    `prices` are USD per input and per output token; a reply is reserved at `max_reply_tokens`. A call whose provider
    reports no cost is settled at these prices, so an unknown cost is never zero.
    """

    def __init__(
        self, judge: Judge, budget: Budget, prices: tuple[float, float], *, max_reply_tokens: int = 1024
    ) -> None:
        super().__init__(judge)
        self._budget = budget
        self._prices = prices
        self._reply_tokens = max_reply_tokens

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Reserve, ask, settle; raises `BudgetExceeded` without asking."""
        input_tokens = n * count_tokens(transcript(messages))
        reserved = self._cost(input_tokens, n * self._reply_tokens)
        self._budget.reserve(reserved)
        spent = reserved  # a failed request may still be billed
        try:
            calls = await self._inner.ask(messages, n=n, schema=schema, logprobs=logprobs)
            spent = sum(self._price(call) for call in calls)
            return calls
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
