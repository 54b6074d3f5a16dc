"""What a collector does beside receiving, made and joined on one screen; over a closed file the questions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ragpulse_collector.api.data import StoreWithCopies
from ragpulse_collector.api.operations import Operation, Operations
from ragpulse_collector.api.rules import Rules
from ragpulse_collector.api.status import Status
from ragpulse_collector.app.operations import operations
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation import DriftWatch, Throttle, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.judge import RecordedCalls, judge_price
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.sampling import Pacer, Sampler
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices
from ragpulse_collector.store.queue import Backlog
from ragpulse_evaluators import Judge
from ragpulse_evaluators.judges.cache import CachedJudge
from ragpulse_evaluators.judges.rate_limit import Gate, GatedJudge

POLL_S = {False: 30.0, True: 1.0}
"""How often the worker looks for jobs that nobody announced: only on a lake may another process have left some."""
SKEW = {False: timedelta(seconds=2), True: timedelta(minutes=10)}
"""How much later than it says a job may be seen: the writer of a file puts one transaction after the other."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts that others meet; the rest is joined inside."""

    rules: Rules
    sampler: Sampler
    pacer: Pacer
    worker: Worker
    monitors: Monitors
    drift: DriftWatch
    operations: Operations


def join(
    store: StoreWithCopies,
    settings: Settings,
    *,
    prices: Prices,
    counters: Counters,
    backlog: Callable[[], Backlog] = Backlog,
    waiting: Callable[[], int] = int,
    loads: Iterable[str] = (),
    more: Iterable[Operation] = (),
) -> Parts:
    """Make every part; nothing runs yet. Raises SettingsError for a rule that cannot run here.

    `waiting` requests, like bodies of the backlog, make evaluation give way. `more` operations join those of the table.
    """
    told = settings.collector
    gate = Gate(settings.judge.concurrency, requests_per_minute=settings.judge.requests_per_minute)
    catalog = Catalog(settings, loads=loads, wrap=_recorded(store, gate), isolate=True)
    rules = Rules(settings, store, known=catalog.online)
    price = judge_price(settings, prices)
    caps = Caps(usd_per_day=None if settings.judge.is_local else settings.judge.budget_usd_per_day)
    ledger, pacer = Ledger(store, caps, price=price), Pacer(store, caps.usd_per_day)
    sampler = Sampler(store, rules.effective, settle_s=told.settle_s, quiet_s=told.quiet_s, pi_scale=pacer.pi_scale)
    throttle = Throttle(busy=lambda: waiting() > 0 or backlog().bodies > 0)
    poll_s = POLL_S[told.on_a_lake]
    skew = SKEW[told.on_a_lake]
    worker = Worker(
        store,
        catalog.resolve,
        ledger,
        gate=gate,
        throttle=throttle,
        poll_s=poll_s,
        skew=skew,
        in_hand=None if told.on_a_lake else Path(f"{told.db}.in-hand"),
    )
    monitors = Monitors(store, settings.monitor, drift=settings.drift)
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
        status=Status(store, settings, counters=counters, backlog=backlog),
        replays=Replays(store, catalog.resolve, price=price, wake=worker.wake),
        monitors=monitors,
        drift=drift,
        prices=prices,
        force=sampler.force,
        wake=worker.wake,
    )
    return Parts(
        rules=rules,
        sampler=sampler,
        pacer=pacer,
        worker=worker,
        monitors=monitors,
        drift=drift,
        operations=Operations((*asked, *more)),
    )


def _recorded(store: StoreWithCopies, gate: Gate) -> Callable[[Judge], Judge]:
    """Keep every judge call in the store: what was asked before is answered from there, free."""
    calls = RecordedCalls(store)
    return lambda judge: CachedJudge(GatedJudge(judge, gate), calls)
