"""What one process at a time does, however many receive: deciding, evaluating, clean-up, monitors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from ragpulse_collector.app.memory import release_startup_code
from ragpulse_collector.app.ticker import Job, Ticker
from ragpulse_collector.evaluation import DriftWatch, Worker
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.sampling import Pacer, Sampler
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.retention import prune, prune_to_size
from ragpulse_collector.store.rows import utc_now

if TYPE_CHECKING:
    from ragpulse_collector.store.lake import Lease

_log = logging.getLogger("ragpulse.collector")
DECIDE_EVERY_S = {False: 0.25, True: 2.0}
"""How often units are decided; on a lake each time is a commit to the catalog that all its processes share."""
PACE_EVERY_S = 60.0
MONITOR_EVERY_S = 60.0
PRUNE_EVERY_S = 3600.0
CHECK_EVERY_S = 3600.0
MERGE_EVERY_S = 300.0
LEASE_EVERY_S = 5.0
RELEASE_EVERY_S, RELEASE_FIRST_S = 3600.0, 0.5
LOOK_EVERY_S = 60.0
"""How often the sampler looks while nothing arrives ..."""
LINGER_S = 5.0
"""... and how long after the last arrival, beside the time that a unit may wait, it goes on as ever."""
GB = 10**9


class Duties:
    """Does what the roles say, alone or while it holds the lease."""

    def __init__(
        self,
        store: Store,
        told: CollectorSettings,
        *,
        sampler: Sampler,
        pacer: Pacer,
        worker: Worker,
        monitors: Monitors,
        drift: DriftWatch,
        arrivals: Callable[[], int],
    ) -> None:
        """`arrivals` counts what came in and may have to be decided; it grows with everything that does."""
        self._store, self._told, self._arrivals = store, told, arrivals
        self._arrived, self._busy_until, self._next_look = arrivals(), 0.0, 0.0
        self._sampler, self._pacer = sampler, pacer
        self._worker, self._monitors = worker, monitors
        self._drift, self._checking = drift, threading.Thread()
        self._lease = _lease(told.db) if set(told.roles) & {"evaluate", "maintain"} else None
        self._leading = False
        self._ticker = Ticker(self._jobs())

    def start(self) -> None:
        """Start the jobs, and at once the worker where there is nobody to ask."""
        if self._lease is None:
            self._lead()
        self._ticker.start()

    def stop(self) -> None:
        """Stop after what is in hand, and let another process take over."""
        self._ticker.stop()
        self._worker.stop()
        if self._lease is not None:
            self._lease.release()

    def _lead(self) -> None:
        self._leading = True
        if "evaluate" in self._told.roles:
            self._worker.start()

    def _try_to_lead(self) -> None:
        held = self._lease is not None and self._lease.take()
        if held and not self._leading:
            _log.info("this process evaluates and maintains from now on")
            self._lead()
        elif self._leading and not held:
            _log.warning("the lease was lost: another process evaluates and maintains")
            self._leading = False
            self._worker.stop()

    def _jobs(self) -> list[Job]:
        jobs = []
        if "evaluate" in self._told.roles:
            jobs.append(Job("deciding units", DECIDE_EVERY_S[self._told.on_a_lake], self._decide))
            jobs.append(Job("pacing the sampling", PACE_EVERY_S, self._pace, first_s=0.0))
            jobs.append(Job("checking judges", CHECK_EVERY_S, self._check_judges))
        if "maintain" in self._told.roles:
            jobs.append(Job("retention", PRUNE_EVERY_S, self._prune))
            jobs.append(Job("monitors", MONITOR_EVERY_S, self._monitors.check))
            merge = getattr(self._store, "maintain", None)
            if merge is not None:
                jobs.append(Job("merging the lake's files", MERGE_EVERY_S, merge))
        for job in jobs:
            job.run = partial(self._if_leading, job.run)
        jobs.append(Job("releasing startup code", RELEASE_EVERY_S, release_startup_code, first_s=RELEASE_FIRST_S))
        if self._lease is not None:
            jobs.append(Job("taking the lease", LEASE_EVERY_S, self._try_to_lead))
        return jobs

    def _if_leading(self, run: Callable[[], object]) -> None:
        if self._leading:
            run()

    def _pace(self) -> None:
        self._pacer.update(utc_now())

    def _check_judges(self) -> None:
        """Beside the other jobs: a judge may take minutes to answer."""
        if not self._checking.is_alive():
            self._checking = threading.Thread(target=self._drift.run_due, name="ragpulse-drift", daemon=True)
            self._checking.start()

    def _prune(self) -> None:
        oldest = oldest_kept(utc_now(), days=self._told.retention_days, whole_days=self._told.on_a_lake)
        prune(self._store, older_than=oldest)
        prune_to_size(self._store, int(self._told.retention_gb * GB))

    def _decide(self) -> None:
        """Decide what is due; where nothing arrives the store is left alone, so that an idle collector is idle."""
        arrived, now = self._arrivals(), time.monotonic()
        if arrived != self._arrived or self._told.on_a_lake:
            self._arrived, self._busy_until = arrived, now + self._told.settle_s + self._told.quiet_s + LINGER_S
        if now > self._busy_until and now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        if self._sampler.decide(utc_now()):
            self._worker.wake()


def oldest_kept(now: datetime, *, days: float, whole_days: bool) -> datetime:
    """Return the time before which requests are too old; `whole_days`: at midnight, where a file holds one day."""
    oldest = now - timedelta(days=days)
    return oldest.replace(hour=0, minute=0, second=0, microsecond=0) if whole_days else oldest


def _lease(db: str) -> Lease | None:
    """The right to evaluate and maintain, where several processes may want it."""
    shared = "ducklake:postgres:"
    if not db.startswith(shared):
        return None
    from ragpulse_collector.store.lake import Lease
    from ragpulse_collector.store.opening import lake_parts

    return Lease(lake_parts(db)[0].removeprefix(shared))
