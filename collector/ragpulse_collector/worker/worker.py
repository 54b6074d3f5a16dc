"""The worker: claims jobs, builds their cases, and hands them to as many performers as may be under way."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ragpulse_collector.budget import Ledger, Pacer
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Run, close_finished, latest_runs
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.worker.in_hand import InHand, count_interrupted
from ragpulse_collector.worker.lane import Lane
from ragpulse_collector.worker.offline import Offline
from ragpulse_collector.worker.outbox import append_verdicts
from ragpulse_collector.worker.perform import Patience, Performer
from ragpulse_collector.worker.pressure import Pressure
from ragpulse_collector.worker.queue import LONG_AGO, Job, pending
from ragpulse_collector.worker.together import committed
from ragpulse_collector.worker.work import Evaluators, Resolve, Work, prepared
from ragpulse_evaluators import Evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.rate_limit import Gate

__all__ = ["Worker"]

_log = logging.getLogger(__name__)
_BATCH = 512
"""Free jobs prepared together, and under way together: each waits for a commit that it shares."""
_IMMEDIATE = 1024
"""Jobs scored and committed together: reading costs nearly the same for one trace as for a hundred."""
_OWN = 64
"""Jobs of one evaluator of a user prepared together, and under way together: a slow one has a lane of its own."""
_FETCH = 8192
"""Jobs read from the store at once."""
_LAST_S, _CANCEL_S = 4.0, 1.0
"""How long a stop waits for evaluations, and for their end once cancelled: Docker kills what takes ten seconds."""


class Worker:
    """Evaluates pending jobs in a thread of its own until `stop`.

    Nothing but `wake` needs to be called; a poll finds jobs that nobody announced. `gate` is the one that the judges
    pass with each request; a judge that passes none (an evaluator's own) holds it for the whole case. Evaluators
    without a judge run beside them, those that never wait in a thread of their own that yields to `pressure`. `skew` is
    how much later than it says a job may become visible: minutes where other processes write, too.
    """

    def __init__(
        self,
        store: Store,
        resolve: Resolve,
        ledger: Ledger,
        *,
        gate: Gate | None = None,
        pacer: Pacer | None = None,
        patience: Patience | None = None,
        pressure: Pressure | None = None,
        poll_s: float = 1.0,
        skew: timedelta = timedelta(minutes=10),
        clock: Callable[[], datetime] = utc_now,
        in_hand: Path | None = None,
    ) -> None:
        self._store, self._ledger, self._pacer = store, ledger, pacer
        self._gate = gate or Gate(4)
        self._evaluators = Evaluators(resolve)
        self._patience, self._poll_s, self._clock = patience or Patience(), poll_s, clock
        self._skew = skew
        self._in_hand = InHand(in_hand)
        self._offline = Offline(store, pressure or Pressure(), clock)
        self._wakes = self._looked_for = 0
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: defaultdict[str, int] = defaultdict(int)
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

    def stop(self, timeout_s: float = _LAST_S) -> None:
        """Let running evaluations finish and be written for so long, then cancel them; they stay pending.

        What was set aside for a call that was cancelled stays booked as after a crash: the judge may bill it.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._last_s = timeout_s
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._perform.stopping.set)
            loop.call_soon_threadsafe(self._signal.set)
        thread.join(timeout_s + _CANCEL_S)

    @property
    def stopping(self) -> bool:
        """Tell whether a stop was asked for: nothing new begins."""
        return self._perform.stopping.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is pending or running (any thread); False when that took too long."""
        self.wake()
        return self._idle.wait(timeout_s)

    def _main(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._run(ready))

    async def _run(self, ready: threading.Event) -> None:
        at_once = 3 * self._gate.concurrency  # while some wait for their judge others are read and written
        batch = min(_BATCH, max(16, at_once))
        self._judged = Lane(at_once=at_once, batch=batch)
        self._free = Lane(at_once=_BATCH, batch=_BATCH)
        self._immediate = Lane(at_once=1, batch=_IMMEDIATE)
        self._own: dict[Evaluator, Lane] = {}
        self._signal = asyncio.Event()
        self._claimed: set[str] = set()
        self._running: dict[str, Run] = {}
        self._since = LONG_AGO
        self._looked_at = -math.inf
        self._perform = Performer(
            self._store,
            self._ledger,
            self._gate,
            patience=self._patience,
            in_hand=self._in_hand,
            clock=self._clock,
            counts=self.counts,
            run_ended=self._let_go,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        pacing = asyncio.create_task(self._keep_pace())
        ready.set()
        await self._count_interrupted()
        while not self.stopping:
            await self._turn()
        await self._drain()
        pacing.cancel()
        await asyncio.gather(pacing, self._evaluators.rest(), return_exceptions=True)
        self._in_hand.clear()  # what was cancelled was no crash

    async def _count_interrupted(self) -> None:
        try:
            await asyncio.to_thread(
                count_interrupted,
                self._store,
                self._ledger,
                self._in_hand,
                made=self._evaluator,
                now=self._clock(),
            )
        except Exception:  # noqa: BLE001 - the boundary of the start: attempts that are not counted stop nothing
            _log.exception("could not count the evaluations that were in hand when the collector ended")

    async def _turn(self) -> None:
        """Prepare what is pending, or wait for a signal."""
        self._signal.clear()
        wakes = self._wakes
        try:
            moved = await self._advance()
        except Exception:  # noqa: BLE001 - the boundary of the loop: a failed read must not end evaluation
            _log.exception("could not claim evaluation jobs; trying again")
            await self._perform.pause(self._patience.retry_first_s * 10)
            self._looked_at = -math.inf
            return
        if moved:
            return
        if not self._claimed:
            await asyncio.to_thread(close_finished, self._store)
            if wakes == self._wakes:
                self._idle.set()
        try:
            async with asyncio.timeout(self._poll_s):
                await self._signal.wait()
        except TimeoutError:
            return

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._last_s)
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

    async def _advance(self) -> bool:
        """Claim and prepare for the lanes that run low; tells whether anything moved."""
        if self._looks_due():
            await self._look()
        moved = False
        for lane in (self._free, self._judged, *self._own.values()):
            if lane.claimed and lane.low:
                await self._prepare(lane)
                moved = True
        if self._immediate.claimed and self._immediate.free:
            self._start(self._immediate, self._score_all)
            moved = True
        return moved

    def _looks_due(self) -> bool:
        """Whether the store may hold jobs that a lane needs: it is asked when told so, else now and then."""
        if self._wakes != self._looked_for or time.monotonic() - self._looked_at >= self._poll_s:
            return True
        return any(lane.more and not lane.sated for lane in self._lanes)

    async def _look(self) -> None:
        self._looked_for, self._looked_at = self._wakes, time.monotonic()
        runs = await asyncio.to_thread(latest_runs, self._store, status="running")
        self._running = runs
        await self._claim()

    async def _claim(self) -> None:
        """Fetch jobs for the lanes that need some."""
        sated = [lane for lane in self._lanes if lane.sated]
        now = self._clock()
        if self._since > now:  # the clock was set back: jobs may have been made before this instant
            self._since = LONG_AGO
        waiting = await asyncio.to_thread(
            pending,
            self._store,
            limit=_FETCH,
            since=self._since,
            runs=tuple(self._running),
            skew=self._skew,
            claimed=tuple(self._claimed),
            full={stream for lane in sated for stream in lane.streams},
        )
        self._since = min(waiting.since, now)
        for lane in self._lanes:
            lane.more = lane in sated or len(waiting.jobs) == _FETCH
        for job in filter(self._wanted, waiting.jobs):
            self._idle.clear()
            self._claimed.add(job.job_id)
            self._lane_of(self._evaluator(job)).claim(job)

    def _lane_of(self, evaluator: Evaluator) -> Lane:
        if evaluator.judge is not None:
            return self._judged
        if isinstance(evaluator, Isolated):
            return self._own.setdefault(evaluator, Lane(at_once=_OWN, batch=_OWN))
        return self._immediate if evaluator.immediate else self._free

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return (self._immediate, self._free, self._judged, *self._own.values())

    def _let_go(self, run_id: str) -> None:
        """A replay was capped or failed: what is claimed of it is not wanted any more."""
        self._running.pop(run_id, None)
        self._looked_at = -math.inf
        self._signal.set()

    def _wanted(self, job: Job) -> bool:
        """Whether it belongs to no replay or to a running one; who starts or stops a replay wakes the worker."""
        return job.run_id is None or job.run_id in self._running

    async def _prepare(self, lane: Lane) -> None:
        """Build the cases of a batch with few reads, and start what may be under way."""
        taken = list(islice(lane.claimed, lane.batch))
        works = await asyncio.to_thread(prepared, self._store, self._asked(taken))
        self._taken(lane, taken, works)
        self._make_ready(lane, works)

    def _asked(self, jobs: Iterable[Job]) -> list[tuple[Job, Run | None, Evaluator]]:
        """Those that are still wanted, with what they take."""
        return [(job, self._running.get(job.run_id or ""), self._evaluator(job)) for job in jobs if self._wanted(job)]

    def _taken(self, lane: Lane, taken: Sequence[Job], kept: Iterable[Work]) -> None:
        """Let jobs go that were taken from the lane, but for those that are kept; only after what may fail."""
        for _ in taken:
            lane.claimed.popleft()
        self._claimed.difference_update({job.job_id for job in taken}.difference(work.job.job_id for work in kept))

    def _make_ready(self, lane: Lane, works: Iterable[Work]) -> None:
        lane.ready.extend(works)
        for _ in range(min(lane.free, len(lane.ready))):
            self._start(lane, partial(self._work_off, lane))

    def _start(self, lane: Lane, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        lane.under_way += 1
        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _score_all(self) -> None:
        """Score batch after batch of the jobs that take no waiting."""
        try:
            while self._immediate.claimed and not self.stopping:
                await self._score_batch(self._immediate)
                self._signal.set()
        except Exception:  # noqa: BLE001 - the boundary of a batch: its jobs stay claimed and are tried again
            _log.exception("a batch of evaluations failed; its jobs stay pending")
            await self._perform.pause(self._patience.retry_first_s * 10)
        finally:
            self._immediate.under_way -= 1
            self._signal.set()

    async def _score_batch(self, lane: Lane) -> None:
        taken = list(islice(lane.claimed, lane.batch))
        scored = await asyncio.to_thread(self._offline, self._asked(taken), self._perform.stopping.is_set)
        await committed(self._store, lambda tx: append_verdicts(tx, self._ledger, scored.verdicts))
        for verdict in scored.verdicts:
            self.counts["reused" if verdict.result is None else verdict.result.status] += 1
        self._taken(lane, taken, scored.left)
        self._make_ready(self._free, scored.left)

    def _evaluator(self, job: Job) -> Evaluator:
        return self._evaluators(job.evaluator, self._running.get(job.run_id or ""))

    async def _work_off(self, lane: Lane) -> None:
        """Bring one job after the other to its end while any is ready."""
        try:
            while lane.ready and not self.stopping:
                work = lane.ready.popleft()
                if len(lane.ready) == lane.at_once - 1:
                    self._signal.set()
                await self._bring_to_end(work)
        finally:
            lane.under_way -= 1
            self._signal.set()

    async def _bring_to_end(self, work: Work) -> None:
        job = work.job
        try:
            if self._wanted(job):
                await self._perform(work)
        except Exception:  # noqa: BLE001 - the boundary of a job: it stays pending and the others go on
            _log.exception("evaluating %s failed; the job stays pending", job)
            await self._perform.pause(self._patience.retry_first_s * 10)
            self._looked_at = -math.inf
        finally:
            self._claimed.discard(job.job_id)
