"""Money for judges: a durable ledger with hard caps.

A reservation is on disk before the call is made. A reservation without a settlement (the process was killed during the
call) stays counted in full, so the cap holds whatever happens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

from ragpulse_collector.evaluation.batcher import Batcher, committed
from ragpulse_collector.evaluation.jobs import Work
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.ledger import HELD_BACK, Entry, add_entries, reserved, spent_usd
from ragpulse_collector.store.queries.runs import Run
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators import Case, Evaluator, JudgeCall
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.protocol import Judge, max_tokens_of, model_of

_DAY_S = 86_400.0
Price = Callable[[str, int, int], float | None]
"""(model, input tokens, output tokens) → USD; None where the price is not known."""


def unknown_price(model: str) -> str:
    """Say that a model has no price, and the fix."""
    return f"the price of {model} is unknown: add it to [prices]"


def most_tokens(estimate: Estimate, judge: Judge | None) -> tuple[int, int]:
    """Return the most input and output tokens; an estimate that names no most has replies as long as the limit."""
    longest = estimate.max_output_tokens or estimate.calls * max_tokens_of(judge)
    return max(estimate.input_tokens, estimate.max_input_tokens), max(estimate.output_tokens, longest)


class Account(NamedTuple):
    """What a cap applies to: a replay, or a UTC day of one rule or of all."""

    run_id: str | None = None
    day: date | None = None
    rule: str | None = None

    def __str__(self) -> str:
        if self.run_id is not None:
            return f"the cap of replay {self.run_id}"
        return f"the day's judge budget{'' if self.rule is None else f' of rule {self.rule}'}, at this hour,"


class OverBudget(Exception):
    """A cap refuses this call; the message says which cap and what is left."""

    account: Account | None = None


def most_usd(evaluator: Evaluator, case: Case, price: Price) -> float:
    """Return what the calls for a case may cost, each reply as long as it may be and repaired once; 0 without a call.

    Raises OverBudget where the price is unknown: no cap could be kept.
    """
    estimate = evaluator.estimate(case)
    if evaluator.judge is None or estimate.calls == 0:
        return 0.0
    model = model_of(evaluator.judge)
    usd = price(model, *most_tokens(estimate, evaluator.judge))
    if usd is None:
        raise OverBudget(unknown_price(model))
    return usd


def _no_price(_model: str, _input: int, _output: int) -> float | None:
    return None


def _no_cap(_rule: str) -> float | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Caps:
    """What may be spent on online evaluation in one UTC day; None means unlimited (a judge on loopback)."""

    usd_per_day: float | None = None
    of_rule: Callable[[str], float | None] = _no_cap
    """The rule's own cap, within that of the day."""

    def of(self, rule: str | None) -> float | None:
        """Return the cap of a rule, None without one, and of the whole day for None."""
        return self.usd_per_day if rule is None else self.of_rule(rule)


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
    rule: str | None = None
    """The rule that selected the job."""

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What it is booked on: the replay, or the day and the rule's day."""
        if self.run_id is not None:
            return (Account(run_id=self.run_id),)
        day = Account(day=self.day.date())
        return (day,) if self.rule is None else (day, day._replace(rule=self.rule))

    @property
    def left_of_day(self) -> float:
        """The share of the UTC day that is left."""
        midnight = self.day.replace(hour=0, minute=0, second=0, microsecond=0)
        return 1.0 - (self.day - midnight).total_seconds() / _DAY_S


