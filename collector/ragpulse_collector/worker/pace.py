"""How fast a judge may be asked: requests a minute, and rest after it has refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Pace", "backoff_s"]


class Pace:
    """A bucket of requests refilled evenly over the minute; None never waits.

    A multi-call job takes its calls in advance and gives back those it did not make.
    """

    def __init__(self, requests_per_minute: int | None, *, now: Callable[[], float]) -> None:
        self._rate = None if requests_per_minute is None else requests_per_minute / 60.0
        self._now = now
        self._free_at = now()
        self._rest_until = now()

    async def take(self, calls: int) -> None:
        """Wait until this many calls may be made."""
        while (wait := self._wait()) > 0:
            await asyncio.sleep(wait)
        if self._rate is not None:
            self._free_at = max(self._free_at, self._now()) + max(1, calls) / self._rate

    def give_back(self, calls: int) -> None:
        """Return calls that were taken and not made."""
        if self._rate is not None and calls > 0:
            self._free_at -= calls / self._rate

    def rest(self, seconds: float) -> None:
        """Ask nothing for a while: the provider refused."""
        self._rest_until = max(self._rest_until, self._now() + seconds)

    def _wait(self) -> float:
        free_at = self._free_at if self._rate is not None else 0.0
        return max(free_at, self._rest_until) - self._now()


def backoff_s(failures: int, *, chance: float, first: float = 0.5, most: float = 60.0) -> float:
    """Seconds to wait after this many failures in a row: doubling, capped, spread by `chance` in [0, 1)."""
    return min(most, first * 2.0 ** min(failures - 1, 20)) * (0.5 + chance / 2.0)
