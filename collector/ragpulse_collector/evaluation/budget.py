"""Money for judges: a durable ledger with hard caps.

A reservation is on disk before the call. One without a settlement (the process was killed during the call) counts as
the most that an attempt of its evaluator and replay has cost so far, in full before the first: the killed call may have
been billed, and the attempts that follow reserve their own.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import date, datetime
from typing import Literal, NamedTuple

from ragpulse_collector.evaluation.batcher import Batcher, commit
from ragpulse_collector.evaluation.jobs import Work
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Clock, Read, utc_now
from ragpulse_collector.store.queries.jobs import HELD_BACK, Entry, Held, add_entries, dearest, reserved, spent_usd
from ragpulse_collector.store.queries.runs import Run
from ragpulse_evaluators import Case, EvaluationResult, Evaluator, JudgeCall
from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.protocol import Judge, max_tokens_of, model_of
from ragpulse_evaluators.judges.wrappers import has_room
from ragpulse_evaluators.runner import Line

_DAY_S = 86_400.0
Price = Callable[[str, int, int], float | None]
"""(model, input tokens, output tokens) → USD; None where the price is not known."""


def unknown_price(model: str) -> str:
    """Return the message that a model has no price, with the fix."""
    return f"the price of {model} is unknown: add it to [prices]"


def max_tokens(estimate: Estimate, judge: Judge | None) -> tuple[int, int]:
    """Return the maximum of input and output tokens; without an own maximum, replies are as long as the limit."""
    longest = estimate.max_output_tokens or estimate.calls * max_tokens_of(judge)
    return max(estimate.input_tokens, estimate.max_input_tokens), max(estimate.output_tokens, longest)


class Account(NamedTuple):
    """What a cap applies to: a replay, or a UTC day of one rule or of all rules."""

    run_id: str | None = None
    day: date | None = None
    rule: str | None = None

    def __str__(self) -> str:
        if self.run_id is not None:
            return f"the cap of run {self.run_id}"
        return f"the day's judge budget{'' if self.rule is None else f' of rule {self.rule}'}, at this hour,"


def max_usd_of(evaluator: Evaluator, case: Case, price: Price) -> float:
    """Return the maximum cost of a case, each reply as long as the limit and repaired once; 0 without a call.

    Raises BudgetExceeded where the price is unknown: no cap could hold.
    """
    estimate = evaluator.estimate(case)
    if evaluator.judge is None or estimate.calls == 0:
        return 0.0
    model = model_of(evaluator.judge)
    usd = price(model, *max_tokens(estimate, evaluator.judge))
    if usd is None:
        raise BudgetExceeded(unknown_price(model))
    return usd


@dataclass(frozen=True, kw_only=True)
class Caps:
    """What may be spent on online evaluation; days and months are UTC. None means unlimited (a judge on loopback)."""

    usd_per_day: float | None = None
    usd_per_month: float | None = None
    """Spread over the days: each may spend its share of what the days before left."""
    of_rule: Callable[[str], float | None] = lambda _: None
    """Returns a rule's own cap, within that of the day."""

    def of(self, rule: str | None) -> float | None:
        """Return the cap of a rule (None: of the day); None without a cap."""
        return self.usd_per_day if rule is None else self.of_rule(rule)

    def on(self, day: date, read: Read) -> float | None:
        """Return the cap of one UTC day, also by the month; None without one."""
        if self.usd_per_month is None:
            return self.usd_per_day
        left = self.usd_per_month - spent_usd(read, since=day.replace(day=1), until=day)
        share = max(0.0, left) / (monthrange(day.year, day.month)[1] - day.day + 1)
        return share if self.usd_per_day is None else min(share, self.usd_per_day)


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
        """The accounts it is booked on: the replay, or the day and the rule's day."""
        if self.run_id is not None:
            return (Account(run_id=self.run_id),)
        day = Account(day=self.day.date())
        return (day,) if self.rule is None else (day, day._replace(rule=self.rule))

    @property
    def line(self) -> tuple[str | None, float | None, str | None]:
        """The line in which it waits for money; a replay with a new cap is another."""
        return self.run_id, self.run_cap, self.rule

    @property
    def rest_of_day(self) -> float:
        """The remaining share of the UTC day."""
        midnight = self.day.replace(hour=0, minute=0, second=0, microsecond=0)
        return 1.0 - (self.day - midnight).total_seconds() / _DAY_S


