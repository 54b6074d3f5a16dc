"""Every part of a collector, made and joined on one screen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from ragpulse_collector.api.guard import Sessions, may_ingest
from ragpulse_collector.api.rules import Rules
from ragpulse_collector.api.status import Status
from ragpulse_collector.app.grpc_server import GrpcServer, credentials
from ragpulse_collector.app.money import judge_is_local, judge_price
from ragpulse_collector.app.operations import operations
from ragpulse_collector.app.redaction import redacting
from ragpulse_collector.app.server import Server, bind
from ragpulse_collector.app.ticker import Job, Ticker
from ragpulse_collector.app.web import web
from ragpulse_collector.budget import Caps, Ledger, Pacer
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.conventions import decode
from ragpulse_collector.monitors import Monitors
from ragpulse_collector.otlp.intake import MIB, Counters, Flight, Limits
from ragpulse_collector.replay import Replays
from ragpulse_collector.sampler import Sampler
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, open_store
from ragpulse_collector.store.lake import LakeStore, Lease
from ragpulse_collector.store.opening import lake_parts
from ragpulse_collector.store.retention import prune
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.worker import Worker
from ragpulse_collector.worker.recorded import RecordedCalls
from ragpulse_evaluators import Judge
from ragpulse_evaluators.cache import CachedJudge

if TYPE_CHECKING:
    from ragpulse_collector.receiver_grpc import GrpcReceiver

_log = logging.getLogger("ragpulse.collector")
DECIDE_EVERY_S = 0.25
MONITOR_EVERY_S = 60.0
PRUNE_EVERY_S = 3600.0
MERGE_EVERY_S = 300.0
LEASE_EVERY_S = 5.0
GB = 10**9


class Collector:
    """One process: `start` serves in the background (demo, tests), `run` in this thread until a signal."""

    def __init__(self, settings: Settings, *, loads: Iterable[str] = ()) -> None:
        """Open the store and bind the port; raises SettingsError, StoreError or OSError with the mend."""
        settings.check()
        self.settings = settings
        told = settings.collector
        with ExitStack() as undo:
            self._socket = bind(told.host, told.port)
            undo.callback(self._socket.close)
            self._open_store(undo)
            self._join_parts(loads)
            undo.pop_all()

    def _open_store(self, undo: ExitStack) -> None:
        told = self.settings.collector
        self.prices = Prices(self.settings.prices)
        self.store = open_store(told.db, decode=redacting(decode, told.redact), price=self.prices)
        undo.callback(self.store.close)
        self._lease = _lease(told.db) if set(told.roles) & {"evaluate", "maintain"} else None
        self._leading = self._lease is None

    def _join_parts(self, loads: Iterable[str]) -> None:
        settings, told = self.settings, self.settings.collector
        self.counters, limits = Counters(), Limits(max_body_bytes=told.max_body_mb * MIB)
        self.catalog = Catalog(settings, loads=loads, wrap=self._recorded)
        self.rules = Rules(settings, self.store, known=self.catalog.online)
        price = judge_price(settings, self.prices)
        caps = Caps(usd_per_day=None if judge_is_local(settings) else settings.judge.budget_usd_per_day)
        self.ledger, self.pacer = Ledger(self.store, caps, price=price), Pacer(self.store, caps)
        self.sampler = Sampler(
            self.store,
            self.rules.effective,
            settle_s=told.settle_s,
            quiet_s=told.quiet_s,
            pi_scale=self.pacer.pi_scale,
        )
        self.worker = Worker(
            self.store,
            self.catalog.resolve,
            self.ledger,
            pacer=self.pacer,
            concurrency=settings.judge.concurrency,
            requests_per_minute=settings.judge.requests_per_minute,
        )
        status = Status(self.store, settings, counters=self.counters, queued_bytes=lambda: self.store.waiting_bytes)
        self.monitors = Monitors(self.store, settings.monitor)
        replays = Replays(self.store, self.catalog.resolve, price=price, wake=self.worker.wake)
        self.operations = operations(
            self.store,
            settings,
            catalog=self.catalog,
            rules=self.rules,
            status=status,
            replays=replays,
            monitors=self.monitors,
            prices=self.prices,
            force=self.sampler.force,
            wake=self.worker.wake,
        )
        flight = Flight(limits)
        self.app: ASGIApp = web(
            self.store,
            settings,
            operations=self.operations,
            sessions=Sessions(),
            flight=flight,
            limits=limits,
            counters=self.counters,
        )
        self._server = Server(self.app, self._socket, told)
        self._grpc = None if told.grpc_port is None else GrpcServer(partial(self._grpc_receiver, limits, flight))
        self._ticker = Ticker(self._jobs(told.roles))

    @property
    def url(self) -> str:
        """Where the pages are."""
        host = self.settings.collector.host
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        scheme = "https" if self.settings.collector.tls_certificate else "http"
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{self._server.port}"

    @property
    def grpc_port(self) -> int | None:
        """The port of OTLP/gRPC once started; None where there is none."""
        return self._grpc.port if self._grpc else None

    def start(self, *, listen: bool = True) -> None:
        """Serve and evaluate in background threads; returns once requests are accepted.

        Without `listen` there is no server: questions go to `operations`, in this process.
        """
        self._start_background()
        if listen:
            self._server.start()

    def run(self) -> None:
        """Serve in this thread until SIGINT or SIGTERM, then stop in order."""
        self._start_background()
        try:
            self._server.run()
        finally:
            self.stop()

    def stop(self) -> None:
        """Take no new requests, commit what was accepted, let evaluations in hand finish, close the file."""
        self._server.stop()
        if self._grpc is not None:
            self._grpc.stop()
        self._ticker.stop()
        self.worker.stop()
        if self._lease is not None:
            self._lease.release()
        self.store.close()

    def _recorded(self, judge: Judge) -> Judge:
        """Keep every judge call in the store: what was asked before is answered from there, free."""
        return CachedJudge(judge, RecordedCalls(self.store))

    def _grpc_receiver(self, limits: Limits, flight: Flight) -> GrpcReceiver:
        from ragpulse_collector.receiver_grpc import GrpcReceiver

        told = self.settings.collector
        return GrpcReceiver(
            self.store,
            host=told.host,
            port=told.grpc_port or 0,
            limits=limits,
            flight=flight,
            counters=self.counters,
            authorize=partial(may_ingest, told),
            credentials=credentials(told),
        )

    def _start_background(self) -> None:
        if self._grpc is not None:
            self._grpc.start()
        if self._leading:
            self._lead()
        self._ticker.start()

    def _lead(self) -> None:
        self._leading = True
        if "evaluate" in self.settings.collector.roles:
            self.worker.start()

    def _try_to_lead(self) -> None:
        held = self._lease is not None and self._lease.take()
        if held and not self._leading:
            _log.info("this process evaluates and maintains from now on")
            self._lead()
        elif self._leading and not held:
            _log.warning("the lease was lost: another process evaluates and maintains")
            self._leading = False
            self.worker.stop()

    def _jobs(self, roles: Sequence[str]) -> list[Job]:
        jobs = self._duties(roles)
        for job in jobs:
            job.run = partial(self._if_leading, job.run)
        if self._lease is not None:
            jobs.append(Job("taking the lease", LEASE_EVERY_S, self._try_to_lead))
        return jobs

    def _if_leading(self, run: Callable[[], object]) -> None:
        if self._leading:
            run()

    def _duties(self, roles: Sequence[str]) -> list[Job]:
        """What one process at a time does, however many receive."""
        jobs = []
        if "evaluate" in roles:
            jobs.append(Job("deciding units", DECIDE_EVERY_S, self._decide))
        if "maintain" in roles:
            jobs.append(Job("retention", PRUNE_EVERY_S, self._prune))
            jobs.append(Job("monitors", MONITOR_EVERY_S, self.monitors.check))
            if isinstance(self.store, LakeStore):
                jobs.append(Job("merging the lake's files", MERGE_EVERY_S, self.store.maintain))
        return jobs

    def _prune(self) -> None:
        told = self.settings.collector
        oldest = utc_now() - timedelta(days=told.retention_days)
        prune(self.store, older_than=oldest, max_bytes=int(told.retention_gb * GB))

    def _decide(self) -> None:
        if self.sampler.decide(utc_now()):
            self.worker.wake()


def _lease(db: str) -> Lease | None:
    """The right to evaluate and maintain, where several processes may want it."""
    shared = "ducklake:postgres:"
    return Lease(lake_parts(db)[0].removeprefix(shared)) if db.startswith(shared) else None
