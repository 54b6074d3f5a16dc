"""A ceiling of money over a judge: it reserves before asking, settles after, and refuses what might exceed it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.judge import Judge, Message, Wrapped, transcript
from ragpulse_evaluators.result import JudgeCall
from ragpulse_evaluators.tokens import count_tokens

__all__ = ("BudgetedJudge", "Purse")


class Purse:
    """Money shared by the judges of one run; never spends more than `max_usd`."""

    def __init__(self, max_usd: float) -> None:
        self.max_usd = max_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0

    def reserve(self, usd: float) -> None:
        """Set money aside; raises `BudgetExceeded` where it might not be there."""
        if self.spent_usd + self.reserved_usd + usd > self.max_usd:
            left = self.max_usd - self.spent_usd
            raise BudgetExceeded(f"the budget of {self.max_usd:g} USD is reached ({left:.4f} USD left)")
        self.reserved_usd += usd

    def settle(self, reserved: float, spent: float) -> None:
        """Give back what was set aside and book what was really spent."""
        self.reserved_usd -= reserved
        self.spent_usd += spent


class BudgetedJudge(Wrapped):
    """Asks `judge` only while the purse allows it.

    `prices` are USD per input and per output token; a reply is reserved at `max_reply_tokens`. A call whose provider
    names no cost is booked at these prices, so an unknown cost is never zero.
    """

    def __init__(
        self, judge: Judge, purse: Purse, prices: tuple[float, float], *, max_reply_tokens: int = 1024
    ) -> None:
        super().__init__(judge)
        self._purse = purse
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
        tokens_in = n * count_tokens(transcript(messages))
        reserved = self._cost(tokens_in, n * self._reply_tokens)
        self._purse.reserve(reserved)
        spent = reserved  # a request that failed may still be billed
        try:
            calls = await self._asked.ask(messages, n=n, schema=schema, logprobs=logprobs)
            spent = sum(self._price(call) for call in calls)
            return calls
        finally:
            self._purse.settle(reserved, spent)

    def _cost(self, tokens_in: int, tokens_out: int) -> float:
        return tokens_in * self._prices[0] + tokens_out * self._prices[1]

    def _price(self, call: JudgeCall) -> float:
        if call.cost_usd is not None:
            return call.cost_usd
        tokens_in = count_tokens(call.prompt) if call.input_tokens is None else call.input_tokens
        tokens_out = count_tokens(call.completion) if call.output_tokens is None else call.output_tokens
        return self._cost(tokens_in, tokens_out)
