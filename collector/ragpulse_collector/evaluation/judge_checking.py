"""Checks of judges in the collector, on a thread; what they spend is booked on the day's judge budget."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from uuid import uuid4

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation.budget import Ledger, Reservation, bill, unknown_price
from ragpulse_collector.evaluation.judge import JudgePrices
from ragpulse_collector.evaluation.judge_checks import CheckState, checks_file, store_check
from ragpulse_collector.refusals import Conflict, Invalid
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.protocol import utc_now
from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.judges.protocol import Judge, model_of
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge, FileCache
from ragpulse_evaluators.meta.judge_check import JudgeCheck, check_estimates, check_judge

_log = logging.getLogger("ragpulse.collector")
_LOOK_S = 0.1
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class StartedCheck:
    """A check that begins."""

    judge: str
    questions: int
    """As if nothing was recorded."""
    cost_usd: float | None
    """What they may cost; None where the price is unknown."""


class _CheckBudget(Budget):
    """The cap of one check, within the day's budget; both count on the day of its start."""

    def __init__(self, max_usd: float | None, ledger: Ledger) -> None:
        super().__init__(math.inf if max_usd is None else max_usd)
        self._ledger = ledger
        self._booking = Reservation(evaluator="judge check", usd=0.0, job_id=uuid4().hex, day=utc_now())

    def reserve(self, usd: float) -> None:
        super().reserve(usd)
        booking = replace(self._booking, usd=usd)
        (refusal,) = self._ledger.store.write(lambda tx: self._ledger.reserve(tx, [booking])).result()
        if refusal is not None:
            super().settle(usd, 0.0)
            raise refusal

    def settle(self, reserved: float, spent: float | None) -> None:
        super().settle(reserved, spent)
        booking = replace(self._booking, usd=reserved)
        self._ledger.store.write(lambda tx: self._ledger.settle(tx, [(booking, spent)])).result()


@dataclass(eq=False, repr=False)  # the settings hold secrets
class JudgeChecker:
    """Checks a configured judge when somebody asks; one at once."""

    settings: Settings
    catalog: Catalog
    """Its judges answer without the record."""
    _: KW_ONLY
    price: JudgePrices
    ledger: Ledger

    def __post_init__(self) -> None:
        self._thread, self._stop, self._lock = threading.Thread(), threading.Event(), threading.Lock()
        self.state: CheckState | None = None

    def start(self, name: str | None, max_usd: float | None) -> StartedCheck:
        """Answer `POST judge/check`; raises Invalid without a judge or the price that a cap needs, else Conflict."""
        judge = self.catalog.judge_named(name)
        limited = self._limited(judge, max_usd)
        estimates = check_estimates(judge)
        with self._lock:
            if self.state is not None and self.state.running:
                raise Conflict("a check of a judge is running: GET judge/checks says how far it is")
            self.state = CheckState(judge=judge.id, n=len(estimates))
            self._thread = threading.Thread(target=self._run, args=(limited,), name="ragpulse-check", daemon=True)
            self._thread.start()
        cost = bill(estimates, judge, len(estimates), self.price).cost_usd
        return StartedCheck(judge.id, sum(estimate.calls for estimate in estimates), cost)

    def stop(self) -> None:
        """Stop a check; its recorded replies stay, so that the next one goes on."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_STOP_S)

    def _limited(self, judge: Judge, max_usd: float | None) -> Judge:
        if max_usd is None and not self.ledger.limits():
            return judge
        rates = self.price.rates(model_of(judge))
        if rates is None:
            raise Invalid(unknown_price(model_of(judge)))
        return BudgetedJudge(judge, _CheckBudget(max_usd, self.ledger), rates)

    def _run(self, judge: Judge) -> None:
        db, error = self.settings.collector.db, None
        recorded = Path(f"{checks_file(db)}.{sha256_hex(judge.id)[:12]}.part")
        try:
            store_check(db, asyncio.run(self._check(judge, FileCache(recorded))), utc_now())
            recorded.unlink(missing_ok=True)  # the next check asks anew
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - the thread's boundary: the state tells it
            error = str(failure) or type(failure).__name__
            _log.warning("the check of the judge %s: %s", judge.id, error)
        if self.state is not None:
            self.state = replace(self.state, running=False, error=error)

    async def _check(self, judge: Judge, recorded: FileCache) -> JudgeCheck:
        at_once = self.settings.judge.concurrency
        work = asyncio.ensure_future(check_judge(judge, recorded, concurrency=at_once, progress=self._count))
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_S)
            if self._stop.is_set():
                work.cancel()
        return work.result()

    def _count(self, done: int, total: int) -> None:
        """Note one more result; the evaluators of a check follow each other, each with a total of its own."""
        del done, total
        state = self.state
        assert state is not None, "a check runs"
        self.state = replace(state, done=state.done + 1)
