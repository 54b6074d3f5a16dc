"""Batches: one read or one commit for all items that gathered in the meantime."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from ragpulse_collector.store import Busy, Store, Transaction

In = TypeVar("In")
Out = TypeVar("Out")


class Batcher(Generic[In, Out]):
    """`await batcher(item)` returns when the item's batch is done; used within one event loop.

    A single item is done at once. Under load batches begin `every_s` apart, because a read or a commit costs
    nearly the same for one item as for a hundred.
    """

    def __init__(self, do: Callable[[list[In]], Awaitable[Sequence[Out]]], *, every_s: float) -> None:
        """`do` returns one result per item, in order. If it raises, every caller of the batch raises."""
        self._do, self._every_s = do, every_s
        self._waiting: list[tuple[In, asyncio.Future[Out]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: In) -> Out:
        """Join the next batch."""
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                began = time.monotonic()
                await self._answer(batch)
                await asyncio.sleep(self._every_s - (time.monotonic() - began))
        finally:
            self._task = None

    async def _answer(self, batch: Sequence[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            found = await self._do([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), value in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(value)


async def committed(store: Store, work: Callable[[Transaction], Any]) -> Any:
    """Write and wait for the commit; tries again while the store is busy."""
    while True:
        try:
            return await asyncio.wrap_future(store.write(work))
        except Busy as busy:
            await asyncio.sleep(busy.retry_after_s)
