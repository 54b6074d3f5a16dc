"""Batches: one read or one commit for all items that arrived in the meantime."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ragpulse_collector.store import Busy, Store, Transaction

In = TypeVar("In")
Out = TypeVar("Out")


class Batcher(Generic[In, Out]):
    """`await batcher(item)` returns when the item's batch is processed; used within one event loop.

    A single item is processed at once. Under load batches begin `every_s` apart, because a read or a commit costs
    nearly the same for one item as for a hundred.
    """

    def __init__(self, process: Callable[[list[In]], Awaitable[Sequence[Out]]], *, every_s: float) -> None:
        """`process` returns one result per item, in order. If it raises, every caller of the batch raises."""
        self._process, self._every_s = process, every_s
        self._pending: list[tuple[In, asyncio.Future[Out]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: In) -> Out:
        """Join the next batch."""
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                start = time.monotonic()
                await self._resolve(batch)
                await asyncio.sleep(self._every_s - (time.monotonic() - start))
        finally:
            self._task = None

    async def _resolve(self, batch: Sequence[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            values = await self._process([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), value in zip(batch, values, strict=True):
            if not future.done():
                future.set_result(value)


async def commit(store: Store, work: Callable[[Transaction], Out]) -> Out:
    """Write and wait for the commit; retries while the store is busy."""
    while True:
        try:
            return await asyncio.wrap_future(store.write(work))
        except Busy as busy:
            await asyncio.sleep(busy.retry_after_s)
