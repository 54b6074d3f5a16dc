"""The components of a collector besides receiving, their wiring, and the background tasks that run them.

One process has the background tasks, however many receive: sampling, evaluation, clean-up, monitors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.api.copies import Copies
from ragpulse_collector.api.operations import CheckNames, Operations
from ragpulse_collector.api.params import Mask
from ragpulse_collector.api.shown_settings import BUILT_IN
from ragpulse_collector.api.status import Status
from ragpulse_collector.app.names import KnownNames
from ragpulse_collector.app.process import release_startup_code
from ragpulse_collector.app.ticker import Job, Ticker
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.configuration import source_line
from ragpulse_collector.conventions.redaction import masking
from ragpulse_collector.evaluation import DriftWatch, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.judge import JudgePrices, RecordedCalls
from ragpulse_collector.evaluation.judge_checks import JudgeChecker
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.monitoring.digest import Digests
from ragpulse_collector.operations import all_operations
from ragpulse_collector.operations.collector import InForce
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.sampling import Pacer, Rules, Sampler
from ragpulse_collector.settings import CollectorSettings, Location, Settings
from ragpulse_collector.settings.lead import Lead, is_active, leading
from ragpulse_collector.store import Prices, Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.datasets import LEADS, keep, kept
from ragpulse_collector.store.reading import outbox_folder
from ragpulse_collector.store.retention import prune, prune_service, prune_to_size
from ragpulse_collector.topics.live import check_topics
from ragpulse_collector.topics.refitting import Refits
from ragpulse_evaluators import Judge
from ragpulse_evaluators.checks import Checks
from ragpulse_evaluators.judges.protocol import model_of
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge

if TYPE_CHECKING:
    from ragpulse_collector.store.lake import Lease

_log = logging.getLogger("ragpulse.collector")

POLL_S = {False: 30.0, True: 1.0}
"""The worker's interval for jobs without a wake-up call: only on a lake other processes make such jobs."""
SKEW = {False: timedelta(seconds=2), True: timedelta(minutes=10)}
"""How much later than its own time a job may become visible: the writer of a file is serial."""


