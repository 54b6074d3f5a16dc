"""The worker: claims jobs, builds their cases, runs the evaluators, and writes what they found."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ragpulse_collector.budget import Ledger, OverBudget, Pacer, Reservation
from ragpulse_collector.metrics.cases import cases_of, score_key
from ragpulse_collector.metrics.runs import MAX_ATTEMPTS, Run, close_finished, latest_runs, set_status
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.worker.outbox import Outbox
from ragpulse_collector.worker.pace import Pace, backoff_s
from ragpulse_collector.worker.queue import Job, drop, pending, stored_keys
from ragpulse_collector.worker.verdict import Verdict
from ragpulse_collector.worker.work import Evaluators, Resolve, Work
from ragpulse_evaluators import Case, EvaluationResult
from ragpulse_evaluators.evaluator import Estimate

__all__ = ["Worker"]

_log = logging.getLogger(__name__)
_BATCH = 64
"""Jobs whose cases are built together."""
_FETCH = 2048
"""Jobs read from the store at once: looking costs the more the longer the line is."""


@dataclass
class _Lane:
    """Jobs of one kind: how many run at once, how many are under way, and which are claimed and wait."""

    slots: asyncio.Semaphore
    room: int
    most_waiting: int
    under_way: int = 0
    waiting: deque[Job] = field(default_factory=deque)
    streams: set[str] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether a waiting job can start."""
        return bool(self.waiting) and self.under_way < self.room

    @property
    def sated(self) -> bool:
        """Whether it needs no more jobs for now."""
        return bool(self.waiting) or self.under_way >= self.room


