"""What a collector does beside receiving, made and wired here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from ragpulse_collector.api.handlers.data import StoreWithCopies
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
from ragpulse_collector.store import Prices
from ragpulse_evaluators import Judge
from ragpulse_evaluators.judges.cache import CachedJudge
from ragpulse_evaluators.judges.rate_limit import Gate, GatedJudge

POLL_S = {False: 30.0, True: 1.0}
"""How often the worker looks for jobs that nobody announced: only on a lake may another process have left some."""
SKEW = {False: timedelta(seconds=2), True: timedelta(minutes=10)}
"""How much later than it says a job may be seen: the writer of a file puts one transaction after the other."""


@dataclass(frozen=True, kw_only=True)
class Components:
    """The parts that others meet; the rest is joined inside."""

    rules: Rules
    sampler: Sampler
    pacer: Pacer
    worker: Worker
    monitors: Monitors
    drift: DriftWatch
    operations: Operations


def wire(
    store: StoreWithCopies,
    settings: Settings,
    *,
    prices: Prices,
    counters: Counters,
    waiting: Callable[[], int] = int,
    loads: Iterable[str] = (),
) -> Components:
    """Make every part; nothing runs yet. Raises SettingsError for an evaluator or a rule that cannot run here.

    `waiting` requests, like bodies of the backlog, make evaluation give way.
    """
    options = settings.collector
    gate = Gate(settings.judge.concurrency, requests_per_minute=settings.judge.requests_per_minute)
    price = JudgePrices(settings, prices)
    priced = partial(PricedJudge, prices=price)
    catalog = Catalog(settings, loads=loads, priced=priced, wrap=_recorded(store, gate), isolate=True)
    catalog.check()
    rules = Rules(settings, store, known=catalog.online)
    caps = Caps(
        usd_per_day=settings.judge.budget_usd_per_day if price.limited else None,
        of_rule=lambda name: rules.budgets().get(name),
    )
    ledger, pacer = Ledger(store, caps, price=price), Pacer(store, caps.usd_per_day, rules=rules.effective)
    sampler = Sampler(
        store,
        rules.effective,
        settle_s=options.settle_s,
        quiet_s=options.quiet_s,
        session_quiet_s=options.session_quiet_s,
        pi_scale=pacer.pi_scale,
    )
    throttle = Throttle(busy=lambda: waiting() > 0 or store.backlog().bodies > 0)
    poll_s = POLL_S[options.on_a_lake]
    skew = SKEW[options.on_a_lake]
    worker = Worker(
        store,
        catalog.resolve,
        ledger,
        gate=gate,
        throttle=throttle,
        poll_s=poll_s,
        skew=skew,
        in_hand=None if options.on_a_lake else Path(f"{options.db}.in-hand"),
    )
    monitors = Monitors(store, settings, known=lambda: catalog.registry.names)
    drift = DriftWatch(
        store=store,
        resolve=catalog.unrecorded.resolve,
        ledger=ledger,
        concurrency=settings.judge.concurrency,
        every=settings.drift.every,
        tell=monitors.drift,
    )
    asked = operations(
        store,
        settings,
        catalog=catalog,
        rules=rules,
        status=Status(store, settings, counters, budgets=rules.budgets, prices=lambda: prices.table.about()),
        replays=Replays(store, catalog.resolve, price=price, wake=worker.wake),
        monitors=monitors,
        drift=drift,
        prices=prices,
        force=sampler.force,
        wake=worker.wake,
    )
    return Components(
        rules=rules,
        sampler=sampler,
        pacer=pacer,
        worker=worker,
        monitors=monitors,
        drift=drift,
        operations=asked,
    )


def _recorded(store: StoreWithCopies, gate: Gate) -> Callable[[Judge], Judge]:
    """Keep every judge call in the store: what was asked before is answered from there, free."""
    calls = RecordedCalls(store)
    return lambda judge: CachedJudge(GatedJudge(judge, gate), calls)
