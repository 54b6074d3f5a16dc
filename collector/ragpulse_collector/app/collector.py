"""One collector: it opens the store, binds the port and listens; the other components load in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from ragpulse_collector.api.guard import Guard, Keys
from ragpulse_collector.api.headers import SecurityHeaders
from ragpulse_collector.app.proxy import PublicAddress
from ragpulse_collector.app.server import GrpcServer, Server, StartingApp, bind, credentials, most_connections
from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.redaction import Redactor
from ragpulse_collector.settings import Settings, SettingsError
from ragpulse_collector.store import Prices, open_store

if TYPE_CHECKING:
    from ragpulse_collector.app.wiring import BackgroundTasks, Components
    from ragpulse_collector.otlp.intake import Flight
    from ragpulse_collector.receiver_grpc import GrpcReceiver

_log = logging.getLogger("ragpulse.collector")


class Collector:
    """One process: `start` serves in the background (demo, tests), `run` in this thread until a signal."""

    def __init__(
        self,
        settings: Settings,
        *,
        loads: Iterable[str] = (),
        default_grpc_port: int | None = None,
        own_process: bool = False,
    ) -> None:
        """Open the store and bind the port; raises SettingsError, StoreError or OSError with the fix.

        `default_grpc_port` is for settings without one; if it is in use, there is no OTLP/gRPC. `own_process` says
        where checks run that the settings leave open.
        """
        settings.check()
        self.settings = settings
        self._loads, self._default_grpc_port, self._own_process = tuple(loads), default_grpc_port, own_process
        options = settings.collector
        with ExitStack() as undo:
            self._socket = bind(options.host, options.port)
            undo.callback(self._socket.close)
            self._prices = Prices(settings.prices, options.price_table)
            decoding = partial(decode, redactor=Redactor.of(options.redact))
            self.store = open_store(options.db, decode=decoding, price=self._prices)
            undo.pop_all()
        self._keys, self._web = Keys(options), Future[ASGIApp]()
        self._starting = StartingApp(self._web)
        guard = Guard(SecurityHeaders(self._starting), settings=options, keys=self._keys)
        self.app: ASGIApp = PublicAddress(guard, options) if options.root or options.trusted_proxies else guard
        self._server = Server(self.app, self._socket, options, stopping=self.store.end_queries)
        self._grpc: GrpcServer | None = None
        self._background: BackgroundTasks | None = None

    @property
    def url(self) -> str:
        """The address of the pages."""
        host = self.settings.collector.host
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        scheme = "https" if self.settings.collector.tls_certificate else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._server.port}"

    @property
    def grpc_port(self) -> int | None:
        """The port of OTLP/gRPC once started; None without gRPC."""
        return self._grpc.port if self._grpc else None

    @cached_property
    def components(self) -> Components:
        """The components that load in the background; raises SettingsError for a rule that cannot run here."""
        from ragpulse_collector.app.wiring import Components
        from ragpulse_collector.otlp.intake import Counters

        self.counters = Counters()
        return Components(
            self.store,
            self.settings,
            prices=self._prices,
            counters=self.counters,
            loads=self._loads,
            own_process=self._own_process,
        )

    def start(self, *, listen: bool = True) -> None:
        """Serve and evaluate in background threads; returns once every component runs, or raises like `run`.

        Without `listen` there is no server: callers use `components.operations`, in this process.
        """
        if listen:
            self._server.start()
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise

    def run(self, ready: Callable[[], object] = lambda: None, signalled: Callable[[], object] = lambda: None) -> None:
        """Serve in this thread until SIGINT or SIGTERM, then stop in order; `ready` is called once all components run.

        `signalled` is called when the signal comes. Raises SettingsError, StoreError or OSError with the fix where a
        component cannot start.
        """
        errors: list[Exception] = []
        beginning = threading.Thread(target=self._begin_or_end, args=(ready, errors), name="ragpulse-start")
        try:
            self._server.run(listening=beginning.start, signalled=signalled)
        finally:
            if beginning.ident is not None:
                beginning.join()
            self.stop()
        if errors:
            raise errors.pop()

    def reload(self, new: Settings) -> list[str]:
        """Put rules, monitors, prices and keys of changed settings in force, all or none.

        Raises SettingsError, and StoreError for a price table that cannot be read. Returns
        the other settings that differ: they need a restart.
        """
        new.check()
        options = self.settings.collector.model_copy(update={"api_keys": new.collector.api_keys})
        changed = {name: getattr(new, name) for name in ("rule", "monitor", "prices")}
        settings = self.settings.model_copy(update={**changed, "collector": options}).placed(
            {at: place for at, place in new.places.items() if at[0] in changed or at[:2] == ("collector", "api_keys")}
        )
        components, pending = self.components, list(_different(settings, new))
        try:
            apply = [owner.reload(settings) for owner in (components.rules, components.monitors.definitions)]
        except SettingsError as error:
            if not pending:
                raise
            raise SettingsError(f"{error}; changed as well, which needs a restart: {', '.join(pending)}") from error
        self._prices.replace(settings.prices, options.price_table)
        for put_in_force in apply:
            put_in_force()
        self._keys.replace(options)
        self.settings = components.settings = settings
        return pending

    def stop(self) -> None:
        """Accept no new requests, commit the accepted ones, finish running evaluations, close the file."""
        self._server.stop()
        if self._grpc is not None:
            self._grpc.stop()
        if self._background is not None:
            self._background.stop()
        self.store.close()

    def _begin_or_end(self, ready: Callable[[], object], errors: list[Exception]) -> None:
        try:
            self._begin()
            ready()
        except Exception as error:  # noqa: BLE001 - the thread's boundary: `run` raises the error
            errors.append(error)
            if not self._web.done():
                self._web.set_exception(RuntimeError("the start failed"))  # `error` would keep the store alive
            self._server.end()

    def _begin(self) -> None:
        """Start every component that listening did not need, and answer the waiting requests."""
        from ragpulse_collector.app.web import web
        from ragpulse_collector.app.wiring import BackgroundTasks
        from ragpulse_collector.monitoring import log_changed_meanings
        from ragpulse_collector.otlp.intake import MIB, Flight, Limits

        components, options = self.components, self.settings.collector
        flight = Flight(Limits(max_body_bytes=options.max_body_mb * MIB))
        self._web.set_result(
            web(
                self.store,
                self.settings,
                operations=components.operations,
                keys=self._keys,
                flight=flight,
                counters=self.counters,
            )
        )
        self._background = BackgroundTasks(
            self.store,
            options,
            components,
            arrivals=lambda: self._starting.changes + self.counters.requests.total(),
        )
        self._background.start()
        log_changed_meanings(
            self.store,
            monitors=components.monitors.definitions,
            targets=self.settings.target,
            rules=components.rules.effective(),
        )
        if options.grpc:
            self._grpc = self._listen_grpc(flight)

    def _listen_grpc(self, flight: Flight) -> GrpcServer | None:
        """Start OTLP/gRPC; None where the default port is in use. Raises OSError with the fix for a configured port."""
        configured = self.settings.collector.grpc_port
        port = self._default_grpc_port if configured is None else configured
        if port is None:
            return None
        server = GrpcServer(partial(self._grpc_receiver, flight, port))
        try:
            server.start()
        except OSError as error:
            server.stop()
            if configured is not None:
                raise OSError(f"{error}; choose another port with --grpc-port, or none with --no-grpc") from error
            _log.warning("no OTLP/gRPC: %s; choose another port with --grpc-port", error)
            return None
        return server

    def _grpc_receiver(self, flight: Flight, port: int) -> GrpcReceiver:
        from ragpulse_collector.receiver_grpc import GrpcReceiver

        options = self.settings.collector
        return GrpcReceiver(
            self.store,
            host=options.host,
            port=port,
            flight=flight,
            counters=self.counters,
            authorize=self._keys.sender,
            credentials=credentials(options),
            most_connections=most_connections() // 4,
        )


def _different(settings: Settings, new: Settings) -> Iterator[str]:
    """Yield the keys of `[collector]` and `[judge]`, and the other tables, that differ."""
    for table in set(type(settings).model_fields) - {"source"}:
        old, other = getattr(settings, table), getattr(new, table)
        if table in ("collector", "judge"):
            yield from (f"[{table}] {key}" for key, value in old if getattr(other, key) != value)
        elif old != other:
            yield f"[{table}]"
