"""What many ask for is done together: one read or one commit for all that gathered meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from ragpulse_collector.store import Busy, Store, Transaction

__all__ = ["Together", "committed"]

In = TypeVar("In")
Out = TypeVar("Out")


class Together(Generic[In, Out]):
    """`await together(item)` answers when the group is done that holds the item; used within one event loop.

    An item that comes alone is done at once; under load groups begin `every_s` apart, since a read or a commit costs
    nearly the same for one item as for a hundred.
    """

    def __init__(self, do: Callable[[list[In]], Awaitable[Sequence[Out]]], *, every_s: float) -> None:
        """Take what does a group: it answers each item, in order; when it raises, every caller of the group does."""
        self._do, self._every_s = do, every_s
        self._waiting: list[tuple[In, asyncio.Future[Out]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: In) -> Out:
        """Join the next group."""
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                began = time.monotonic()
                await self._answer(group)
                await asyncio.sleep(self._every_s - (time.monotonic() - began))
        finally:
            self._task = None

    async def _answer(self, group: Sequence[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            found = await self._do([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to those who asked
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), value in zip(group, found, strict=True):
            if not answer.done():
                answer.set_result(value)


async def committed(store: Store, work: Callable[[Transaction], Any]) -> Any:
    """Write and wait for the commit; comes again while the store is busy."""
    while True:
        try:
            return await asyncio.wrap_future(store.write(work))
        except Busy as busy:
            await asyncio.sleep(busy.retry_after_s)
