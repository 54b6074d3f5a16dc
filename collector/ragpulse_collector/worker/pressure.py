"""Background work gives way: all of a core while nobody waits, a small share of it while somebody does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Pressure"]


def _nobody() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """Tells work how long to rest between its slices.

    Python runs one thread at a time: what a slice takes, whoever sends spans or opens a page waits for. The share is
    a floor as well, so that a queue before a collector that is never idle still moves.
    """

    busy: Callable[[], bool] = _nobody
    """Whether somebody waits for an answer now; asked once a slice, in any thread."""
    share: float = 0.15
    """Of a core, in CPU time, while somebody waits."""
    slice_s: float = 0.005
    """CPU seconds of work between two looks."""
    spent: Callable[[], float] = time.thread_time
    """CPU seconds of the thread that works."""
    sleep: Callable[[float], object] = time.sleep

    def begin(self) -> Callable[[], None]:
        """Begin to work in this thread: what is returned is called between small pieces of the work, and may rest."""
        began = self.spent()

        def breathe() -> None:
            nonlocal began
            worked = self.spent() - began
            if worked < self.slice_s:
                return
            if self.busy():
                self.sleep(worked * (1.0 / self.share - 1.0))
            began = self.spent()

        return breathe