@dataclass(eq=False)
class Ledger:
    """Reserves before a call and settles after it; every figure comes from the rows on disk, also after a restart."""

    store: Store
    caps: Caps
    _: KW_ONLY
    price: Price = lambda *_: None

    def __post_init__(self) -> None:
        self._interrupted: dict[str, list[Held]] | None = None
        self._held_in_full: set[str] = set()
        self._max_spent: dict[str, float] = {}

    def limits(self, run: Run | None = None, rule: str | None = None) -> bool:
        """Whether a cap applies to calls of this replay (None: online, for this rule)."""
        of_all = (self.caps.usd_per_day, self.caps.usd_per_month, self.caps.of(rule))
        caps = of_all if run is None else (run.max_usd,)
        return any(cap is not None for cap in caps)

    def max_cost(self, evaluator: Evaluator, case: Case) -> float:
        """Return the maximum cost of a case, at least what a case has cost beyond its reservation.

        An evaluator may ask more often than it estimates. Raises BudgetExceeded where the price is unknown.
        """
        return max(max_usd_of(evaluator, case, self.price), self._max_spent.get(evaluator.name, 0.0))

    def reserve(self, tx: Transaction, reservations: Sequence[Reservation]) -> list[BudgetExceeded | None]:
        """Reserve what every cap allows, in order; returns a refusal, or None, for each reservation.

        After a refusal nothing more is reserved for its replay: what is cheaper would overtake what came first.
        """
        self._lower_interrupted(tx)
        spent: dict[Account, float] = {}
        refusals: list[BudgetExceeded | None] = []
        for reservation in reservations:
            stuck = next((each for each in refusals if each and each.account == Account(reservation.run_id)), None)
            refusals.append(stuck or self._refusal(tx, spent, reservation))
        granted = [reservation for reservation, refusal in zip(reservations, refusals, strict=True) if refusal is None]
        entries = [_entry(reservation, "reserve", reservation.usd) for reservation in granted]
        add_entries(tx, entries, at=utc_now())
        return refusals

    def settle(self, tx: Transaction, settled: Iterable[tuple[Reservation, float | None]]) -> None:
        """Replace reservations by the actual spending; an unknown cost books the whole reservation."""
        self._read_interrupted(tx)
        entries: list[Entry] = []
        for reservation, actual_usd in settled:
            spent = reservation.usd if actual_usd is None else actual_usd
            if 0.0 < reservation.usd < spent:
                self._max_spent[reservation.evaluator] = max(spent, self._max_spent.get(reservation.evaluator, 0.0))
            entries += [_entry(reservation, "release", -reservation.usd), _entry(reservation, "spend", spent)]
        add_entries(tx, entries, at=utc_now())

    def settle_interrupted(self, tx: Transaction, finished_jobs: Iterable[tuple[str, Sequence[JudgeCall]]]) -> None:
        """Settle what a killed process reserved for jobs (by id) that are finished now.

        Its calls may have been billed. They are booked at what the job's calls cost without the record; where that is
        unknown, at the whole reservation.
        """
        interrupted, entries = self._read_interrupted(tx), list[Entry]()
        for job_id, calls in finished_jobs:
            for release, attempts in interrupted.pop(job_id, []):
                *_, released = release
                spent = min(-released, attempts * (self._unrecorded_usd(calls) or 0.0)) or -released
                entries += [release, (*release[:5], "spend", spent)]
        add_entries(tx, entries, at=utc_now())

    def _read_interrupted(self, tx: Transaction) -> dict[str, list[Held]]:
        """Return the reservations of earlier processes by job; read before this process reserves anything."""
        if self._interrupted is None:
            self._interrupted = reserved(tx.execute)
            self._held_in_full = set(self._interrupted)
        return self._interrupted

    def _lower_interrupted(self, tx: Transaction) -> None:
        """Lower reservations of killed attempts to the most that an attempt has cost, as soon as one has.

        The reservation is for replies as long as the limit, which few are. It would hold the whole cap after a few
        kills, and no attempt could follow that settles it.
        """
        interrupted = self._read_interrupted(tx)
        self._held_in_full &= interrupted.keys()
        if not self._held_in_full:
            return
        most, entries = dearest(tx.execute), list[Entry]()
        for job_id in sorted(self._held_in_full):
            for number, held in enumerate(interrupted[job_id]):
                _, evaluator, _, run_id, _, _, usd = held.release
                if (evaluator, run_id) not in most:
                    continue
                kept = min(-usd, held.attempts * most[evaluator, run_id])
                entries += [held.release, (*held.release[:5], "reserve", kept)]
                interrupted[job_id][number] = held._replace(release=(*held.release[:6], -kept))
                self._held_in_full.discard(job_id)
        add_entries(tx, entries, at=utc_now())

    def _unrecorded_usd(self, calls: Sequence[JudgeCall]) -> float | None:
        return _sum(self.price(call.model, call.input_tokens or 0, call.output_tokens or 0) for call in calls)

    def spent(self, day: datetime) -> float:
        """USD spent or set aside online on a UTC day."""
        return spent_usd(self.store.read, day=day.date())

    def _refusal(self, tx: Transaction, spent: dict[Account, float], reservation: Reservation) -> BudgetExceeded | None:
        """Book a reservation on every account with a cap; returns the refusal where it does not fit."""
        caps = [(account, self._cap(tx, account, reservation)) for account in reservation.accounts]
        limited = [(account, cap) for account, cap in caps if cap is not None]
        for account, cap in limited:
            if account not in spent:
                spent[account] = spent_usd(tx.execute, **account._asdict())
            if not has_room(cap, spent[account], reservation.usd):
                left, needed = max(0.0, cap - spent[account]), reservation.usd
                message = f"{account} is {cap:.4g} USD, {left:.4g} left, this needs {needed:.4g}"
                return BudgetExceeded(message, account=account)
        for account, _ in limited:
            spent[account] += reservation.usd
        return None

    def _cap(self, tx: Transaction, account: Account, reservation: Reservation) -> float | None:
        if account.run_id is not None:
            return reservation.run_cap
        day = reservation.day.date()
        usd = self.caps.on(day, tx.execute) if account.rule is None else self.caps.of(account.rule)
        return None if usd is None else usd * (1.0 - HELD_BACK * reservation.rest_of_day)


