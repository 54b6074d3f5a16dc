"""Limits on the requests to judges: concurrency, requests per minute, and a pause after a refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from ragpulse_evaluators.errors import JudgeError
from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Question
from ragpulse_evaluators.result import JudgeCall

__all__ = ("LONGEST_PAUSE_S", "Gate", "GatedJudge")

LONGEST_PAUSE_S = 600.0
"""A longer `Retry-After` is asked again after this time: it may have been lifted."""


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
        found = await asyncio.gather(*(self._once(question.once()) for _ in range(question.n)))
        return [call for calls in found for call in calls]

    async def _once(self, question: Question) -> list[JudgeCall]:
        async with self.gate:
            try:
                return await question.put_to(self._inner)
            except JudgeError as refused:
                if refused.retriable and refused.retry_after_s:
                    self.gate.pause(min(refused.retry_after_s, LONGEST_PAUSE_S))
                raise
