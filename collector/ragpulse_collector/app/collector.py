"""One collector: the store and the port first, then it listens, then everything else is made behind the open door."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from ragpulse_collector.api.guard import Guard, Sessions, may_ingest
from ragpulse_collector.app.front import Front
from ragpulse_collector.app.grpc_server import GrpcServer, credentials
from ragpulse_collector.app.redaction import redacting
from ragpulse_collector.app.server import Server, bind
from ragpulse_collector.records import Batch, RawBody
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, open_store
from ragpulse_dashboards import SecurityHeaders

if TYPE_CHECKING:
    from ragpulse_collector.api.operations import Operation
    from ragpulse_collector.app.duties import Duties
    from ragpulse_collector.app.parts import Parts
    from ragpulse_collector.otlp.intake import Flight, Limits
    from ragpulse_collector.receiver_grpc import GrpcReceiver
    from ragpulse_collector.store import Store

_log = logging.getLogger("ragpulse.collector")

More = Callable[["Store"], Iterable["Operation"]]
"""Further operations over a collector's store."""


def no_more(store: Store) -> Iterable[Operation]:
    """None."""
    del store
    return ()


class Collector:
    """One process: `start` serves in the background (demo, tests), `run` in this thread until a signal."""

    def __init__(
        self,
        settings: Settings,
        *,
        loads: Iterable[str] = (),
        more: More = no_more,
        usual_grpc_port: int | None = None,
    ) -> None:
        """Open the store and bind the port; raises SettingsError, StoreError or OSError with the mend.

        `more` makes further operations over the store, which the API and the pages then have. `usual_grpc_port` is
        taken where the settings name none; if it is in use, there is no OTLP/gRPC.
        """
        settings.check()
        self.settings = settings
        self._loads, self._more, self._usual_grpc_port = tuple(loads), more, usual_grpc_port
        told = settings.collector
        with ExitStack() as undo:
            self._socket = bind(told.host, told.port)
            undo.callback(self._socket.close)
            self._prices = Prices(settings.prices)
            self.store = open_store(told.db, decode=redacting(_decode, told.redact), price=self._prices)
            undo.pop_all()
        self._sessions, self._web = Sessions(), Future[ASGIApp]()
        self._front = Front(self._web)
        self.app: ASGIApp = Guard(SecurityHeaders(self._front), settings=told, sessions=self._sessions)
        self._server = Server(self.app, self._socket, told, stopping=self.store.end_queries)
        self._grpc: GrpcServer | None = None
        self._duties: Duties | None = None

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

    @cached_property
    def parts(self) -> Parts:
        """What is made behind the open door; raises SettingsError for a rule that cannot run here."""
        from ragpulse_collector.app.parts import join
        from ragpulse_collector.otlp.intake import Counters

        self.counters = Counters()
        return join(
            self.store,
            self.settings,
            prices=self._prices,
            counters=self.counters,
            backlog=self.store.backlog,
            waiting=lambda: self._front.waiting,
            loads=self._loads,
            more=self._more(self.store),
        )

    def start(self, *, listen: bool = True) -> None:
        """Serve and evaluate in background threads; returns once everything is there, or raises like `run`.

        Without `listen` there is no server: questions go to `parts.operations`, in this process.
        """
        if listen:
            self._server.start()
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise

    def run(self, ready: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGINT or SIGTERM, then stop in order; `ready` is called once all is there.

        Raises SettingsError, StoreError or OSError with the mend where a part cannot be made.
        """
        failed: list[Exception] = []
        beginning = threading.Thread(target=self._begin_or_end, args=(ready, failed), name="ragpulse-start")
        try:
            self._server.run(listening=beginning.start)
        finally:
            if beginning.ident is not None:
                beginning.join()
            self.stop()
        if failed:
            raise failed[0]

    def stop(self) -> None:
        """Take no new requests, commit what was accepted, let evaluations in hand finish, close the file."""
        self._server.stop()
        if self._grpc is not None:
            self._grpc.stop()
        if self._duties is not None:
            self._duties.stop()
        self.store.close()

    def _begin_or_end(self, ready: Callable[[], object], failed: list[Exception]) -> None:
        try:
            self._begin()
            ready()
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whatever it is, `run` raises it
            failed.append(error)
            if not self._web.done():
                self._web.set_exception(error)
            self._server.end()

    def _begin(self) -> None:
        """Make everything that listening did not need, and let the waiting requests in."""
        from ragpulse_collector.app.duties import Duties
        from ragpulse_collector.app.web import web
        from ragpulse_collector.otlp.intake import MIB, Flight, Limits

        parts, told = self.parts, self.settings.collector
        limits = Limits(max_body_bytes=told.max_body_mb * MIB)
        flight = Flight(limits)
        self._web.set_result(
            web(
                self.store,
                self.settings,
                operations=parts.operations,
                sessions=self._sessions,
                flight=flight,
                limits=limits,
                counters=self.counters,
            )
        )
        self._duties = Duties(
            self.store,
            told,
            sampler=parts.sampler,
            pacer=parts.pacer,
            worker=parts.worker,
            monitors=parts.monitors,
            drift=parts.drift,
            arrivals=lambda: self._front.changes + self.counters.requests.total(),
        )
        self._duties.start()
        if told.grpc:
            self._grpc = self._listen_grpc(limits, flight)

    def _listen_grpc(self, limits: Limits, flight: Flight) -> GrpcServer | None:
        """Start OTLP/gRPC; None where nobody asked for it and its usual port is taken. Raises OSError with the mend."""
        asked = self.settings.collector.grpc_port
        port = self._usual_grpc_port if asked is None else asked
        if port is None:
            return None
        server = GrpcServer(partial(self._grpc_receiver, limits, flight, port))
        try:
            server.start()
        except OSError as error:
            server.stop()
            if asked is not None:
                raise OSError(f"{error}; choose another port with --grpc-port, or none with --no-grpc") from error
            _log.warning("no OTLP/gRPC: %s; choose another port with --grpc-port", error)
            return None
        return server

    def _grpc_receiver(self, limits: Limits, flight: Flight, port: int) -> GrpcReceiver:
        from ragpulse_collector.receiver_grpc import GrpcReceiver

        told = self.settings.collector
        return GrpcReceiver(
            self.store,
            host=told.host,
            port=port,
            limits=limits,
            flight=flight,
            counters=self.counters,
            authorize=partial(may_ingest, told),
            credentials=credentials(told),
        )


def _decode(body: RawBody) -> Batch:
    """Decode; the dialects are imported with the first body."""
    from ragpulse_collector.conventions import decode

    return decode(body)
