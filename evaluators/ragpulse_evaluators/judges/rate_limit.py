"""Limits on the requests to judges: concurrency, requests per minute, and a pause after a refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Message
from ragpulse_evaluators.result import JudgeCall

__all__ = ("Gate", "GatedJudge")


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
    """Passes the gate with every request of `judge`: once per sample where the judge sends one request per sample."""

    def __init__(self, judge: Judge, gate: Gate) -> None:
        super().__init__(judge)
        self.gate = gate

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Wait for the gate, then ask."""
        options: dict[str, Any] = {"schema": schema, "logprobs": logprobs}
        if n == 1 or not getattr(self._judge, "asks_singly", False):
            return await self._once(messages, n=n, **options)
        found = await asyncio.gather(*(self._once(messages, n=1, **options) for _ in range(n)))
        return [call for calls in found for call in calls]

    async def _once(self, messages: Sequence[Message], **options: Any) -> list[JudgeCall]:
        async with self.gate:
            return await self._inner.ask(messages, **options)
