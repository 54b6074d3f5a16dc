"""Jobs of one kind on their way: claimed, then prepared (with their case), then under way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ragpulse_collector.worker.queue import Job
from ragpulse_collector.worker.work import Work

__all__ = ["Lane"]


@dataclass(eq=False)
class Lane:
    """What waits in it and how much may be under way; a full lane holds nobody up in the other."""

    at_once: int
    """Jobs under way, those that wait for their commit included."""
    batch: int
    """Jobs whose cases are built with one set of reads."""
    claimed: deque[Job] = field(default_factory=deque)
    ready: deque[Work] = field(default_factory=deque)
    under_way: int = 0
    streams: set[str] = field(default_factory=set)
    """The lines of jobs that were seen to belong here."""

    more: bool = True
    """Whether the store may hold further jobs for it."""

    def claim(self, job: Job) -> None:
        """Take a job in."""
        self.claimed.append(job)
        self.streams.add(job.stream)

    @property
    def low(self) -> bool:
        """Whether it is time to prepare more: what is ready would soon be used up."""
        return len(self.ready) < self.at_once

    @property
    def sated(self) -> bool:
        """Whether it needs no more jobs from the store for now."""
        return len(self.claimed) >= self.batch or not self.low

    @property
    def free(self) -> int:
        """How many more may be under way."""
        return self.at_once - self.under_way
