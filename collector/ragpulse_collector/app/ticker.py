"""Jobs that run at an interval, one after the other, on one thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("ragpulse.collector")


@dataclass
class Job:
    """A function that runs at an interval."""

    name: str
    every_s: float
    run: Callable[[], object]
    first_s: float | None = None
    """The time before the first run; None: one interval."""
    due: float = 0.0
    failing: bool = False


class Ticker:
    """Runs jobs until stopped; the thread is a daemon, so a hanging job cannot keep the process."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ragpulse-ticker", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is a job."""
        if not self._jobs:
            return
        now = time.monotonic()
        for job in self._jobs:
            job.due = now + (job.every_s if job.first_s is None else job.first_s)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current job."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while not self._stop.is_set():
            for job in self._jobs:
                if time.monotonic() >= job.due and not self._stop.is_set():
                    _run(job)
            next_due = min(job.due for job in self._jobs)
            self._stop.wait(max(0.01, next_due - time.monotonic()))


def _run(job: Job) -> None:
    try:
        job.run()
        job.failing = False
    except Exception:  # noqa: BLE001 - the boundary of background work: log once, try again
        if not job.failing:
            _log.exception("%s failed; next attempts every %s s", job.name, job.every_s)
        job.failing = True
    job.due = time.monotonic() + job.every_s
