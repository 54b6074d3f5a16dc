"""One configuration in use: its exporter, tracer and provider, from its first span to the end of the process."""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context

from . import _names as names
from ._export.exporter import Exporter
from ._export.lifecycle import Lifecycle
from ._record.call import STATE
from ._record.provider import Provider
from ._record.recording import SpanPlan
from ._record.tracer import SDK_VERSION, Tracer, TraceSampler
from ._settings import SdkSettings

if TYPE_CHECKING:
    from ._export.spool import DiskSpool
    from ._record.attach import Forwarder

PROVIDER = Provider()
EXIT_SECONDS = 1.5
"""How long the end of a process may be delayed."""


class Runtime:
    """One configuration in use. Chooses the provider when the first span starts."""

    def __init__(self, settings: SdkSettings, tracer_provider: Any = None) -> None:
        # Imported here: it loads `http.client` and `ssl`, which a program that is never configured does not use. Not on
        # the exporting thread: a child that is forked in the middle of an import keeps half a module.
        from ._export.transport import HttpTransport

        self.settings = settings
        self.connect: Callable[[], HttpTransport] = partial(HttpTransport, settings.destination)
        self.mode = "not started"
        self._application_provider = tracer_provider
        self._lock = threading.Lock()
        self._forwarder: Forwarder | None = None
        self.exporter = Exporter(
            self.connect,
            max_bytes=settings.max_queue_bytes,
            gzip=settings.destination.gzip,
            spool=_spool(settings.spool_dir),
            on_start=self._started,
        )
        self.offer = self.exporter.offer if "otlp" in settings.exporters else lambda record: None
        self.own = Tracer(
            self.offer,
            policy=settings.policy,
            sampler=TraceSampler.named(settings.sampler, settings.sampler_arg),
            resource=settings.resource,
            processors=PROVIDER.processors,
            isolated=settings.isolated,
        )

    def start(self, plan: SpanPlan, context: Context) -> Any:
        """Starts the first span: chooses the tracer that starts all others."""
        with self._lock:
            if STATE.starter is self:
                STATE.starter = self._choose()
            starter = STATE.starter
        return self.own.start(plan, context) if starter is None else starter.start(plan, context)

    def _choose(self) -> Any:
        provider: Any = self._application_provider or (None if self.settings.isolated else trace.get_tracer_provider())
        if isinstance(provider, Provider) or not hasattr(provider, "add_span_processor"):
            self.mode = "own provider"
            return self.own
        # Imported here: it loads the OpenTelemetry SDK, which an application without a provider does not use.
        from ._record.attach import AttachTracer, Forwarder

        self.mode = "the application's provider"
        service = {key: self.settings.resource[key] for key in (names.SERVICE_NAME,) if self.settings.service_given}
        self._forwarder = Forwarder(
            self.exporter,
            self.settings.policy,
            content_on_spans=self.settings.content_on_foreign_spans,
            resource=service,
        )
        self._forwarder.active = "otlp" in self.settings.exporters
        self._forwarder.read_sampler(getattr(provider, "sampler", None))
        provider.add_span_processor(self._forwarder)
        return AttachTracer(provider.get_tracer("ragpulse", SDK_VERSION), self._forwarder, self.own.unsampled)

    def _started(self) -> None:
        """Runs when the exporting thread has started: by now a server has installed its signal handlers."""
        PROCESS.lifecycle.watch_workers()
        if not PROCESS.lifecycle.watch_sigterm():
            self.exporter.send_often()
        if PROCESS.lifecycle.ends_without_notice():
            self.exporter.wait_for_roots()

    def terminate(self, timeout: float = 0.0) -> None:
        """Delivers what is finished, waiting at most `timeout`; from then on, each span when it ends."""
        self.exporter.terminate()
        if timeout:
            self.exporter.flush(timeout, give_up=True)

    def shutdown(self, timeout: float) -> bool:
        """Delivers within `timeout` seconds and stops."""
        if self._forwarder is not None:
            self._forwarder.active = False
        return self.exporter.shutdown(timeout)

    def exit(self) -> None:
        """Delivers and stops within the time that a process may take to end."""
        self.shutdown(EXIT_SECONDS)
        PROVIDER.shutdown()

    def forked(self) -> None:
        """In a forked child: new identities, an empty queue, a thread and connections of its own."""
        self._lock = threading.Lock()
        self.own.forked()
        if self._forwarder is not None:
            self._forwarder.forked()
        self.exporter.forked()


def _spool(folder: str | None) -> "DiskSpool | None":
    if not folder:
        return None
    from ._export.spool import DiskSpool  # few applications need it

    return DiskSpool(folder)


class Process:
    """The current configuration of this process; each `configure` replaces it."""

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.lifecycle = Lifecycle(lambda: self.runtime)

    def use(self, runtime: Runtime | None) -> Runtime | None:
        """Makes `runtime` the current one, and returns the one before."""
        previous, self.runtime = self.runtime, runtime
        STATE.starter = runtime
        PROVIDER.tracer = None if runtime is None else runtime.own
        PROVIDER.flush = flush
        if runtime is not None:
            self.lifecycle.hook()
        return previous


PROCESS = Process()


def flush(timeout: float = 5.0) -> bool:
    """Sends everything that is finished; True when it is delivered, False when `timeout` seconds ran out first."""
    return PROCESS.runtime is None or PROCESS.runtime.exporter.flush(timeout)


def shutdown(timeout: float = 2.0) -> bool:
    """Delivers what is finished within `timeout` seconds and stops recording. True when nothing was left."""
    runtime = PROCESS.use(None)
    done = runtime is None or runtime.shutdown(timeout)
    PROVIDER.shutdown()
    return done
