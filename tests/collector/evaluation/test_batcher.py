"""What many ask for is done in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ragpulse_collector.evaluation.batcher import Batcher


class Doubling:
    """Doubles numbers, a group at a time, and waits in between until it may go on."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, numbers: list[int]) -> Sequence[int]:
        self.groups.append(numbers)
        await self.go.wait()
        if 13 in numbers:
            raise ValueError("13")
        return [2 * number for number in numbers]


async def test_what_gathers_during_one_group_is_the_next() -> None:
    """One goes first, the others that came meanwhile share the second group; each gets its own answer."""
    work = Doubling()
    double = Batcher(work, every_s=0.0)
    first = asyncio.create_task(double(1))
    while not work.groups:
        await asyncio.sleep(0)
    others = [asyncio.create_task(double(number)) for number in range(2, 7)]
    await asyncio.sleep(0)
    work.go.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8, 10, 12]
    assert work.groups == [[1], [2, 3, 4, 5, 6]]


async def test_a_failed_group_fails_for_everyone_in_it_and_the_next_goes_on() -> None:
    """Nobody waits for ever, and the failure does not stick."""
    work = Doubling()
    work.go.set()
    double = Batcher(work, every_s=0.0)
    failed = await asyncio.gather(double(1), double(13), return_exceptions=True)
    assert [str(error) for error in failed] == ["13", "13"]
    assert await double(4) == 8


async def test_who_gives_up_does_not_disturb_the_others() -> None:
    """A cancelled item is done all the same; its neighbours are answered."""
    work = Doubling()
    double = Batcher(work, every_s=0.0)
    tasks = [asyncio.create_task(double(number)) for number in (1, 2)]
    while not work.groups:
        await asyncio.sleep(0)
    tasks[0].cancel()
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert await tasks[1] == 4