class Ledger:
    """Reserve before, settle after; every figure is computed from the rows on disk, so a restart changes nothing."""

    def __init__(self, store: Store, caps: Caps, *, price: Price = _no_price) -> None:
        self._store, self.caps, self._price = store, caps, price
        self._left: dict[str, list[Entry]] | None = None
        self._dearest: dict[str, float] = {}

    def limits(self, run: Run | None = None, rule: str | None = None) -> bool:
        """Whether a cap applies to calls of this replay (None: online, for this rule): they must be reserved first."""
        caps = (self.caps.usd_per_day, self.caps.of(rule)) if run is None else (run.max_usd,)
        return any(cap is not None for cap in caps)

    def at_most(self, evaluator: Evaluator, case: Case) -> float:
        """What a case may cost, and at least what one has cost beyond its reservation: it asks more often than it says.

        Raises OverBudget where the price is unknown.
        """
        return max(most_usd(evaluator, case, self._price), self._dearest.get(evaluator.name, 0.0))

    def reserve(self, tx: Transaction, wanted: Sequence[Reservation]) -> list[OverBudget | None]:
        """Set money aside for each that every cap on it allows, in their order; the answer refuses the others."""
        self._read_left(tx)
        spent: dict[Account, float] = {}
        refusals = [self._refusal(tx, spent, reservation) for reservation in wanted]
        granted = [one for one, refusal in zip(wanted, refusals, strict=True) if refusal is None]
        entries = [_entry(reservation, "reserve", reservation.usd) for reservation in granted]
        add_entries(tx, entries, at=utc_now())
        return refusals

    def settle(self, tx: Transaction, settled: Iterable[tuple[Reservation, float | None]]) -> None:
        """Replace reservations by what was really spent; an unknown price keeps the reservation as the spending."""
        self._read_left(tx)
        entries: list[Entry] = []
        for reservation, actual_usd in settled:
            spent = reservation.usd if actual_usd is None else actual_usd
            if 0.0 < reservation.usd < spent:
                self._dearest[reservation.evaluator] = max(spent, self._dearest.get(reservation.evaluator, 0.0))
            entries += [_entry(reservation, "release", -reservation.usd), _entry(reservation, "spend", spent)]
        add_entries(tx, entries, at=utc_now())

    def settle_left(self, tx: Transaction, finished: Iterable[tuple[str, Sequence[JudgeCall]]]) -> None:
        """Settle what a killed process had reserved for jobs (given by id) that are finished now.

        Its calls may have been billed; their replies were recorded or were asked for again. So it is booked at what the
        job's calls cost without the record; where that is unknown, the whole reservation is.
        """
        left, entries = self._read_left(tx), list[Entry]()
        for job_id, calls in finished:
            for release in left.pop(job_id, []):
                *_, reserved_usd = release
                spent = min(-reserved_usd, self._unrecorded_usd(calls) or -reserved_usd)
                entries += [release, (*release[:5], "spend", spent)]
        add_entries(tx, entries, at=utc_now())

    def _read_left(self, tx: Transaction) -> dict[str, list[Entry]]:
        """What earlier processes left reserved, by job; read before this one reserves anything."""
        if self._left is None:
            self._left = reserved(tx.execute)
        return self._left

    def _unrecorded_usd(self, calls: Sequence[JudgeCall]) -> float | None:
        costs = [self._price(one.model, one.input_tokens or 0, one.output_tokens or 0) for one in calls]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def spent(self, day: datetime) -> float:
        """USD spent or set aside online on a UTC day."""
        return spent_usd(self._store.read, day=day.date())

    def _refusal(self, tx: Transaction, spent: dict[Account, float], wanted: Reservation) -> OverBudget | None:
        """Book what is wanted on every account that limits it, or say why it cannot be."""
        caps = [(account, self._cap(account, wanted)) for account in wanted.accounts]
        limited = [(account, cap) for account, cap in caps if cap is not None]
        for account, cap in limited:
            if account not in spent:
                spent[account] = spent_usd(tx.execute, **account._asdict())
            if spent[account] + wanted.usd > cap * (1 + 1e-12):
                left = max(0.0, cap - spent[account])
                refusal = OverBudget(f"{account} is {cap:.4g} USD, {left:.4g} left, this needs {wanted.usd:.4g}")
                refusal.account = account
                return refusal
        for account, _ in limited:
            spent[account] += wanted.usd
        return None

    def _cap(self, account: Account, wanted: Reservation) -> float | None:
        if account.run_id is not None:
            return wanted.run_cap
        whole = self.caps.of(account.rule)
        return None if whole is None else whole * (1.0 - HELD_BACK * wanted.left_of_day)


def _entry(reservation: Reservation, kind: Literal["reserve", "release", "spend"], usd: float) -> Entry:
    whose = (reservation.day.date(), reservation.evaluator, reservation.job_id, reservation.run_id, reservation.rule)
    return (*whose, kind, usd)


COSTS = ("cost_usd", "cost_usd_low", "cost_usd_at_most")
"""What a bill says in USD: likely, at least, at most; null where the price is unknown."""


