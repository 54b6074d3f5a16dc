"""The worker: claims pending jobs, builds their cases, and runs as many jobs at once as their pool allows."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ragpulse_collector.evaluation.attempts import AttemptOptions, JobRunner, RunningJobs, count_interrupted
from ragpulse_collector.evaluation.batcher import commit
from ragpulse_collector.evaluation.budget import Ledger
from ragpulse_collector.evaluation.jobs import (
    LONG_AGO,
    Evaluators,
    Job,
    JobPool,
    Resolve,
    Work,
    gate_of,
    pending,
    prepare,
)
from ragpulse_collector.evaluation.scores import ImmediateScorer, Throttle, append_verdicts
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.runs import Run, close_finished, latest_runs
from ragpulse_evaluators import Evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.wrappers import Gate

_log = logging.getLogger(__name__)
_BATCH = 512
"""Jobs without a judge in one batch, and running at once: jobs of a batch share reads and commits."""
_IMMEDIATE = 1024
"""Jobs that never wait, in one batch: a read costs nearly the same for one trace as for a hundred."""
_OWN = 64
"""Jobs of one evaluator that may wait without a judge, in one batch and running at once: each has its own pool."""
_FETCH = 8192
"""Jobs read from the store at once."""
_THREADS = 64
_LAST_S, _CANCEL_S = 2.0, 0.5
"""How long a stop waits for evaluations, and then for cancelled ones: Docker kills a process after ten seconds."""


@dataclass(eq=False)
class Worker:
    """Evaluates pending jobs in a thread of its own until `stop`.

    Call `wake` when jobs were added; a poll finds other new jobs. A judge passes its own gate with each request; one
    without (an evaluator's own) holds `gate` for the whole case. Evaluators without a judge run beside them. Evaluators
    that never wait run in one thread that `throttle` slows down. A job may become visible `skew` later than its
    `created_at`: minutes later if other processes write to the store.
    """

    store: Store
    resolve: Resolve
    ledger: Ledger
    _: KW_ONLY
    gate: Gate = field(default_factory=lambda: Gate(4))
    options: AttemptOptions = field(default_factory=AttemptOptions)
    throttle: Throttle = field(default_factory=Throttle)
    poll_s: float = 1.0
    skew: timedelta = timedelta(minutes=10)
    clock: Clock = utc_now
    running_jobs: Path | None = None

    def __post_init__(self) -> None:
        self._evaluators = Evaluators(self.store, self.resolve)
        self._noted = RunningJobs(self.running_jobs)
        self._immediate_scorer = ImmediateScorer(self.store, self.throttle, self.clock)
        self._wakes = self._wakes_read = 0
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: defaultdict[str, int] = defaultdict(int)
        """Results since start by status (`error` counts attempts), plus `dropped` and `reused`."""

    def start(self) -> None:
        """Start the thread; it continues with pending jobs of earlier processes."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name="ragpulse-worker", daemon=True)
        self._thread.start()
        ready.wait()

    def wake(self) -> None:
        """Announce new jobs (any thread); it is cheap."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            self._wakes += 1
            self._idle.clear()
            self._call(loop, self._signal.set)

    def stop(self, timeout_s: float = _LAST_S) -> None:
        """Wait `timeout_s` for running evaluations, then cancel them; cancelled jobs stay pending.

        The reservation of a cancelled call stays, as after a crash: the judge may bill the call.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._last_s = timeout_s
        self._call(loop, self._runner.stopping.set)
        self._call(loop, self._signal.set)
        thread.join(timeout_s + _CANCEL_S)

    @staticmethod
    def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the thread ended, and closed its loop, between two calls
            loop.call_soon_threadsafe(callback)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: no new job begins."""
        return self._runner.stopping.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is pending or running (any thread); False when that took too long."""
        self.wake()
        return self._idle.wait(timeout_s)

    def _main(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            # The default has six threads on two cores: names that resolve slowly for one judge would stop all reads.
            self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="ragpulse-evaluate"))
            runner.run(self._run(ready))

    async def _run(self, ready: threading.Event) -> None:
        self._judged: dict[Gate, JobPool] = {}
        self._free = JobPool(at_once=_BATCH, batch=_BATCH)
        self._immediate = JobPool(at_once=1, batch=_IMMEDIATE)
        self._own: dict[Evaluator, JobPool] = {}
        self._signal = asyncio.Event()
        self._claimed: set[str] = set()
        self._running: dict[str, Run] = {}
        self._since = LONG_AGO
        self._read_at = -math.inf
        self._runner = JobRunner(
            self.store,
            self.ledger,
            self.gate,
            options=self.options,
            running=self._noted,
            clock=self.clock,
            counts=self.counts,
            run_ended=self._forget_run,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        ready.set()
        await self._count_interrupted()
        while not self.stopping:
            await self._turn()
        await self._drain()
        await asyncio.gather(self._evaluators.close_idle(), return_exceptions=True)
        self._noted.clear()  # a cancelled job is no crash

    async def _count_interrupted(self) -> None:
        try:
            await asyncio.to_thread(
                count_interrupted,
                self.store,
                self.ledger,
                self._noted,
                evaluator_of=self._evaluator,
                now=self.clock(),
            )
        except Exception:  # noqa: BLE001 - the boundary of the start: attempts that are not counted stop nothing
            _log.exception("could not count the evaluations that ran when the collector ended")

    async def _turn(self) -> None:
        """Prepare pending jobs, or wait for a signal."""
        self._signal.clear()
        wakes = self._wakes
        try:
            moved = await self._advance()
        except Exception:  # noqa: BLE001 - the boundary of the loop: a failed read must not end evaluation
            _log.exception("could not claim evaluation jobs; trying again")
            await self._runner.pause(self.options.retry.first_s * 10)
            self._read_at = -math.inf
            return
        if moved:
            return
        if not self._claimed:
            await asyncio.to_thread(close_finished, self.store)
            if wakes == self._wakes:
                self._idle.set()
        try:
            async with asyncio.timeout(self.poll_s):
                await self._signal.wait()
        except TimeoutError:
            return

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._last_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _advance(self) -> bool:
        """Claim and prepare jobs for the pools that run low; returns whether there were any."""
        if self._should_read():
            await self._read_jobs()
        moved = False
        for pool in (self._free, *self._judged.values(), *self._own.values()):
            if pool.claimed and pool.is_low:
                await self._prepare(pool)
                moved = True
        if self._immediate.claimed and self._immediate.n_free:
            self._start(self._immediate, self._score_all)
            moved = True
        return moved

    def _should_read(self) -> bool:
        """Whether the store may have jobs that a pool needs: after `wake`, after `poll_s`, or if there may be more."""
        if self._wakes != self._wakes_read or time.monotonic() - self._read_at >= self.poll_s:
            return True
        return any(pool.more and not pool.is_full for pool in self._pools)

    async def _read_jobs(self) -> None:
        self._wakes_read, self._read_at = self._wakes, time.monotonic()
        runs = await asyncio.to_thread(latest_runs, self.store, status="running")
        self._running = runs
        await self._claim()

    async def _claim(self) -> None:
        """Fetch jobs for the pools that need some."""
        full = [pool for pool in self._pools if pool.is_full]
        now = self.clock()
        if self._since > now:  # the clock was set back: jobs may have been made before this instant
            self._since = LONG_AGO
        waiting = await asyncio.to_thread(
            pending,
            self.store,
            limit=_FETCH,
            since=self._since,
            runs=tuple(self._running),
            skew=self.skew,
            claimed=tuple(self._claimed),
            full={stream for pool in full for stream in pool.streams},
        )
        self._since = min(waiting.since, now)
        for pool in self._pools:
            pool.more = pool in full or len(waiting.jobs) == _FETCH
        for job in filter(self._is_wanted, waiting.jobs):
            self._idle.clear()
            self._claimed.add(job.job_id)
            self._pool_of(self._evaluator(job)).claim(job)

    def _pool_of(self, evaluator: Evaluator) -> JobPool:
        if evaluator.immediate:
            return self._immediate
        if evaluator.judge is None or isinstance(evaluator, Isolated):
            return self._own.setdefault(evaluator, JobPool(at_once=_OWN, batch=_OWN))
        gate = gate_of(evaluator) or self.gate
        at_once = 3 * gate.concurrency  # while some wait for their judge others are read and written
        batch = min(_BATCH, max(16, at_once))
        return self._judged.setdefault(gate, JobPool(at_once=at_once, batch=batch))

    @property
    def _pools(self) -> tuple[JobPool, ...]:
        return (self._immediate, self._free, *self._judged.values(), *self._own.values())

    def _forget_run(self, run_id: str) -> None:
        """Drop the claims of a replay that was capped or failed."""
        self._running.pop(run_id, None)
        self._read_at = -math.inf
        self._signal.set()

    def _is_wanted(self, job: Job) -> bool:
        """Whether the job belongs to no replay or to a running one."""
        return job.run_id is None or job.run_id in self._running

    async def _prepare(self, pool: JobPool) -> None:
        """Build the cases of a batch with few reads, and start as many jobs as the pool allows."""
        jobs = list(islice(pool.claimed, pool.batch))
        works = await asyncio.to_thread(prepare, self.store, self._with_evaluators(jobs))
        self._remove_claims(pool, jobs, works)
        self._make_ready(pool, works)

    def _with_evaluators(self, jobs: Iterable[Job]) -> list[tuple[Job, Run | None, Evaluator]]:
        """Return the jobs that are still wanted, with their replay and evaluator."""
        return [
            (job, self._running.get(job.run_id or ""), self._evaluator(job)) for job in jobs if self._is_wanted(job)
        ]

    def _remove_claims(self, pool: JobPool, jobs: Sequence[Job], works: Iterable[Work]) -> None:
        """Remove jobs from the pool, and from the claims except those in `works`; call it after what may fail."""
        for _ in jobs:
            pool.claimed.popleft()
        self._claimed.difference_update({job.job_id for job in jobs}.difference(work.job.job_id for work in works))

    def _make_ready(self, pool: JobPool, works: Iterable[Work]) -> None:
        pool.ready.extend(works)
        for _ in range(min(pool.n_free, len(pool.ready))):
            self._start(pool, partial(self._run_jobs, pool))

    def _start(self, pool: JobPool, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pool.running += 1
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _score_all(self) -> None:
        """Score batch after batch of the jobs whose evaluators never wait."""
        try:
            while self._immediate.claimed and not self.stopping:
                await self._score_batch(self._immediate)
                self._signal.set()
        except Exception:  # noqa: BLE001 - the boundary of a batch: its jobs stay claimed and are tried again
            _log.exception("a batch of evaluations failed; its jobs stay pending")
            await self._runner.pause(self.options.retry.first_s * 10)
        finally:
            self._immediate.running -= 1
            self._signal.set()

    async def _score_batch(self, pool: JobPool) -> None:
        jobs = list(islice(pool.claimed, pool.batch))
        scored = await asyncio.to_thread(
            self._immediate_scorer, self._with_evaluators(jobs), self._runner.stopping.is_set
        )
        await commit(self.store, lambda tx: append_verdicts(tx, self.ledger, scored.verdicts))
        for verdict in scored.verdicts:
            self.counts["reused" if verdict.result is None else verdict.result.status] += 1
        self._remove_claims(pool, jobs, scored.unfinished)
        self._make_ready(self._free, scored.unfinished)

    def _evaluator(self, job: Job) -> Evaluator:
        return self._evaluators(job.evaluator, self._running.get(job.run_id or ""))

    async def _run_jobs(self, pool: JobPool) -> None:
        """Run one job after another while any is ready."""
        try:
            while pool.ready and not self.stopping:
                work = pool.ready.popleft()
                if len(pool.ready) == pool.at_once - 1:
                    self._signal.set()
                await self._run_job(work)
        finally:
            pool.running -= 1
            self._signal.set()

    async def _run_job(self, work: Work) -> None:
        job = work.job
        try:
            if self._is_wanted(job):
                await self._runner(work)
        except Exception:  # noqa: BLE001 - the boundary of a job: it stays pending and the others go on
            _log.exception("evaluating %s failed; the job stays pending", job)
            await self._runner.pause(self.options.retry.first_s * 10)
            self._read_at = -math.inf
        finally:
            self._claimed.discard(job.job_id)