class Components:
    """The components of a collector. Each is made at its first use; none runs yet."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        prices: Prices,
        counters: Counters,
        loads: Iterable[str] = (),
        own_process: bool = False,
    ) -> None:
        """Raises SettingsError for an evaluator or a rule that cannot run here.

        `own_process` says where checks run that the settings leave open.
        """
        self.store, self.started_with, self.prices, self._counters = store, settings, prices, counters
        self.settings = settings
        """Those in force: a reload replaces them."""
        self.checks = Checks(own_process=settings.evaluators.own_process(own_process))
        self._gate = self._new_gate()
        self._price, self._calls = JudgePrices(settings, prices), RecordedCalls(store)
        self.catalog = Catalog(settings, loads=loads, priced=self._price.priced, wrap=self._recorded, isolate=True)
        self.catalog.check()
        check_topics(settings)
        self.rules = Rules(settings, store, check_evaluator=self.catalog.online)

    def _recorded(self, judge: Judge) -> Judge:
        """Record every judge call in the store; a repeated question is answered from there, free."""
        return CachedJudge(GatedJudge(judge, self._new_gate()), self._calls)

    def _new_gate(self) -> Gate:
        """Return a gate: each judge has its own, so that one that fails holds up no other."""
        judge = self.started_with.judge
        return Gate(judge.concurrency, requests_per_minute=judge.requests_per_minute)

    @property
    def unpriced(self) -> str | None:
        """The first judge that has a cap and no price: no question goes to it."""
        models = map(model_of, self.catalog.judges if self._price.limited else ())
        return next((model for model in models if self._price(model, 1, 1) is None), None)

    @cached_property
    def _caps(self) -> Caps:
        judge, of_rule = self.started_with.judge, lambda name: self.rules.budgets().get(name)
        if not self._price.limited:
            return Caps(of_rule=of_rule)
        return Caps(usd_per_day=judge.budget_usd_per_day, usd_per_month=judge.budget_usd_per_month, of_rule=of_rule)

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.store, self._caps, price=self._price)

    @cached_property
    def pacer(self) -> Pacer:
        """Slows sampling down so that the budget lasts the whole day, and to what local models can read."""
        return Pacer(
            self.store,
            partial(self._caps.on, read=self.store.read),
            rules=self.rules.effective,
            cpu_loads=self.catalog.cpu_loads,
            checks=lambda: {name for name in self.rules.evaluated() if self.catalog.resolve(name).immediate},
            check_load=lambda: self.worker.check_load,
        )

    @cached_property
    def refits(self) -> Refits:
        """Fits topics in the background."""
        return Refits(self.store, self.started_with.topics)

    @cached_property
    def sampler(self) -> Sampler:
        """Decides which units are evaluated."""
        options = self.started_with.collector
        return Sampler(
            self.store,
            self.rules.effective,
            settle_s=options.settle_s,
            quiet_s=options.quiet_s,
            session_quiet_s=options.session_quiet_s,
            pi_scale=self.pacer.pi_scale,
            keep_up=self.pacer.keep_up,
            acceptance=self.started_with.feedback.acceptance,
            scales=self.started_with.feedback.scale,
            refused=self.worker.refused,
            topics=self.refits.assigner,
        )

    @cached_property
    def worker(self) -> Worker:
        """Evaluates the selected units."""
        options = self.started_with.collector
        return Worker(
            self.store,
            self.catalog.resolve,
            self._ledger,
            gate=self._gate,
            checks=self.checks,
            poll_s=POLL_S[options.on_a_lake],
            skew=SKEW[options.on_a_lake],
            running_jobs=None if options.on_a_lake else Path(f"{options.db}.in-hand"),
            resolve_anew=self.catalog.unrecorded.resolve,
            run_done=self.runs_ended,
        )

    @cached_property
    def monitors(self) -> Monitors:
        """Watch metrics and send messages."""
        return Monitors(self.store, self.started_with, evaluators=self.names)

    @cached_property
    def targets(self) -> Targets:
        """Compare metrics with their targets."""
        settings = self.started_with
        line = partial(source_line, settings, "target")
        return Targets(self.store, settings.target, evaluators=self.names, line=line)

    @cached_property
    def digests(self) -> Digests:
        """Make digests, and send one a week."""
        return Digests(self.store, self.started_with, self.monitors.outbox, self.targets, lead=self.lead)

    def in_force(self) -> Settings:
        """Return the settings with the rules and monitors of the API, and with the built-in rules at the end."""
        rules = sorted(self.rules.effective(), key=lambda rule: ("file", "api", "built-in").index(rule.source))
        monitors = list(self.monitors.definitions)
        sources: dict[str, list[str]] = {
            "rule": [rule.source for rule in rules],
            "monitor": [monitor.source for monitor in monitors],
        }
        places: dict[Location, str] = {
            (table, number): BUILT_IN if source == "built-in" else "API"
            for table, given in sources.items()
            for number, source in enumerate(given)
            if source != "file"
        }
        update = {"rule": tuple(rules), "monitor": tuple(monitor.settings for monitor in monitors)}
        return self.settings.model_copy(update=update).placed(places)

    def lead(self) -> str:
        """Return the evaluator that leads."""
        return leading(self.rules.effective(), self.started_with.evaluator, self.started_with.lead)

    def retired(self) -> dict[str, list[str]]:
        """Return the evaluators that a rule evaluated once and none does now, each with what reads it."""
        readers = [(f"monitor {each.settings.name}", each.settings.metric) for each in self.monitors.definitions]
        readers += [("a target", target.metric) for target in self.settings.target]
        gone = sorted(set[str]().union(*self.rules.earlier()) - self.rules.evaluated())
        return {
            name: [by for by, metric in readers if metric.partition(":")[2].partition("@")[0] == name] for name in gone
        }

    def names(self) -> set[str]:
        """Return the registered evaluators, and people's scores."""
        return {*self.catalog.registry.names, *self.started_with.feedback.metrics}

    @cached_property
    def drift(self) -> DriftWatch:
        """Judges stored answers again."""
        return DriftWatch(
            store=self.store,
            resolve=self.catalog.unrecorded.resolve,
            wake=lambda: self.worker.wake(),
            interval=self.started_with.drift.every,
            on_check=self.monitors.drift,
        )

    @cached_property
    def checker(self) -> JudgeChecker:
        """Checks judges on labelled answers."""
        return JudgeChecker(
            self.store,
            self.started_with,
            self.catalog.unrecorded,
            price=self._price,
            ledger=self._ledger,
            wake=lambda: self.worker.wake(),
        )

    def runs_ended(self, run_ids: list[str]) -> None:
        """Tell the checks of judges which runs are done, also those of a process before."""
        try:
            self.drift.ended(run_ids)
            self.checker.ended()
        except Exception:  # noqa: BLE001 - the boundary of the worker: a report that fails ends no evaluation
            _log.exception("the result of a run could not be stored")

    def price_table(self) -> Mapping[str, str | None]:
        """Return the price table and its date."""
        return self.prices.table.about()

    @cached_property
    def status(self) -> Status:
        """Counts what was received and done."""
        return Status(
            self.store,
            self.started_with,
            self._counters,
            budgets=self.rules.budgets,
            prices=self.price_table,
            other_groups=lambda: self.monitors.other_groups,
            keeps_up=lambda: self.pacer.keeps_up,
            retired=self.retired,
        )

    @cached_property
    def replays(self) -> Replays:
        """Runs stored traces through evaluators."""
        return Replays(
            self.store,
            self.catalog.online,
            price=self._price,
            wake=self.worker.wake,
            in_force=lambda: [name for rule in self.rules.effective() if is_active(rule) for name in rule.evaluators],
        )

    @cached_property
    def operations(self) -> Operations:
        """The operations of the API and the pages, with what this collector gives to them, by type."""
        services: dict[Any, Callable[[], Any]] = {
            Store: lambda: self.store,
            Settings: lambda: self.started_with,
            InForce: lambda: self.in_force,
            Clock: lambda: utc_now,
            Lead: lambda: self.lead,
            Mask: cache(lambda: masking(self.started_with.collector.redact)),
            Copies: cache(lambda: Copies(outbox_folder(self.store.path))),
            Snapshots: cache(lambda: Snapshots(self.store)),
            Prices: lambda: self.prices,
            Catalog: lambda: self.catalog,
            Rules: lambda: self.rules,
            Status: lambda: self.status,
            Sampler: lambda: self.sampler,
            Worker: lambda: self.worker,
            Replays: lambda: self.replays,
            Refits: lambda: self.refits,
            Monitors: lambda: self.monitors,
            Targets: lambda: self.targets,
            Digests: lambda: self.digests,
            DriftWatch: lambda: self.drift,
            JudgeChecker: lambda: self.checker,
            CheckNames: lambda: KnownNames(self.store, self.names, self._watched),
        }
        return Operations(all_operations(), services)

    def _watched(self) -> list[str]:
        """Return the metrics of monitors and targets."""
        monitored = [monitor.settings.metric for monitor in self.monitors.definitions]
        return [*monitored, *(target.metric for target in self.started_with.target)]


