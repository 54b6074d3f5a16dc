"""Figures that took long are shown again with their age, and newer ones are read in the background."""

import asyncio

import pytest

from ragpulse_dashboards.cache import FRESH_S, PageCache


class Reader:
    """Counts its readings; each takes as long as it says on the clock it is."""

    def __init__(self, takes_s: float) -> None:
        self.now, self.takes_s, self.readings, self.failing = 100.0, takes_s, 0, False
        self.cache: PageCache[int] = PageCache(timer=lambda: self.now, paint_s=0.0)

    async def _read(self) -> int:
        if self.failing:
            raise OSError("no memory")
        self.now += self.takes_s
        self.readings += 1
        return self.readings

    async def ask(self, *, reload: bool = False) -> tuple[int, float]:
        """What a page is given, and its age."""
        return await self.cache.get("page", self._read, max_age_s=lambda _: 60.0, reload=reload)


async def settle() -> None:
    """Let the readings under way end: each needs a few turns of the loop, and no time."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_slow_figures_are_shown_with_their_age_while_newer_ones_are_read() -> None:
    """The second page waits for nothing, the third has the new figures."""
    reader = Reader(takes_s=1.0)
    assert await reader.ask() == (1, 0.0)
    reader.now += 30.0
    assert await reader.ask() == (1, 31.0)
    await settle()
    assert await reader.ask() == (2, 0.0)
    assert reader.readings == 2


async def test_quick_figures_are_read_for_every_page() -> None:
    """A small store shows each trace at once."""
    reader = Reader(takes_s=0.01)
    assert [await reader.ask(), await reader.ask()] == [(1, 0.0), (2, 0.0)]


async def test_figures_beyond_the_max_age_age_are_waited_for() -> None:
    """So are those that somebody wants anew, and the first after something was changed."""
    reader = Reader(takes_s=1.0)
    await reader.ask()
    reader.now += 60.0
    assert await reader.ask() == (2, 0.0)
    assert await reader.ask(reload=True) == (3, 0.0)
    reader.cache.clear()
    assert await reader.ask() == (4, 0.0)


async def test_a_page_asked_for_by_many_at_once_is_read_once() -> None:
    """Whoever comes meanwhile waits for the same reading."""
    reader = Reader(takes_s=1.0)
    assert await asyncio.gather(*(reader.ask() for _ in range(5))) == [(1, 0.0)] * 5


async def test_a_failed_reading_is_told_to_who_waits_for_it() -> None:
    """A reading behind a page that fails leaves the old figures in place."""
    reader = Reader(takes_s=1.0)
    await reader.ask()
    reader.failing = True
    reader.now += 2 * FRESH_S
    assert (await reader.ask())[0] == 1
    await settle()
    assert (await reader.ask())[0] == 1
    with pytest.raises(OSError, match="no memory"):
        await reader.ask(reload=True)
