"""Money for judges: a durable ledger with hard caps.

A reservation is on disk before the call is made. A reservation without a settlement (the process was killed during the
call) stays counted in full, so the cap holds whatever happens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from ragpulse_collector.evaluation.batcher import Batcher, committed
from ragpulse_collector.evaluation.work import Work
from ragpulse_collector.store import Rows, Store, Transaction
from ragpulse_collector.store.queries.ledger import Entry, add_entries, spent_usd
from ragpulse_collector.store.rows import utc_now

__all__ = ["Caps", "Ledger", "OverBudget", "Price", "Reservation", "Reservations"]

Price = Callable[[str, int, int], float | None]
"""(model, input tokens, output tokens) → USD; None where the price is not known."""


class OverBudget(Exception):
    """The cap refuses this call; the message says which cap and what is left."""


@dataclass(frozen=True, kw_only=True)
class Caps:
    """What may be spent on online evaluation in one UTC day; None means unlimited (a judge on loopback)."""

    usd_per_day: float | None = None
    """Shared by all evaluators."""
    per_evaluator: Mapping[str, float] = field(default_factory=dict)
    """Further caps for single evaluators."""
    unknown_usd_per_million_tokens: float | None = None
    """What a token is reserved at where the price is unknown; None refuses such judges while a cap is set."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Money set aside for one job."""

    evaluator: str
    usd: float
    job_id: str
    day: datetime
    """Any instant of the UTC day it belongs to."""
    run_id: str | None = None
    run_cap: float | None = None
    """The replay's own cap; a replay with one does not draw on the online budget."""


class Ledger:
    """Reserve before, settle after; every figure is computed from the rows on disk, so a restart changes nothing."""

    def __init__(self, store: Store, caps: Caps, *, price: Price | None = None) -> None:
        self._store, self.caps, self._price = store, caps, price

    def limits(self, evaluator: str, *, run: bool = False, run_cap: float | None = None) -> bool:
        """Whether any cap applies to a call of this evaluator, so that it must be reserved first."""
        if run:
            return run_cap is not None
        return self.caps.usd_per_day is not None or evaluator in self.caps.per_evaluator

    def estimate(self, model: str | None, input_tokens: int, output_tokens: int) -> float:
        """What a call may cost at most; raises OverBudget where the price is unknown and no token ceiling is set."""
        name = model or "this judge"
        known = self._price(name, input_tokens, output_tokens) if self._price else None
        if known is not None:
            return known
        ceiling = self.caps.unknown_usd_per_million_tokens
        if ceiling is None:
            raise OverBudget(f"the price of {name} is unknown and there is no token ceiling: add it to [prices]")
        return ceiling * (input_tokens + output_tokens) / 1e6

    def reserve(self, tx: Transaction, wanted: Sequence[Reservation]) -> list[OverBudget | None]:
        """Set money aside for each that every cap on it allows, in their order; the answer refuses the others."""
        spent: dict[_Account, float] = {}
        refusals = [self._refusal(tx, spent, reservation) for reservation in wanted]
        granted = [one for one, refusal in zip(wanted, refusals, strict=True) if refusal is None]
        entries = [_entry(reservation, "reserve", reservation.usd) for reservation in granted]
        add_entries(tx, entries, at=utc_now())
        return refusals

    def settle(self, tx: Transaction, settled: Iterable[tuple[Reservation, float | None]]) -> None:
        """Replace reservations by what was really spent; an unknown price keeps the reservation as the spending."""
        entries: list[Entry] = []
        for reservation, actual_usd in settled:
            spent = reservation.usd if actual_usd is None else actual_usd
            entries += [_entry(reservation, "release", -reservation.usd), _entry(reservation, "spend", spent)]
        add_entries(tx, entries, at=utc_now())

    def spent(self, day: datetime, *, evaluator: str | None = None) -> float:
        """USD spent or set aside online on a UTC day, of one evaluator or in all."""
        return spent_usd(self._store.read, day=day.date(), evaluator=evaluator)

    def _refusal(self, tx: Transaction, spent: dict[_Account, float], wanted: Reservation) -> OverBudget | None:
        """Book what is wanted on every account that limits it, or on none and say which refuses."""
        caps = list(self._caps_on(wanted))
        for account, cap, whose in caps:
            if account not in spent:
                spent[account] = account.read(tx.execute)
            if spent[account] + wanted.usd > cap * (1 + 1e-12):
                left = max(0.0, cap - spent[account])
                return OverBudget(f"{whose} is {cap:.4g} USD, {left:.4g} left, this needs {wanted.usd:.4g}")
        for account, _, _ in caps:
            spent[account] += wanted.usd
        return None

    def _caps_on(self, wanted: Reservation) -> Iterable[tuple[_Account, float, str]]:
        """The accounts that limit a reservation, each with its cap and whose it is."""
        if wanted.run_id is not None:
            if wanted.run_cap is not None:
                yield _Account(run_id=wanted.run_id), wanted.run_cap, f"replay {wanted.run_id}"
            return
        if self.caps.usd_per_day is not None:
            yield _Account(day=wanted.day.date()), self.caps.usd_per_day, "the day's judge budget"
        own = self.caps.per_evaluator.get(wanted.evaluator)
        if own is not None:
            account = _Account(day=wanted.day.date(), evaluator=wanted.evaluator)
            yield account, own, f"the day's budget of {wanted.evaluator}"


@dataclass(frozen=True, kw_only=True)
class _Account:
    """Whose entries a cap counts: a replay's, or the online ones of a day, of one evaluator or of all."""

    run_id: str | None = None
    day: date | None = None
    evaluator: str | None = None

    def read(self, read: Callable[..., Rows]) -> float:
        """USD spent or reserved."""
        return spent_usd(read, day=self.day, run_id=self.run_id, evaluator=self.evaluator)


def _entry(reservation: Reservation, kind: Literal["reserve", "release", "spend"], usd: float) -> Entry:
    return (reservation.day.date(), reservation.evaluator, reservation.job_id, reservation.run_id, kind, usd)


class Reservations:
    """Reserves what a job may cost at most; a running job keeps its reservation until it is settled.

    A job that does not fit waits for running jobs of its account, which may turn out cheaper than reserved. The cap
    refuses it only when none of them is left.
    """

    def __init__(self, store: Store, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self._store, self._ledger, self._clock = store, ledger, clock
        self._reserve = Batcher(self._reserved, every_s=0.02)
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
