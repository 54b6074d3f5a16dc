"""The cache of slow pages: figures are shown again with their age while newer ones are read in the background."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["PageCache"]

Figures = TypeVar("Figures")

FRESH_S: Final = 1.0
"""Figures up to this age are as good as new."""
SLOW_S: Final = 0.1
"""Figures that are read faster than this are not cached: a small store shows each trace at once."""
PAINT_S: Final = 0.5
"""The background reading starts after this delay, so that it does not slow down the drawing of the page."""
MOST: Final = 8
"""Pages in the cache, the ones last read: each may hold a megabyte."""


@dataclass(frozen=True, kw_only=True)
class _Reading(Generic[Figures]):
    figures: Figures
    at: float
    took_s: float


class PageCache(Generic[Figures]):
    """The figures of a page by its query."""

    def __init__(self, *, timer: Callable[[], float] = time.monotonic, paint_s: float = PAINT_S) -> None:
        self._timer, self._paint_s = timer, paint_s
        self._cached: dict[str, _Reading[Figures]] = {}
        self._under_way: dict[str, asyncio.Task[_Reading[Figures]]] = {}

    async def get(
        self,
        key: str,
        read: Callable[[], Awaitable[Figures]],
        *,
        max_age_s: Callable[[Figures], float],
        reload: bool = False,
    ) -> tuple[Figures, float]:
        """Return the figures and their age in seconds, 0 for those read just now; raises what `read` raises.

        Slow figures younger than their `max_age_s` are returned as they are, and newer ones are read in the background.
        With `reload` the caller waits for newer ones. Requests with the same key wait for the same reading.
        """
        known = None if reload else self.cached(key, read, max_age_s=max_age_s)
        return known or ((await asyncio.shield(self._read(key, read))).figures, 0.0)

    def cached(
        self, key: str, read: Callable[[], Awaitable[Figures]], *, max_age_s: Callable[[Figures], float]
    ) -> tuple[Figures, float] | None:
        """Return what `get` returns without waiting; None where it would wait."""
        known = self._cached.get(key)
        if known is None or known.took_s < SLOW_S:
            return None
        age = self._timer() - known.at
        if age <= FRESH_S:
            return known.figures, 0.0
        if age >= max_age_s(known.figures):
            return None
        self._read(key, read, after_s=self._paint_s)
        return known.figures, age

    def clear(self) -> None:
        """Drop all figures, because something was changed that the next page must show."""
        self._cached.clear()
        self._under_way.clear()

    def _read(
        self, key: str, read: Callable[[], Awaitable[Figures]], *, after_s: float = 0.0
    ) -> "asyncio.Task[_Reading[Figures]]":
        task = self._under_way.get(key)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._reading(read, after_s))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._store(key, done))
        return task

    async def _reading(self, read: Callable[[], Awaitable[Figures]], after_s: float) -> _Reading[Figures]:
        await asyncio.sleep(after_s)
        begun = self._timer()
        figures = await read()
        at = self._timer()
        return _Reading(figures=figures, at=begun, took_s=at - begun)

    def _store(self, key: str, done: "asyncio.Task[_Reading[Figures]]") -> None:
        """Store what was read, unless the cache was cleared meanwhile. A failure reaches only those who wait for it."""
        failed = done.cancelled() or done.exception() is not None
        if self._under_way.get(key) is not done:
            return
        del self._under_way[key]
        if not failed:
            self._cached.pop(key, None)
            self._cached[key] = done.result()
        while len(self._cached) > MOST:
            self._cached.pop(next(iter(self._cached)))
