"""Brings one job to its end: reserve, evaluate, write; try again later, or say why not."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ragpulse_collector.budget import Ledger, OverBudget, Reservation
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.jobs import MAX_ATTEMPTS
from ragpulse_collector.store.queries.runs import set_status
from ragpulse_collector.worker.in_hand import InHand
from ragpulse_collector.worker.outbox import Outbox
from ragpulse_collector.worker.queue import Job, drop
from ragpulse_collector.worker.reserving import Reserving
from ragpulse_collector.worker.together import committed
from ragpulse_collector.worker.verdict import Verdict
from ragpulse_collector.worker.work import Work
from ragpulse_evaluators import EvaluationResult, Evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.rate_limit import Gate

__all__ = ["Patience", "Performer", "backoff_s"]

_log = logging.getLogger(__name__)
_FREE_AT_ONCE = 8
"""Evaluators without a judge that run side by side: their own code may wait for something."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for what."""

    timeout_s: float = 120.0
    """For an evaluator without a judge; a judge has its own for each request."""
    retry_first_s: float = 0.5
    """After the first error; it doubles with each."""


class Performer:
    """Made and used within the worker's event loop."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        gate: Gate,
        *,
        patience: Patience,
        in_hand: InHand,
        clock: Callable[[], datetime],
        counts: defaultdict[str, int],
        run_ended: Callable[[str], None],
    ) -> None:
        self._store, self._gate, self._patience, self._clock, self._counts = store, gate, patience, clock, counts
        self._reserving, self._outbox = Reserving(store, ledger, clock), Outbox(store, ledger)
        self._run_ended = run_ended
        self._free = asyncio.Semaphore(_FREE_AT_ONCE)
        self._own: dict[Evaluator, asyncio.Semaphore] = {}
        self._in_hand = in_hand
        self._keys: dict[str, asyncio.Future[bool]] = {}
        self._told: set[str] = set()
        self._refusals = 0
        self.stopping = asyncio.Event()

    async def __call__(self, work: Work) -> None:
        """Bring the job to its end; an equal job under way or finished earlier is reused, never repeated."""
        if work.run is not None and work.evaluator.version != work.run.version:
            told = f"{work.job.evaluator} is now version {work.evaluator.version}: start a new replay"
            await self._end_run(work.run.run_id, "failed", told)
            return
        twin = self._keys.get(work.key)
        if work.known or (twin is not None and await twin):
            self._counts["reused"] += 1
            await self._outbox.put(Verdict(job=work.job, score_key=work.key, created_at=self._clock(), result=None))
            return
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._keys[work.key] = ended
        try:
            ended.set_result(await self._attempt_all(work))
        finally:
            self._keys.pop(work.key, None)
            if not ended.done():
                ended.set_result(False)

    async def pause(self, seconds: float) -> bool:
        """Sleep, or return True at once when the worker is told to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt_all(self, work: Work) -> bool:
        """Try until there is a final result or no attempt is left; tells whether there is one."""
        most = MAX_ATTEMPTS[work.judged]
        for attempt in range(work.job.attempts, most):
            try:
                reservation = await self._reserving.take(work) if work.judged else None
            except OverBudget as refusal:
                await self._drop(work, str(refusal))
                return False
            try:
                final = await self._attempt(work, replace(work.job, attempts=attempt), reservation)
            finally:
                self._reserving.ended(reservation)
            last = final or attempt + 1 == most
            if last or await self.pause(backoff_s(attempt + 1, first=self._patience.retry_first_s)):
                return final
        return False

    async def _attempt(self, work: Work, job: Job, reservation: Reservation | None) -> bool:
        """Evaluate and write what was found; once it is on disk tells whether it is final."""
        started = time.perf_counter()
        result = await self._evaluate(work)
        verdict = Verdict(
            job=job,
            score_key=work.key,
            result=result,
            label_version=work.evaluator.label,
            elapsed_ms=(time.perf_counter() - started) * 1000.0,
            reservation=reservation,
            created_at=self._clock(),
        )
        await self._outbox.put(verdict)
        self._count(work, result)
        return verdict.final

    async def _evaluate(self, work: Work) -> EvaluationResult:
        if work.case is None:
            return work.gone()
        limit_s = None if work.gated or isinstance(work.evaluator, Isolated) else self._patience.timeout_s
        async with self._place(work):
            with self._in_hand.holding(work.job.job_id) if work.noted else nullcontext():
                try:
                    async with asyncio.timeout(limit_s):
                        return await work.evaluator(work.case)
                except TimeoutError:
                    return work.result(status="error", explanation=f"no result within {limit_s:g} s")

    def _place(self, work: Work) -> AbstractAsyncContextManager[Any]:
        """What bounds how many run at once; one slow evaluator of a user takes no place of another."""
        if work.gated:
            return nullcontext()
        if work.judged:
            return self._gate
        if isinstance(work.evaluator, Isolated):
            return self._own.setdefault(work.evaluator, asyncio.Semaphore(work.evaluator.limits.processes))
        return self._free

    async def _drop(self, work: Work, reason: str) -> None:
        """The cap refused: a drawn unit becomes a `budget` decision, a replay stops as `capped`."""
        job = work.job
        if job.run_id is not None:
            await self._end_run(job.run_id, "capped", reason)
        elif job.u is not None:
            await committed(self._store, lambda tx: drop(tx, job))
            self._counts["dropped"] += 1
        else:
            # Forced by a person: no estimate waits for it, so it is a dead letter that says why.
            dead = replace(job, attempts=MAX_ATTEMPTS[work.judged] - 1)
            result = work.result(status="error", explanation=reason)
            await self._outbox.put(Verdict(job=dead, score_key=work.key, created_at=self._clock(), result=result))
        if reason not in self._told:
            self._told.add(reason)
            _log.warning("evaluation stopped: %s", reason)

    async def _end_run(self, run_id: str, status: str, reason: str) -> None:
        await committed(self._store, lambda tx: set_status(tx, run_id, status, error=reason))
        self._run_ended(run_id)

    def _count(self, work: Work, result: EvaluationResult) -> None:
        self._counts[result.status] += 1
        if work.judged:
            self._refusals = self._refusals + 1 if result.status == "error" else 0
            if self._refusals > 1:
                self._gate.pause(backoff_s(self._refusals - 1, first=self._patience.retry_first_s))


def backoff_s(failures: int, *, first: float = 0.5, most: float = 60.0) -> float:
    """Seconds to wait after this many failures in a row: doubling, capped, spread by chance over half to whole."""
    return min(most, first * 2.0 ** min(failures - 1, 20)) * (0.5 + random.random() / 2.0)