class Worker:
    """Evaluates pending jobs in a thread of its own until `stop`.

    Nothing but `wake` needs to be called; a poll finds jobs that nobody announced. `concurrency` and
    `requests_per_minute` bound the calls to judges, free evaluators run beside them.
    """

    def __init__(
        self,
        store: Store,
        resolve: Resolve,
        ledger: Ledger,
        *,
        pacer: Pacer | None = None,
        concurrency: int = 4,
        requests_per_minute: int | None = None,
        timeout_s: float = 120.0,
        poll_s: float = 1.0,
        retry_first_s: float = 0.5,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store, self._ledger, self._pacer = store, ledger, pacer
        self._evaluators = Evaluators(resolve)
        self._timeout_s, self._poll_s, self._retry_first_s, self._clock = timeout_s, poll_s, retry_first_s, clock
        self._limits = (concurrency, requests_per_minute)
        self._claimed: set[str] = set()
        self._keys: dict[str, asyncio.Future[bool]] = {}
        self._running: set[str] = set()
        self._told: set[str] = set()
        self._wakes = self._refusals = 0
        self._since: datetime | None = None
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: dict[str, int] = defaultdict(int)
        """Results since start by status (`error` counts attempts), plus `dropped` and `reused`."""

    def start(self) -> None:
        """Start the thread; pending jobs of earlier processes are taken up first."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name="ragpulse-worker", daemon=True)
        self._thread.start()
        ready.wait()

    def wake(self) -> None:
        """Say that there are new jobs (any thread); cheap to call often."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            self._wakes += 1
            self._idle.clear()
            loop.call_soon_threadsafe(self._signal.set)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let running evaluations finish and be written for so long, then cancel them; they stay pending."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._patience_s = timeout_s
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._stopping.set)
            loop.call_soon_threadsafe(self._signal.set)
        thread.join(timeout_s + 5.0)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is pending or running (any thread); False when that took too long."""
        self.wake()
        return self._idle.wait(timeout_s)

    def _main(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._run(ready))

    async def _run(self, ready: threading.Event) -> None:
        concurrency, per_minute = self._limits
        self._signal, self._stopping = asyncio.Event(), asyncio.Event()
        self._free = _Lane(asyncio.Semaphore(8), 4 * _BATCH, _FETCH)
        self._judged = _Lane(asyncio.Semaphore(concurrency), _BATCH + concurrency, _BATCH)
        self._pace = Pace(per_minute, now=time.monotonic)
        self._outbox = Outbox(self._store, self._ledger)
        self._tasks: set[asyncio.Task[None]] = set()
        writer = asyncio.create_task(self._outbox.run())
        pacing = asyncio.create_task(self._keep_pace())
        ready.set()
        while not self._stopping.is_set():
            await self._turn()
        await self._drain()
        for task in (writer, pacing):
            task.cancel()
        await asyncio.gather(writer, pacing, return_exceptions=True)

    async def _turn(self) -> None:
        """Claim what is pending, or wait for a signal."""
        self._signal.clear()
        wakes = self._wakes
        try:
            claimed = await self._claim()
        except Exception:  # noqa: BLE001 - the boundary of the loop: a failed read must not end evaluation
            _log.exception("could not claim evaluation jobs; trying again")
            claimed = False
        if claimed:
            return
        if not self._tasks and not self._claimed:
            await asyncio.to_thread(close_finished, self._store)
            if wakes == self._wakes:
                self._idle.set()
        try:
            await asyncio.wait_for(self._signal.wait(), self._poll_s)
        except TimeoutError:
            return

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._patience_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_pace(self) -> None:
        while self._pacer is not None:
            try:
                await asyncio.to_thread(self._pacer.update, self._clock())
            except Exception:  # noqa: BLE001 - the boundary of the loop: pacing is renewed in a minute
                _log.exception("could not renew the pacing of evaluations")
            await asyncio.sleep(60.0)

    async def _claim(self) -> bool:
        """Start the next batch of a lane, or fetch jobs for the lanes that have none; tells whether anything moved."""
        runs = await asyncio.to_thread(latest_runs, self._store, status="running")
        if runs.keys() - self._running:
            self._since = None
        self._running = set(runs)
        lanes = (self._free, self._judged)
        if not any(lane.ready for lane in lanes) and not await self._fetch(runs):
            return False
        for lane in lanes:
            count = min(_BATCH, len(lane.waiting), max(0, lane.room - lane.under_way))
            await self._dispatch(lane, [lane.waiting.popleft() for _ in range(count)], runs)
        return True

    async def _fetch(self, runs: Mapping[str, Run]) -> bool:
        waiting = await asyncio.to_thread(
            pending,
            self._store,
            now=self._clock(),
            limit=_FETCH,
            since=self._since,
            claimed=tuple(self._claimed),
            full={stream for lane in (self._free, self._judged) if lane.sated for stream in lane.streams},
        )
        self._since = waiting.since
        taken = 0
        for job in waiting.jobs:
            evaluator = self._evaluators(job.evaluator, runs.get(job.run_id or ""))
            lane = self._free if evaluator.judge is None else self._judged
            if len(lane.waiting) < lane.most_waiting:
                lane.waiting.append(job)
                lane.streams.add(job.stream)
                self._claimed.add(job.job_id)
                taken += 1
        if taken:
            self._idle.clear()
        return taken > 0

    async def _dispatch(self, lane: _Lane, claimed: Sequence[Job], runs: Mapping[str, Run]) -> None:
        """Build a batch's cases with few reads and start one task per job; those of a stopped replay are let go."""
        jobs = [job for job in claimed if job.run_id is None or job.run_id in runs]
        self._claimed.difference_update(job.job_id for job in set(claimed) - set(jobs))
        if not jobs:
            return
        units = list(dict.fromkeys(job.unit for job in jobs))
        cases = await asyncio.to_thread(cases_of, self._store, units)
        works = [self._work(job, runs.get(job.run_id or ""), cases.get(job.unit)) for job in jobs]
        known = await asyncio.to_thread(stored_keys, self._store.read, units, [work.key for work in works])
        for work in works:
            lane.under_way += 1
            task = asyncio.create_task(self._perform(work, lane, known=work.key in known))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _work(self, job: Job, run: Run | None, case: Case | None) -> Work:
        evaluator = self._evaluators(job.evaluator, run)
        return Work(job, run, evaluator, case, job.job_id if case is None else score_key(job.unit, case, evaluator))

    async def _perform(self, work: Work, lane: _Lane, *, known: bool) -> None:
        try:
            await self._finish(work, lane, known=known)
        except Exception:  # noqa: BLE001 - the boundary of a job: it stays pending and the others go on
            _log.exception("evaluating %s failed; the job stays pending", work.job)
            await self._pause(self._retry_first_s * 10)
        finally:
            lane.under_way -= 1
            self._claimed.discard(work.job.job_id)
            self._signal.set()

    async def _finish(self, work: Work, lane: _Lane, *, known: bool) -> None:
        """Bring one job to its end; an equal job under way or finished earlier is reused, never repeated."""
        if work.run is not None and work.evaluator.version != work.run.version:
            await self._fail_run(work)
            return
        twin = self._keys.get(work.key)
        if known or (twin is not None and await twin):
            self.counts["reused"] += 1
            await self._outbox.put(Verdict(job=work.job, score_key=work.key, created_at=self._clock(), result=None))
            return
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._keys[work.key] = ended
        try:
            ended.set_result(await self._attempt_all(work, lane))
        finally:
            self._keys.pop(work.key, None)
            if not ended.done():
                ended.set_result(False)

    async def _attempt_all(self, work: Work, lane: _Lane) -> bool:
        """Try until there is a final result or no attempt is left; tells whether there is one."""
        for attempt in range(work.job.attempts, MAX_ATTEMPTS):
            job = replace(work.job, attempts=attempt)
            try:
                async with lane.slots:
                    if self._stopping.is_set():
                        return False
                    verdict = await self._ask(work, job, lane)
            except OverBudget as refusal:
                await self._drop(work, str(refusal))
                return False
            await self._outbox.put(verdict)
            self._count(verdict, lane)
            if verdict.final:
                return True
            wait_s = backoff_s(attempt + 1, chance=random.random(), first=self._retry_first_s)
            if attempt + 1 < MAX_ATTEMPTS and await self._pause(wait_s):
                break
        return False

    async def _ask(self, work: Work, job: Job, lane: _Lane) -> Verdict:
        """Reserve, evaluate, and say what is to be written; raises OverBudget."""
        estimate = work.estimate
        reservation = None if lane is self._free else await self._reserve(work, estimate)
        if lane is self._judged:
            await self._pace.take(estimate.calls)
        started = time.perf_counter()
        result = await self._evaluate(work)
        if lane is self._judged:
            self._pace.give_back(estimate.calls - len(result.calls))
        return Verdict(
            job=job,
            score_key=work.key,
            result=result,
            label_version=work.evaluator.label,
            elapsed_ms=(time.perf_counter() - started) * 1000.0,
            reservation=reservation,
            created_at=self._clock(),
        )

    async def _evaluate(self, work: Work) -> EvaluationResult:
        evaluator = work.evaluator
        own: dict[str, Any] = {"evaluator": evaluator.name, "version": evaluator.version, "judge": evaluator.judge_id}
        if work.case is None:
            return EvaluationResult(**own, status="skipped", explanation="missing: the stored span")
        try:
            return await asyncio.wait_for(evaluator(work.case), self._timeout_s)
        except TimeoutError:
            return EvaluationResult(**own, status="error", explanation=f"no result within {self._timeout_s:g} s")

    async def _reserve(self, work: Work, estimate: Estimate) -> Reservation | None:
        """Set money aside on disk before the call; None where nothing limits it or nothing is asked."""
        cap = None if work.run is None else work.run.max_usd
        if estimate.calls == 0 or not self._ledger.limits(work.job.evaluator, run=work.run is not None, run_cap=cap):
            return None
        now = self._clock()
        reservation = Reservation(
            evaluator=work.job.evaluator,
            usd=self._ledger.estimate(work.model, estimate.input_tokens, estimate.output_tokens),
            job_id=work.job.job_id,
            day=now,
            run_id=work.job.run_id,
            run_cap=cap,
        )
        await asyncio.wrap_future(self._store.write(self._ledger.reserve(reservation)))
        return reservation

    async def _drop(self, work: Work, reason: str) -> None:
        """The cap refused: a drawn unit becomes a `budget` decision, a replay stops as `capped`."""
        job = work.job
        if job.run_id is None and job.u is None:
            # Forced by a person: no estimate waits for it, so it is a dead letter that says why.
            await self._outbox.put(self._refused(work, reason))
        elif job.run_id is None:
            await asyncio.wrap_future(self._store.write(lambda tx: drop(tx, job)))
            self.counts["dropped"] += 1
        else:
            run_id = job.run_id
            await asyncio.wrap_future(self._store.write(lambda tx: set_status(tx, run_id, "capped", error=reason)))
        if reason not in self._told:
            self._told.add(reason)
            _log.warning("evaluation stopped: %s", reason)

    def _refused(self, work: Work, reason: str) -> Verdict:
        evaluator = work.evaluator
        own: dict[str, Any] = {"evaluator": evaluator.name, "version": evaluator.version, "judge": evaluator.judge_id}
        result = EvaluationResult(**own, status="error", explanation=reason)
        job = replace(work.job, attempts=MAX_ATTEMPTS - 1)
        return Verdict(job=job, score_key=work.key, created_at=self._clock(), result=result)

    async def _fail_run(self, work: Work) -> None:
        run_id = work.job.run_id or ""
        told = f"{work.job.evaluator} is now version {work.evaluator.version}: start a new replay"
        await asyncio.wrap_future(self._store.write(lambda tx: set_status(tx, run_id, "failed", error=told)))

    def _count(self, verdict: Verdict, lane: _Lane) -> None:
        status = "ok" if verdict.result is None else verdict.result.status
        self.counts[status] += 1
        if lane is self._judged:
            self._refusals = self._refusals + 1 if status == "error" else 0
            if self._refusals > 1:
                self._pace.rest(backoff_s(self._refusals - 1, chance=random.random(), first=self._retry_first_s))

    async def _pause(self, seconds: float) -> bool:
        """Sleep, or return True at once when the worker is told to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True
