"""The components of a collector besides receiving, and their wiring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path

from ragpulse_collector.api.handlers.rules import Rules
from ragpulse_collector.api.handlers.status import Status
from ragpulse_collector.api.operations import Operations
from ragpulse_collector.app.operations import operations
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation import DriftWatch, Throttle, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.judge import JudgePrices, PricedJudge, RecordedCalls
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.sampling import Pacer, Sampler
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import AnyStore, Prices
from ragpulse_evaluators import Judge
from ragpulse_evaluators.judges.protocol import model_of
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge

POLL_S = {False: 30.0, True: 1.0}
"""The worker's interval for jobs without a wake-up call: only on a lake other processes make such jobs."""
SKEW = {False: timedelta(seconds=2), True: timedelta(minutes=10)}
"""How much later than its own time a job may become visible: the writer of a file is serial."""


class Components:
    """The components of a collector. Each is made at its first use; none runs yet."""

    def __init__(
        self,
        store: AnyStore,
        settings: Settings,
        *,
        prices: Prices,
        counters: Counters,
        waiting: Callable[[], int] = int,
        loads: Iterable[str] = (),
    ) -> None:
        """Raises SettingsError for an evaluator or a rule that cannot run here.

        Evaluation slows down for `waiting` requests and for bodies of the backlog.
        """
        self._store, self._settings, self._prices, self._counters = store, settings, prices, counters
        self._busy = lambda: waiting() > 0 or store.backlog().bodies > 0
        self._gate = self._new_gate()
        self._price, self._calls = JudgePrices(settings, prices), RecordedCalls(store)
        priced = partial(PricedJudge, prices=self._price)
        self._catalog = Catalog(settings, loads=loads, priced=priced, wrap=self._recorded, isolate=True)
        self._catalog.check()
        self.rules = Rules(settings, store, check_evaluator=self._catalog.online)

    def _recorded(self, judge: Judge) -> Judge:
        """Record every judge call in the store; a repeated question is answered from there, free."""
        return CachedJudge(GatedJudge(judge, self._new_gate()), self._calls)

    def _new_gate(self) -> Gate:
        """Return a gate: each judge has its own, so that one that fails holds up no other."""
        judge = self._settings.judge
        return Gate(judge.concurrency, requests_per_minute=judge.requests_per_minute)

    @property
    def unpriced(self) -> str | None:
        """The first judge that has a cap and no price: no question goes to it."""
        models = map(model_of, self._catalog.judges if self._price.limited else ())
        return next((model for model in models if self._price(model, 1, 1) is None), None)

    @cached_property
    def _caps(self) -> Caps:
        per_day = self._settings.judge.budget_usd_per_day if self._price.limited else None
        return Caps(usd_per_day=per_day, of_rule=lambda name: self.rules.budgets().get(name))

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self._store, self._caps, price=self._price)

    @cached_property
    def pacer(self) -> Pacer:
        """Slows sampling down so that the budget lasts the whole day."""
        return Pacer(self._store, self._caps.usd_per_day, rules=self.rules.effective)

    @cached_property
    def sampler(self) -> Sampler:
        """Decides which units are evaluated."""
        options = self._settings.collector
        return Sampler(
            self._store,
            self.rules.effective,
            settle_s=options.settle_s,
            quiet_s=options.quiet_s,
            session_quiet_s=options.session_quiet_s,
            pi_scale=self.pacer.pi_scale,
        )

    @cached_property
    def worker(self) -> Worker:
        """Evaluates the selected units."""
        options = self._settings.collector
        return Worker(
            self._store,
            self._catalog.resolve,
            self._ledger,
            gate=self._gate,
            throttle=Throttle(busy=self._busy),
            poll_s=POLL_S[options.on_a_lake],
            skew=SKEW[options.on_a_lake],
            running_jobs=None if options.on_a_lake else Path(f"{options.db}.in-hand"),
        )

    @cached_property
    def monitors(self) -> Monitors:
        """Watch metrics and send messages."""
        return Monitors(self._store, self._settings, evaluators=lambda: self._catalog.registry.names)

    @cached_property
    def drift(self) -> DriftWatch:
        """Judges stored answers again."""
        return DriftWatch(
            store=self._store,
            resolve=self._catalog.unrecorded.resolve,
            ledger=self._ledger,
            concurrency=self._settings.judge.concurrency,
            interval=self._settings.drift.every,
            on_check=self.monitors.drift,
        )

    @cached_property
    def operations(self) -> Operations:
        """The operations of the API and the pages."""
        store, settings, wake, prices = self._store, self._settings, self.worker.wake, self._prices
        return operations(
            store,
            settings,
            catalog=self._catalog,
            rules=self.rules,
            status=Status(
                store, settings, self._counters, budgets=self.rules.budgets, prices=lambda: prices.table.about()
            ),
            replays=Replays(store, self._catalog.online, price=self._price, wake=wake),
            monitors=self.monitors,
            drift=self.drift,
            prices=prices,
            force=self.sampler.force,
            wake=wake,
        )