DECIDE_EVERY_S = {False: 0.25, True: 2.0}
"""The interval of decisions; on a lake each is a commit to the catalog that all processes share."""
PACE_EVERY_S = 60.0
MONITOR_EVERY_S = 60.0
PRUNE_EVERY_S = 3600.0
TOPICS_EVERY_S = 60.0
CHECK_EVERY_S = 3600.0
MERGE_EVERY_S = 300.0
LEASE_EVERY_S = 5.0
LOG_EVERY_S = 1.0
RELEASE_EVERY_S, RELEASE_FIRST_S = 3600.0, 0.5
LOOK_EVERY_S = 60.0
"""The sampler's interval while nothing arrives ..."""
LINGER_S = 5.0
"""... which begins this long after the last arrival, plus the time that a unit may wait."""
GB = 10**9


class BackgroundTasks:
    """Runs the jobs of the roles, alone or while this process holds the lease."""

    def __init__(
        self,
        store: Store,
        settings: CollectorSettings,
        components: Components,
        *,
        arrivals: Callable[[], int],
    ) -> None:
        """`arrivals` returns a number that grows with every arrival that may need a decision."""
        self._store, self._settings, self._arrivals = store, settings, arrivals
        self._arrived, self._busy_until, self._next_decision = arrivals(), 0.0, 0.0
        self._components = components
        self._lease = _lease(settings.db) if set(settings.roles) & {"evaluate", "maintain"} else None
        self._leading = False
        self._ticker, self._slow = Ticker(self._jobs()), Ticker(self._slow_jobs())

    def start(self) -> None:
        """Start the jobs, and the worker at once where no lease is needed."""
        if self._lease is None:
            self._lead()
        self._ticker.start()
        self._slow.start()

    def stop(self) -> None:
        """Stop after the current work, and release the lease."""
        self._ticker.stop()
        self._slow.stop()
        self._components.refits.stop()
        self._components.worker.stop()
        self._components.monitors.outbox.stop()
        if self._lease is not None:
            self._lease.release()

    def _lead(self) -> None:
        self._leading = True
        if "maintain" in self._settings.roles:
            self._components.monitors.outbox.start()
        if "evaluate" in self._settings.roles:
            self._components.worker.start()
            self._components.runs_ended([])

    def _try_to_lead(self) -> None:
        has_lease = self._lease is not None and self._lease.take()
        if has_lease and not self._leading:
            _log.info("this process has the lease: it evaluates and maintains from now on")
            self._lead()
        elif self._leading and not has_lease:
            _log.warning("this process has lost the lease: another one evaluates and maintains")
            self._leading = False
            self._components.worker.stop()
            self._components.monitors.outbox.stop()

    def _jobs(self) -> list[Job]:
        jobs = []
        if "evaluate" in self._settings.roles:
            jobs += [
                Job("deciding units", DECIDE_EVERY_S[self._settings.on_a_lake], self._decide),
                Job("pacing the sampling", PACE_EVERY_S, self._pace, first_s=0.0),
                Job("checking judges", CHECK_EVERY_S, self._components.drift.run_due),
            ]
        if "maintain" in self._settings.roles:
            jobs += [
                Job("retention", PRUNE_EVERY_S, self._prune),
                Job("topics", TOPICS_EVERY_S, self._components.refits.tick),
                Job("monitors", MONITOR_EVERY_S, self._components.monitors.check),
                Job("noting what leads", MONITOR_EVERY_S, self.note_lead, first_s=0.0),
            ]
            merge = getattr(self._store, "maintain", None)
            if merge is not None:
                jobs.append(Job("merging the lake's files", MERGE_EVERY_S, merge))
        for job in jobs:
            job.run = partial(self._if_leading, job.run)
        jobs.append(Job("releasing startup code", RELEASE_EVERY_S, release_startup_code, first_s=RELEASE_FIRST_S))
        if not self._settings.on_a_lake:
            jobs.append(Job("checking the log", LOG_EVERY_S, self._store.check_files))
        if self._lease is not None:
            jobs.append(Job("taking the lease", LEASE_EVERY_S, self._try_to_lead))
        return jobs

    def _slow_jobs(self) -> list[Job]:
        """Return what takes seconds: decisions do not wait for it."""
        check = partial(self._if_leading, self._components.digests.check)
        return [Job("the weekly digest", MONITOR_EVERY_S, check)] if "maintain" in self._settings.roles else []

    def _if_leading(self, run: Callable[[], object]) -> None:
        if self._leading:
            run()

    def note_lead(self) -> None:
        """Store the evaluator that leads, where it is not the one before: charts mark the switch."""
        name, known = self._components.lead(), sorted(kept(self._store.read, LEADS))
        if not known or known[-1].partition(" ")[2] != name:
            self._store.write(lambda tx: keep(tx, LEADS, f"{tx.at.isoformat()} {name}")).result()

    def _pace(self) -> None:
        self._components.pacer.update(utc_now())

    def _prune(self) -> None:
        keep_limits(self._store, self._settings, now=utc_now())

    def _decide(self) -> None:
        """Decide the units that are due; while nothing arrives, rarely, so that an idle collector is idle."""
        arrived, now = self._arrivals(), time.monotonic()
        if arrived != self._arrived or self._settings.on_a_lake:
            self._arrived, self._busy_until = arrived, now + self._settings.settle_s + self._settings.quiet_s + LINGER_S
        if now > self._busy_until and now < self._next_decision:
            return
        decided = self._components.sampler.decide(utc_now())
        self._next_decision = now if decided else now + LOOK_EVERY_S  # some may be left
        if decided:
            self._components.worker.wake()


def keep_limits(store: Store, settings: CollectorSettings, *, now: datetime) -> None:
    """Delete traces that are too old, of all services and of single ones, then those beyond the size limit."""
    cutoff = partial(retention_cutoff, now, whole_days=settings.on_a_lake)
    prune(store, older_than=cutoff(days=settings.retention_days))
    for service, days in settings.retention_days_by_service.items():
        prune_service(store, service, older_than=cutoff(days=days))
    prune_to_size(store, int(settings.retention_gb * GB))


def retention_cutoff(now: datetime, *, days: float, whole_days: bool) -> datetime:
    """Return the time before which requests are too old; `whole_days`: a midnight, where a file holds one day."""
    cutoff = now - timedelta(days=days)
    return cutoff.replace(hour=0, minute=0, second=0, microsecond=0) if whole_days else cutoff


def _lease(db: str) -> Lease | None:
    """Return the lease of evaluation and maintenance, where several processes share a store."""
    shared = "ducklake:postgres:"
    if not db.startswith(shared):
        return None
    from ragpulse_collector.store.lake import Lease, lake_parts

    return Lease(lake_parts(db)[0].removeprefix(shared))