def bill(
    estimates: Sequence[Estimate],
    judge: Judge | None,
    count: int,
    price: Price | None,
    replies: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return tokens and USD that `count` cases like these are likely to take, and the least and the most.

    `replies` holds mean and tenth percentile of the tokens of recorded replies: a likely and a short one. Without
    records a reply is likely as long as the evaluator expects, and the least is the cost of the questions alone.
    """
    made = [one for one in estimates if one.calls]
    mean, short = replies or (None, 0.0)
    likely = [(one.input_tokens, one.output_tokens if mean is None else round(one.calls * mean)) for one in made]
    low = [(one.input_tokens, round(one.calls * short)) for one in made]
    most = [most_tokens(one, judge) for one in made]
    scale, model = count / max(1, len(estimates)), "" if judge is None else model_of(judge)
    costs = [_cost(price, model, tokens, scale) for tokens in (likely, low, most)]
    return {
        "input_tokens": round(scale * sum(tokens for tokens, _ in likely)),
        "output_tokens": round(scale * sum(tokens for _, tokens in likely)),
        **dict(zip(COSTS, costs, strict=True)),
        "cost_unknown_reason": unknown_price(model) if None in costs else None,
    }


def _cost(price: Price | None, model: str, tokens: Sequence[tuple[int, int]], scale: float) -> float | None:
    costs = [price(model, *one) if price else None for one in tokens]
    return None if None in costs else scale * sum(cost for cost in costs if cost is not None)


def total(parts: Sequence[dict[str, Any]], cap: float | None = None) -> dict[str, Any]:
    """Return the bills of several evaluators as one; a cap bounds the most."""
    whole: dict[str, Any] = {
        key: sum(part[key] for part in parts) for key in ("count", "already", "input_tokens", "output_tokens")
    }
    for key in COSTS:
        costs = [part[key] for part in parts]
        whole[key] = None if None in costs else sum(costs)
    if cap is not None and whole["cost_usd_at_most"] is not None:
        whole["cost_usd_at_most"] = min(cap, whole["cost_usd_at_most"])
    reasons = [part["cost_unknown_reason"] for part in parts if part["cost_unknown_reason"]]
    whole["cost_unknown_reason"] = "; ".join(dict.fromkeys(reasons)) or None
    return whole | {"evaluators": list(parts)}


class Reservations:
    """Reserves what a job may cost at most; a running job keeps its reservation until it is settled.

    A job that does not fit waits for running jobs of its account, which may turn out cheaper than reserved. The cap
    refuses it only when none of them is left.
    """

    def __init__(self, store: Store, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self._store, self._ledger, self._clock = store, ledger, clock
        self._reserve = Batcher(self._reserved, every_s=0.02)
        self._open: Counter[Account | None] = Counter()
        self._freed = asyncio.Event()

    async def take(self, work: Work) -> Reservation | None:
        """Reserve on disk; None where nothing limits the job or nothing is asked. Raises OverBudget."""
        if work.case is None or not self._ledger.limits(work.run, work.job.rule):
            return None
        usd = self._ledger.at_most(work.evaluator, work.case)
        if usd == 0.0:
            return None
        reservation = Reservation(
            evaluator=work.job.evaluator,
            usd=usd,
            job_id=work.job.job_id,
            day=self._clock(),
            run_id=work.job.run_id,
            run_cap=None if work.run is None else work.run.max_usd,
            rule=work.job.rule,
        )
        freed = self._freed
        while refusal := await self._reserve(reservation):
            if not self._open[refusal.account] and not freed.is_set():
                raise refusal
            await freed.wait()
            freed = self._freed
        self._open.update(reservation.accounts)
        return reservation

    def ended(self, reservation: Reservation | None) -> None:
        """Say that nothing more will be asked for it: what was not spent is free on disk by now."""
        if reservation is not None:
            self._open.subtract(reservation.accounts)
            self._freed.set()
            self._freed = asyncio.Event()

    async def _reserved(self, wanted: list[Reservation]) -> Sequence[OverBudget | None]:
        answers: Sequence[OverBudget | None] = await committed(self._store, lambda tx: self._ledger.reserve(tx, wanted))
        return answers
