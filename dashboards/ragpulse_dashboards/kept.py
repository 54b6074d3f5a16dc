"""Figures that took long to read: shown again for a while, with their age, and read anew behind the page."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["Kept"]

Figures = TypeVar("Figures")

FRESH_S: Final = 1.0
"""Figures up to this age are as good as new."""
SLOW_S: Final = 0.1
"""What is read faster than this is read for every request: a small store shows each trace at once."""
PAINT_S: Final = 0.5
"""The new reading begins so long after the old one was shown: the browser draws undisturbed."""
MOST: Final = 8
"""So many pages are kept, those read last: each may hold a megabyte."""


@dataclass(frozen=True, kw_only=True)
class _Reading(Generic[Figures]):
    figures: Figures
    at: float
    took_s: float


class Kept(Generic[Figures]):
    """What was read for a page lately, by the page's question."""

    def __init__(self, *, timer: Callable[[], float] = time.monotonic, paint_s: float = PAINT_S) -> None:
        self._timer, self._paint_s = timer, paint_s
        self._known: dict[str, _Reading[Figures]] = {}
        self._under_way: dict[str, asyncio.Task[_Reading[Figures]]] = {}

    async def of(
        self,
        key: str,
        read: Callable[[], Awaitable[Figures]],
        *,
        bearable_s: Callable[[Figures], float],
        anew: bool = False,
    ) -> tuple[Figures, float]:
        """Return the figures and their age in seconds, 0 for those read just now; raises what `read` raises.

        Figures that took long are returned as they are while younger than `bearable_s` of them, and read anew behind.
        Who wants them `anew` waits for that reading, as does whoever asks the same meanwhile.
        """
        known = None if anew else self.known(key, read, bearable_s=bearable_s)
        return known or ((await asyncio.shield(self._read(key, read))).figures, 0.0)

    def known(
        self, key: str, read: Callable[[], Awaitable[Figures]], *, bearable_s: Callable[[Figures], float]
    ) -> tuple[Figures, float] | None:
        """Return what `of` need not wait for; None where it would."""
        known = self._known.get(key)
        if known is None or known.took_s < SLOW_S:
            return None
        age = self._timer() - known.at
        if age <= FRESH_S:
            return known.figures, 0.0
        if age >= bearable_s(known.figures):
            return None
        self._read(key, read, after_s=self._paint_s)
        return known.figures, age

    def forget(self) -> None:
        """Somebody changed something: the next page shows it."""
        self._known.clear()
        self._under_way.clear()

    def _read(
        self, key: str, read: Callable[[], Awaitable[Figures]], *, after_s: float = 0.0
    ) -> "asyncio.Task[_Reading[Figures]]":
        task = self._under_way.get(key)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._reading(read, after_s))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._keep(key, done))
        return task

    async def _reading(self, read: Callable[[], Awaitable[Figures]], after_s: float) -> _Reading[Figures]:
        await asyncio.sleep(after_s)
        begun = self._timer()
        figures = await read()
        at = self._timer()
        return _Reading(figures=figures, at=begun, took_s=at - begun)

    def _keep(self, key: str, done: "asyncio.Task[_Reading[Figures]]") -> None:
        """Keep what was read, unless something was changed meanwhile; a failure is told to who waits for it, if any."""
        failed = done.cancelled() or done.exception() is not None
        if self._under_way.get(key) is not done:
            return
        del self._under_way[key]
        if not failed:
            self._known.pop(key, None)
            self._known[key] = done.result()
        while len(self._known) > MOST:
            self._known.pop(next(iter(self._known)))
