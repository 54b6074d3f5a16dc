"""Limits on the requests to judges: money, concurrency, requests per minute, and a pause after a refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from ragpulse_evaluators.errors import BudgetExceeded, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Question, count_tokens, max_tokens_of, transcript
from ragpulse_evaluators.result import JudgeCall

__all__ = ["LONGEST_PAUSE_S", "Budget", "BudgetedJudge", "Gate", "GatedJudge"]


class Budget:
    """Money shared by the judges of one run; never spends more than `max_usd`."""

    def __init__(self, max_usd: float) -> None:
        self.max_usd = max_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0

    def reserve(self, usd: float) -> None:
        """Reserve money for a request; raises `BudgetExceeded` where the rest may not suffice."""
        if self.spent_usd + self.reserved_usd + usd > self.max_usd * (1 + 1e-12):  # sums of floats
            raise BudgetExceeded(
                f"the budget of {self.max_usd:g} USD has no room for the next call, which may cost {usd:.2g} USD"
                f" ({self.spent_usd:.2g} USD spent, {self.reserved_usd:.2g} USD set aside)"
            )
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


LONGEST_PAUSE_S = 600.0
"""After this time the server is asked again even where its `Retry-After` is longer: the limit may have been lifted."""


class Gate:
    """`async with gate:` around a request; shared by all judges that ask the same provider.

    At most `concurrency` requests of one event loop run at the same time. `requests_per_minute` are spread evenly over
    the minute; None sets no rate.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        requests_per_minute: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.concurrency = concurrency
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._every_s = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._now = now
        self._next = now()

    async def __aenter__(self) -> None:
        slots = self._slots_here()
        await slots.acquire()
        try:
            while (wait := self._next - self._now()) > 0:
                await asyncio.sleep(wait)
        except BaseException:
            slots.release()
            raise
        if self._every_s:
            self._next = max(self._next, self._now()) + self._every_s

    async def __aexit__(self, *_: object) -> None:
        self._slots_here().release()

    def _slots_here(self) -> asyncio.Semaphore:
        """A semaphore belongs to one event loop; a restarted worker has another loop."""
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.concurrency))

    def pause(self, seconds: float) -> None:
        """Let no request in for a while: the provider refused one."""
        self._next = max(self._next, self._now() + seconds)


class GatedJudge(JudgeWrapper):
    """Passes the gate with every request of `judge`: once per sample where the judge sends one request per sample.

    A server that answers with `Retry-After` closes the gate for that long, at most `LONGEST_PAUSE_S`.
    """

    def __init__(self, judge: Judge, gate: Gate) -> None:
        super().__init__(judge)
        self.gate = gate

    async def answer(self, question: Question) -> list[JudgeCall]:
        """Wait for the gate, then ask."""
        if question.n == 1 or not getattr(self._judge, "asks_singly", False):
            return await self._once(question)
        samples = await asyncio.gather(*(self._once(question.once()) for _ in range(question.n)))
        return [call for calls in samples for call in calls]

    async def _once(self, question: Question) -> list[JudgeCall]:
        async with self.gate:
            try:
                return await question.put_to(self._inner)
            except JudgeError as error:
                if error.retriable and error.retry_after_s:
                    self.gate.pause(min(error.retry_after_s, LONGEST_PAUSE_S))
                raise
