"""Money for judges: a hard, durable ledger, and the pacing that keeps it from ever having to refuse.

    sampler ◀─ pi_scale ─ Pacer ◀─ what is left of the day        worker ─ reserve ─▶ Ledger ─▶ call ─ settle ─▶ Ledger

A reservation is on disk before the call is made. A reservation without a settlement (the process was killed during the
call) stays counted in full, so the cap holds whatever happens.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from ragpulse_collector.store import Rows, Store, Transaction
from ragpulse_collector.store.rows import utc_now

__all__ = ["Caps", "Controller", "Ledger", "OverBudget", "Pacer", "Price", "Reservation"]

Price = Callable[[str, int, int], float | None]
"""(model, input tokens, output tokens) → USD; None where the price is not known."""
_COLUMNS = ("entry_id", "day", "evaluator", "job_id", "run_id", "kind", "usd", "created_at")


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
        tx.append("ledger", _COLUMNS, [_entry(reservation, "reserve", reservation.usd) for reservation in granted])
        return refusals

    def settle(self, tx: Transaction, settled: Iterable[tuple[Reservation, float | None]]) -> None:
        """Replace reservations by what was really spent; an unknown price keeps the reservation as the spending."""
        entries = []
        for reservation, actual_usd in settled:
            spent = reservation.usd if actual_usd is None else actual_usd
            entries += [_entry(reservation, "release", -reservation.usd), _entry(reservation, "spend", spent)]
        tx.append("ledger", _COLUMNS, entries)

    def spent(self, day: datetime, *, evaluator: str | None = None) -> float:
        """USD spent or set aside online on a UTC day, of one evaluator or in all."""
        return _Account(day=day.date(), evaluator=evaluator).read(self._store.read)

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
        """USD spent or set aside."""
        sql = (
            "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE run_id IS NOT DISTINCT FROM $run"
            " AND ($day IS NULL OR day = $day::DATE) AND ($evaluator IS NULL OR evaluator = $evaluator)"
        )
        return float(read(sql, {"run": self.run_id, "day": self.day, "evaluator": self.evaluator}).rows[0][0])


def _entry(reservation: Reservation, kind: str, usd: float) -> tuple[Any, ...]:
    return (
        uuid.uuid4().hex,
        reservation.day.date(),
        reservation.evaluator,
        reservation.job_id,
        reservation.run_id,
        kind,
        usd,
        utc_now(),
    )


@dataclass(slots=True)
class Controller:
    """Chooses the scale of one evaluator so that what is left of the day's money lasts the day; pure arithmetic.

    It follows the demand at full rate, smoothed over `memory_s`, so that calling it twice changes nothing.
    """

    floor: float = 0.02
    memory_s: float = 600.0
    scale: float = 1.0
    demand: float | None = None
    """USD a second that would be spent at scale 1."""

    def update(self, *, usd: float, seconds: float, budget_usd: float, left_s: float) -> float:
        """Take in what the last `seconds` selected (in USD, at the present scale); return the next scale."""
        seen = usd / self.scale / seconds
        fresh = 1.0 if self.demand is None else 1.0 - math.exp(-seconds / self.memory_s)
        self.demand = seen * fresh + (self.demand or 0.0) * (1.0 - fresh)
        affordable = budget_usd / max(1.0, left_s)
        wanted = 1.0 if self.demand <= 0.0 else affordable / self.demand
        self.scale = min(1.0, max(self.floor, wanted))
        return self.scale


class Pacer:
    """Moves the inclusion probabilities so that the day's money lasts the day.

    `pi_scale(evaluator)` multiplies every designed pi of a costly evaluator. It follows the demand and what is left,
    minus a reserve; it never falls below `floor`, and the reserve pays for the floor. Since pi is stored with each
    decision, estimates stay unbiased however the scale moves.
    """

    def __init__(
        self,
        store: Store,
        caps: Caps,
        *,
        floor: float = 0.02,
        reserve: float = 0.1,
        first: timedelta = timedelta(minutes=15),
    ) -> None:
        self._store, self._caps = store, caps
        self.floor, self.reserve, self._first = floor, reserve, first
        self._controllers: dict[str, Controller] = {}
        self._seen: datetime | None = None

    def pi_scale(self, evaluator: str) -> tuple[float, str]:
        """The factor on this evaluator's designed inclusion probability, in [floor, 1], and the reason for it."""
        controller = self._controllers.get(evaluator)
        return (1.0 if controller is None else controller.scale), "budget"

    def update(self, now: datetime) -> dict[str, float]:
        """Recompute the scales from the ledger and the decisions since the last time; call it about once a minute."""
        since = self._seen or now - self._first
        seconds = (now - since).total_seconds()
        if seconds < 1.0:
            return self._scales()
        self._seen = now
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        left_s = 86_400.0 - (now - midnight).total_seconds()
        selected = self._selected(since, now)
        for name in self._controllers.keys() | selected.keys():
            controller = self._controllers.setdefault(name, Controller(floor=self.floor))
            budget = self._budget(name, midnight)
            if budget is not None:
                usd = selected.get(name, 0.0)
                controller.update(usd=usd, seconds=seconds, budget_usd=budget, left_s=left_s)
        return self._scales()

    def _scales(self) -> dict[str, float]:
        return {name: controller.scale for name, controller in self._controllers.items()}

    def _budget(self, name: str, midnight: datetime) -> float | None:
        """What this evaluator may still spend today under each cap, the reserve held back; None without a cap."""
        keep = 1.0 - self.reserve
        found: list[float] = []
        if self._caps.usd_per_day is not None:
            left = self._caps.usd_per_day * keep - _Account(day=midnight.date()).read(self._store.read)
            demands = {key: controller.demand or 0.0 for key, controller in self._controllers.items()}
            whole = sum(demands.values())
            found.append(left * demands.get(name, 0.0) / whole if whole and demands.get(name) else left)
        own = self._caps.per_evaluator.get(name)
        if own is not None:
            found.append(own * keep - _Account(day=midnight.date(), evaluator=name).read(self._store.read))
        return max(0.0, min(found)) if found else None

    def _selected(self, since: datetime, now: datetime) -> dict[str, float]:
        """USD that the units selected since then will cost, by evaluator: their pi times the mean cost of one.

        Of a unit decided once more it is what its pi rose by.
        """
        rows = self._store.read(
            "WITH cost AS (SELECT l.evaluator, avg(l.usd) AS usd FROM raw.ledger l"
            "   WHERE l.kind = 'spend' AND l.created_at > $now::TIMESTAMP - INTERVAL 2 DAY GROUP BY l.evaluator)"
            ", fresh AS (SELECT d.*, c.usd FROM raw.decisions d JOIN cost c ON c.evaluator = d.evaluator AND c.usd > 0"
            "   WHERE d.decided_at > $since AND d.decided_at <= $now)"
            " SELECT f.evaluator, sum(f.pi - coalesce(b.pi, 0)) * any_value(f.usd) FROM fresh f"
            " LEFT JOIN (SELECT * FROM raw.decisions"
            "   WHERE request_time >= (SELECT min(request_time) FROM fresh WHERE revision > 0)) b"
            " ON b.trace_id = f.trace_id AND b.span_id = f.span_id AND b.evaluator = f.evaluator"
            "   AND b.revision = f.revision - 1 GROUP BY 1",
            {"since": since, "now": now},
        ).rows
        return dict(rows)