def _entry(reservation: Reservation, kind: Literal["reserve", "release", "spend"], usd: float) -> Entry:
    owner = (reservation.day.date(), reservation.evaluator, reservation.job_id, reservation.run_id, reservation.rule)
    return (*owner, kind, usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyCost:
    """The likely tokens and USD of cases, at least and at most; None where the price is unknown."""

    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    cost_usd_low: float | None
    cost_usd_at_most: float | None
    cost_unknown_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorBill(LikelyCost):
    """The likely cost of a replay with one evaluator."""

    evaluator: str
    version: str
    judge: str | None
    count: int
    already: int
    sample: Sequence[Case] = ()
    """Where only the caller can compute the cost of its judge: cases to do so with."""
    replies: tuple[float, float] | None = None
    """Mean and tenth percentile of the tokens of recorded replies, for the same."""

    def at(self, cost: LikelyCost) -> EvaluatorBill:
        """Return the bill with another cost."""
        changed = {field.name: getattr(cost, field.name) for field in fields(LikelyCost)}
        return replace(self, sample=(), replies=None, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill(LikelyCost):
    """The likely tokens and cost of a replay."""

    count: int
    already: int
    evaluators: Sequence[EvaluatorBill]


def bill(
    estimates: Sequence[Estimate],
    judge: Judge | None,
    count: int,
    price: Price | None,
    replies: tuple[float, float] | None = None,
) -> LikelyCost:
    """Return the likely tokens and USD of `count` cases like these, and the low and high end.

    `replies` holds mean and tenth percentile of the tokens of recorded replies. Without records a reply is as long as
    the evaluator expects, and the low end is the cost of the questions alone.
    """
    paid = [estimate for estimate in estimates if estimate.calls]
    mean, short = replies or (None, 0.0)
    likely = [
        (estimate.input_tokens, estimate.output_tokens if mean is None else round(estimate.calls * mean))
        for estimate in paid
    ]
    low = [(estimate.input_tokens, round(estimate.calls * short)) for estimate in paid]
    most = [max_tokens(estimate, judge) for estimate in paid]
    scale, model = count / max(1, len(estimates)), "" if judge is None else model_of(judge)
    costs = [_cost(price, model, tokens, scale) for tokens in (likely, low, most)]
    return LikelyCost(
        input_tokens=round(scale * sum(tokens for tokens, _ in likely)),
        output_tokens=round(scale * sum(tokens for _, tokens in likely)),
        cost_usd=costs[0],
        cost_usd_low=costs[1],
        cost_usd_at_most=costs[2],
        cost_unknown_reason=unknown_price(model) if None in costs else None,
    )


def _cost(price: Price | None, model: str, tokens: Sequence[tuple[int, int]], scale: float) -> float | None:
    cost = _sum(price(model, *counts) if price else None for counts in tokens)
    return None if cost is None else scale * cost


def total(parts: Sequence[EvaluatorBill], cap: float | None = None) -> Bill:
    """Return the bills of several evaluators as one; a cap limits the high end."""
    most = _sum(part.cost_usd_at_most for part in parts)
    reasons = dict.fromkeys(part.cost_unknown_reason for part in parts if part.cost_unknown_reason)
    return Bill(
        count=sum(part.count for part in parts),
        already=sum(part.already for part in parts),
        input_tokens=sum(part.input_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        cost_usd=_sum(part.cost_usd for part in parts),
        cost_usd_low=_sum(part.cost_usd_low for part in parts),
        cost_usd_at_most=most if most is None or cap is None else min(cap, most),
        cost_unknown_reason="; ".join(reasons) or None,
        evaluators=parts,
    )


def _sum(costs: Iterable[float | None]) -> float | None:
    """Return the sum; None where a cost is unknown."""
    known = list(costs)
    return None if None in known else sum(filter(None, known))


class Reservations:
    """The engine's purse over the ledger: reserves the maximum cost of a job until it is settled.

    A replay is one line, and so is a rule.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._line = Line[Reservation](Batcher(self._reserve_all, every_s=0.02))

    async def take(self, work: Work) -> Reservation | None:
        """Reserve on disk; returns None without a cap or a call. Raises BudgetExceeded."""
        # A check without a cap of its own draws on the day's budget.
        run = None if work.run is None or (work.run.kind and work.run.max_usd is None) else work.run
        if work.case is None or not self._ledger.limits(run, work.job.rule):
            return None
        usd = self._ledger.max_cost(work.evaluator, work.case)
        if usd == 0.0:
            return None
        reservation = Reservation(
            evaluator=work.job.evaluator,
            usd=usd,
            job_id=work.job.job_id,
            day=self._clock(),
            run_id=None if run is None else run.run_id,
            run_cap=None if run is None else run.max_usd,
            rule=work.job.rule,
        )
        is_run = reservation.run_id is not None
        await self._line.enter(reservation, reservation.line, reservation.accounts, is_run=is_run)
        return reservation

    def release(self, held: Reservation | None, result: EvaluationResult | None) -> None:
        """Mark a reservation as settled on disk, with its score: waiting jobs try again."""
        del result
        if held is not None:
            self._line.leave(held.accounts)

    async def _reserve_all(self, reservations: list[Reservation]) -> Sequence[BudgetExceeded | None]:
        """Reserve for those that wait behind nobody."""
        firsts = [each for each in reservations if self._line.is_first(each, each.line)]
        refusals = iter(await commit(self._ledger.store, lambda tx: self._ledger.reserve(tx, firsts)))
        behind = BudgetExceeded("another job waits for money")
        return [next(refusals) if each in firsts else behind for each in reservations]
