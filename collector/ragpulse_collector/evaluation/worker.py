"""The worker: claims pending jobs for lanes, each a source of the engine that builds its cases batch by batch."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path

from ragpulse_collector.catalog import CheckLoad
from ragpulse_collector.evaluation.attempts import AttemptOptions, JobRunner, RunningJobs, count_interrupted
from ragpulse_collector.evaluation.budget import Ledger
from ragpulse_collector.evaluation.jobs import (
    LONG_AGO,
    Evaluators,
    Job,
    Lane,
    Resolve,
    Work,
    pending,
    prepare,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.runs import Run, close_finished, latest_runs
from ragpulse_evaluators import Case, Evaluator, get_evaluator
from ragpulse_evaluators.checks import Checks, checked
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.wrappers import Gate
from ragpulse_evaluators.runner import LAST_S, gate_of

_log = logging.getLogger(__name__)
_BATCH = 512
"""The most judged jobs in one batch: jobs of a batch share reads and commits."""
_CHECKED = 1024
"""Jobs that never wait, in one batch: a read costs nearly the same for one trace as for a hundred."""
_CHECKED_BATCHES = 2
"""Such batches at once: the cases of one are read, or its results stored, while another is scored."""
_KEPT = 0.8
"""What a result leaves of the weight of those before, in the speed of the checks."""
_OWN = 64
"""Jobs of one evaluator that may wait without a judge, in one batch and running at once: each has its own lane."""
_FETCH = 8192
"""Jobs read from the store at once."""
_THREADS = 64
_CANCEL_S = 0.5
"""How long a stop waits for cancelled evaluations."""


@dataclass(eq=False)
class Worker:
    """Evaluates pending jobs in a thread of its own until `stop`.

    Call `wake` when jobs were added; a poll finds other new jobs. A judge passes its own gate with each request; one
    without (an evaluator's own) holds `gate` for the whole case. Evaluators without a judge run beside them, those that
    never wait in batches, by `checks`. A job may become visible `skew` later than its `created_at`: minutes later if
    other processes write to the store.
    """

    store: Store
    resolve: Resolve
    ledger: Ledger
    _: KW_ONLY
    gate: Gate = field(default_factory=lambda: Gate(4))
    options: AttemptOptions = field(default_factory=AttemptOptions)
    checks: Checks = field(default_factory=Checks)
    poll_s: float = 1.0
    skew: timedelta = timedelta(minutes=10)
    clock: Clock = utc_now
    running_jobs: Path | None = None
    resolve_anew: Resolve | None = None
    """Makes evaluators without recorded calls, for checks of a judge; None: `resolve`."""
    run_done: Callable[[list[str]], None] = lambda _: None
    """Called with the runs whose every job is finished."""

    def __post_init__(self) -> None:
        self._evaluators = Evaluators(self.store, self.resolve, self.resolve_anew or self.resolve)
        self._noted = RunningJobs(self.running_jobs)
        self._wakes = self._wakes_read = 0
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: defaultdict[str, int] = defaultdict(int)
        """Results since start by status (`error` counts attempts), plus `dropped` and `reused`."""
        self._checked_at: float | None = None
        self._checking = 0
        self._busy_s = self._done = 0.0

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

    def stop(self, timeout_s: float = LAST_S) -> None:
        """Wait `timeout_s` for running evaluations, then cancel them; cancelled jobs stay pending.

        The reservation of a cancelled call stays, as after a crash: the judge may bill the call.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._runner.engine.last_s = timeout_s
        self._call(loop, self._end)
        thread.join(timeout_s + _CANCEL_S)

    @staticmethod
    def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the thread ended, and closed its loop, between two calls
            loop.call_soon_threadsafe(callback)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: no new job begins."""
        return self._runner.engine.stopping.is_set()

    def _end(self) -> None:
        self._runner.engine.stopping.set()
        self._signal.set()
        for lane in self._lanes:
            lane.end()

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
        self._lanes_of: dict[Evaluator | Gate | str, Lane] = {}
        self._signal = asyncio.Event()
        self._claimed: set[str] = set()
        self._running: dict[str, Run] = {}
        self._since = LONG_AGO
        self._read_at = -math.inf
        self._runner = JobRunner(
            self.store,
            self.ledger,
            self.gate,
            self.checks,
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
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._evaluators.close_idle(), self.checks.aclose(), return_exceptions=True)
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
        """Read pending jobs where a lane needs some, then wait for a signal."""
        self._signal.clear()
        wakes = self._wakes
        try:
            if self._should_read():
                await self._read_jobs()
        except Exception:  # noqa: BLE001 - the boundary of the loop: a failed read must not end evaluation
            await self._recover("could not claim evaluation jobs")
            return
        if not self._claimed:
            if any(lane.more and not lane.is_full for lane in self._lanes):
                return  # a lane ran empty while it was still left out of the read
            for lane in self._lanes:
                lane.end()
            self._lanes_of.clear()
            if done := await asyncio.to_thread(close_finished, self.store):
                await asyncio.to_thread(self.run_done, done)
            if wakes == self._wakes:
                self._idle.set()
        try:
            async with asyncio.timeout(self.poll_s):
                await self._signal.wait()
        except TimeoutError:
            return

    def _should_read(self) -> bool:
        """Whether the store may have jobs that a lane needs: after `wake`, after `poll_s`, or if there may be more."""
        if self._wakes != self._wakes_read or time.monotonic() - self._read_at >= self.poll_s:
            return True
        return any(lane.more and not lane.is_full for lane in self._lanes)

    async def _read_jobs(self) -> None:
        self._wakes_read, self._read_at = self._wakes, time.monotonic()
        runs = await asyncio.to_thread(latest_runs, self.store, status="running")
        self._running = runs
        await self._claim()

    async def _claim(self) -> None:
        """Fetch jobs for the lanes that need some."""
        full = [lane for lane in self._lanes if lane.is_full]
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
            full={stream for lane in full for stream in lane.streams},
        )
        self._since = min(waiting.since, now)
        for lane in self._lanes:
            lane.more = lane in full or len(waiting.jobs) == _FETCH
        wanted: defaultdict[Lane, list[Job]] = defaultdict(list)
        for job in filter(self._is_wanted, waiting.jobs):
            self._idle.clear()
            self._claimed.add(job.job_id)
            wanted[self._lane_of(self._evaluator(job))].append(job)
        for lane, jobs in wanted.items():
            lane.claim(jobs)

    def _lane_of(self, evaluator: Evaluator) -> Lane:
        """Return the lane of an evaluator: of all that never wait, of all with one gate, or its own."""
        if evaluator.immediate:
            return self._lane("checks", Lane(at_once=_CHECKED_BATCHES, batch=_CHECKED, by_time=True))
        if evaluator.judge is None or isinstance(evaluator, Isolated):
            return self._lane(evaluator, Lane(at_once=_OWN, batch=_OWN))
        gate = gate_of(evaluator) or self.gate
        at_once = 3 * gate.concurrency  # while some wait for their judge others are read and written
        return self._lane(gate, Lane(at_once=at_once, batch=min(_BATCH, max(16, at_once))))

    def _lane(self, key: Evaluator | Gate | str, new: Lane) -> Lane:
        """Return the lane under a key; a new one starts to run."""
        lane = self._lanes_of.setdefault(key, new)
        if lane is new:
            run = self._runner.engine.run
            task = asyncio.create_task(
                run(self._batches(lane), lane.at_once, self._check)
                if key == "checks"
                else run(self._works(lane), lane.at_once, self._run_job)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return lane

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return tuple(self._lanes_of.values())

    def _forget_run(self, run_id: str) -> None:
        """Drop the claims of a replay that was capped or failed."""
        self._running.pop(run_id, None)
        self._read_at = -math.inf
        self._signal.set()

    def _is_wanted(self, job: Job) -> bool:
        """Whether the job belongs to no replay or to a running one."""
        return job.run_id is None or job.run_id in self._running

    async def _works(self, lane: Lane) -> AsyncIterator[Work]:
        async for batch in self._batches(lane):
            for work in batch:
                yield work

    async def _batches(self, lane: Lane) -> AsyncIterator[Sequence[Work]]:
        """Yield the jobs of a lane with their cases, which are built in batches, with few reads."""
        while await self._is_filled(lane):
            jobs = list(islice(lane.claimed, lane.batch))
            try:
                works = await asyncio.to_thread(prepare, self.store, self._with_evaluators(jobs))
            except Exception:  # noqa: BLE001 - the boundary of a batch: its jobs stay claimed and are tried again
                await self._recover("could not build the cases of evaluations")
                continue
            self._remove_claims(lane, jobs, works)
            yield works

    async def _check(self, works: Sequence[Work]) -> None:
        self._checking += len(works)
        try:
            if await self._runner.check([work for work in works if self._is_wanted(work.job)]):
                await self._runner.engine.pause(self.options.retry.first_s)
                self._wakes += 1
            self._note_speed(works)
        except Exception:  # noqa: BLE001 - the boundary of a batch: its jobs stay pending and are tried again
            await self._recover("a batch of evaluations failed")
        finally:
            self._checking -= len(works)
            self._claimed.difference_update(work.job.job_id for work in works)
            self._signal.set()

    def _note_speed(self, works: Sequence[Work]) -> None:
        """Count the time between two batches where others waited: it reads, scores and commits."""
        now, lane = time.monotonic(), self._lanes_of.get("checks")
        if self._checked_at is not None:
            self._busy_s = self._busy_s * _KEPT + now - self._checked_at
            self._done = self._done * _KEPT + len(works)
        self._checked_at = now if lane and lane.claimed else None

    @property
    def check_load(self) -> CheckLoad | None:
        """The work of the checks that never wait; None before they were busy (any thread)."""
        if not self._done:
            return None
        lane, each_s = self._lanes_of.get("checks"), self._busy_s / self._done
        return CheckLoad(each_s, self._checking + (len(lane.claimed) if lane else 0), lane is not None and lane.more)

    def refused(self, responses: Sequence[str]) -> list[bool | None]:
        """Return which responses decline to answer, by the check `refusal` (any thread); None where it failed."""
        refusal = get_evaluator("refusal")
        works, loop = [(refusal, Case(response=response)) for response in responses], self._loop
        if loop is None or loop.is_closed():
            found = checked(works)
        else:
            found = asyncio.run_coroutine_threadsafe(self.checks.score(works), loop).result()
        return [None if result.status == "error" else result.label == "refused" for _, result in found]

    async def _is_filled(self, lane: Lane) -> bool:
        """Wait for jobs; returns False where the lane ended."""
        while not (lane.claimed or lane.ended):
            lane.filled.clear()
            await lane.filled.wait()
        return not lane.ended

    def _with_evaluators(self, jobs: Iterable[Job]) -> list[tuple[Job, Run | None, Evaluator]]:
        """Return the jobs that are still wanted, with their replay and evaluator."""
        return [
            (job, self._running.get(job.run_id or ""), self._evaluator(job)) for job in jobs if self._is_wanted(job)
        ]

    def _remove_claims(self, lane: Lane, jobs: Sequence[Job], works: Iterable[Work]) -> None:
        """Remove jobs from the lane, and from the claims except those in `works`; call it after what may fail."""
        for _ in jobs:
            lane.claimed.popleft()
        self._claimed.difference_update({job.job_id for job in jobs}.difference(work.job.job_id for work in works))
        self._signal.set()  # there is room for more

    def _evaluator(self, job: Job) -> Evaluator:
        return self._evaluators(job.evaluator, self._running.get(job.run_id or ""))

    async def _run_job(self, work: Work) -> None:
        job = work.job
        try:
            if self._is_wanted(job):
                await self._runner(work)
        except Exception:  # noqa: BLE001 - the boundary of a job: it stays pending and the others go on
            await self._recover(f"evaluating {job} failed")
        finally:
            self._claimed.discard(job.job_id)
            if not self._claimed:
                self._signal.set()

    async def _recover(self, what: str) -> None:
        """Log what failed, and read the jobs again after a pause."""
        _log.exception("%s; it stays pending", what)
        await self._runner.engine.pause(self.options.retry.first_s * 10)
        self._read_at = -math.inf
