"""Money is on disk before a judge is asked: reservations of many jobs in one commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from ragpulse_collector.budget import Ledger, OverBudget, Reservation
from ragpulse_collector.store import Store
from ragpulse_collector.worker.together import Together, committed
from ragpulse_collector.worker.work import Work

__all__ = ["Reserving"]


class Reserving:
    """Sets aside what a job may cost at most; what is under way keeps its reservation until it is settled.

    A job that does not fit waits for others of its account under way: they may turn out cheaper than reserved. Only
    where none is left the cap refuses it, so that concurrency does not cut the money short.
    """

    def __init__(self, store: Store, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self._store, self._ledger, self._clock = store, ledger, clock
        self._reserve = Together(self._reserved, every_s=0.02)
        self._open: Counter[str | None] = Counter()
        self._freed = asyncio.Event()

    async def take(self, work: Work) -> Reservation | None:
        """Reserve on disk; None where nothing limits the job or nothing is asked. Raises OverBudget."""
        run = work.run
        cap = None if run is None else run.max_usd
        if not self._ledger.limits(work.job.evaluator, run=run is not None, run_cap=cap):
            return None
        estimate = work.estimate
        if estimate.calls == 0:
            return None
        reservation = Reservation(
            evaluator=work.job.evaluator,
            usd=self._ledger.estimate(work.model, estimate.input_tokens, estimate.output_tokens),
            job_id=work.job.job_id,
            day=self._clock(),
            run_id=work.job.run_id,
            run_cap=cap,
        )
        freed = self._freed
        while refusal := await self._reserve(reservation):
            if not self._open[reservation.run_id] and not freed.is_set():
                raise refusal
            await freed.wait()
            freed = self._freed
        self._open[reservation.run_id] += 1
        return reservation

    def ended(self, reservation: Reservation | None) -> None:
        """Say that nothing more will be asked for it: what was not spent is free on disk by now."""
        if reservation is not None:
            self._open[reservation.run_id] -= 1
            self._freed.set()
            self._freed = asyncio.Event()

    async def _reserved(self, wanted: list[Reservation]) -> Sequence[OverBudget | None]:
        answers: Sequence[OverBudget | None] = await committed(self._store, lambda tx: self._ledger.reserve(tx, wanted))
        return answers
