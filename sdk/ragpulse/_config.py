"""`configure` and what it composes: settings, transport, exporter, tracer. The first span starts the thread."""

import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from . import attributes as names
from ._export import encoder as _wire
from ._export.batch import Batch
from ._export.encoder import Origin
from ._export.exporter import Exporter, Stats
from ._export.lifecycle import EXIT_SECONDS, Lifecycle
from ._export.transport import HttpTransport
from ._guard import GUARD, logger
from ._record.attach import AttachTracer, Forwarder
from ._record.call import STATE
from ._record.content import Score
from ._record.recording import Plan
from ._record.span import Span
from ._record.tracer import PulseTracerProvider, Sampler, Tracer
from ._settings import SDK_VERSION, Settings, read_settings


class Runtime:
    """One configuration at work. Chooses the provider when the first span starts."""

    def __init__(self, settings: Settings, tracer_provider: Any = None) -> None:
        self.settings = settings
        self.mode = "not started"
        self._given = tracer_provider
        self._lock = threading.Lock()
        self._forwarder: Forwarder | None = None
        self.transport = HttpTransport(settings)
        self._traces, self._logs = self._origins()
        spool = None
        if settings.spool_dir:
            from ._export.spool import DiskSpool  # few need it, and it loads pathlib

            spool = DiskSpool(settings.spool_dir)
        self.exporter = Exporter(
            self._encode,
            self.transport,
            max_bytes=settings.max_queue_bytes,
            gzip=settings.destination.gzip,
            spool=spool,
        )
        self.exporter.on_start = self._started
        self.own = Tracer(
            self.exporter,
            policy=settings.policy,
            sampler=_sampler(settings),
            isolated=settings.isolated,
        )

    def _origins(self) -> tuple[Origin, Origin]:
        """Of spans and of scores: the resource, with an identity of this process unless it was given one."""
        resource = _wire.resource({names.SERVICE_INSTANCE_ID: str(uuid.uuid4()), **self.settings.resource})
        scope = _wire.scope("ragpulse", SDK_VERSION)
        return ("traces", resource, scope), ("logs", resource, scope)

    def _encode(self, record: Any) -> tuple[Origin, bytes]:
        policy = self.settings.policy
        if isinstance(record, Span):
            return self._traces, record.encode(policy)
        if isinstance(record, Score):
            return self._logs, record.encode(policy)
        return ("traces", *record.origin()), record.encode(policy)

    def start(self, plan: Plan, context: Context) -> Any:
        """The first span: choose the provider, then step aside."""
        with self._lock:
            if STATE.starter is self:
                STATE.starter = self._choose()
            starter = STATE.starter
        return self.own.start(plan, context) if starter is None else starter.start(plan, context)

    def _choose(self) -> Any:
        provider = self._given or (None if self.settings.isolated else _global_sdk_provider())
        if provider is None or not hasattr(provider, "add_span_processor"):
            self.mode = "own provider"
            return self.own
        self.mode = "the application's provider"
        wanted = self.settings.content_on_foreign_spans
        named = {key: self.settings.resource[key] for key in ("service.name",) if self.settings.service_given}
        self._forwarder = Forwarder(
            self.exporter,
            self.settings.policy,
            content_on_spans=wanted if wanted is not None else self._given is not None,
            resource=named,
        )
        provider.add_span_processor(self._forwarder)
        from ._record.guest import (
            GuestTracer,
        )  # loads the SDK, which an application without a provider need not pay for

        tracer = provider.get_tracer("ragpulse")
        return (GuestTracer if GuestTracer.fits(tracer) else AttachTracer)(tracer, self._forwarder)

    def _started(self) -> None:
        """The exporting thread of this process has started: by now a server's handlers are in place."""
        PROCESS.lifecycle.watch_workers()
        PROCESS.lifecycle.watch_sigterm()

    def terminating(self) -> None:
        """SIGTERM came: deliver now, and from here on at once."""
        self.exporter.hasten(1.0)

    def shutdown(self, timeout: float) -> bool:
        """Deliver within `timeout` and stop."""
        if self._forwarder is not None:
            self._forwarder.active = False
        return self.exporter.shutdown(timeout)

    def forked(self) -> None:
        """In a forked child: new identities, an empty queue, a thread and connections of its own."""
        self._lock = threading.Lock()
        self._traces, self._logs = self._origins()
        self.own.forked()
        if self._forwarder is not None:
            self._forwarder.forked()
        self.transport.forked()
        self.exporter.forked()


def _sampler(settings: Settings) -> Sampler:
    name = settings.sampler
    ratio = settings.sampler_arg if name.endswith("traceidratio") else 0.0 if name.endswith("always_off") else 1.0
    return Sampler(min(max(ratio, 0.0), 1.0), follow_parent=name.startswith("parentbased"))


def _global_sdk_provider() -> Any:
    """The application's global provider, if it set a real one; asking must not create one."""
    provider = trace.get_tracer_provider()
    return provider if hasattr(provider, "add_span_processor") else None


class Process:
    """The one configuration of this process; replaced by each `configure`."""

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.lifecycle = Lifecycle(lambda: self.runtime)

    def install(self, runtime: Runtime | None) -> None:
        """Make `runtime` the current one, delivering what its predecessor still has."""
        previous, self.runtime = self.runtime, runtime
        STATE.starter = runtime
        if previous is not None:
            previous.shutdown(EXIT_SECONDS)
        if runtime is not None:
            self.lifecycle.hook()


PROCESS = Process()


def configure(
    service_name: str | None = None,
    *,
    service_version: str | None = None,
    environment: str | None = None,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    api_key: str | None = None,
    capture_content: bool | None = None,
    redact: Any = "default",
    tracer_provider: Any = None,
    isolated: bool = False,
    set_global: bool = False,
    spool_dir: str | os.PathLike[str] | None = None,
    enabled: bool | None = None,
    strict: bool | None = None,
    max_text_bytes: int = 65_536,
) -> None:
    """Start recording decorated functions and sending their spans to a collector.

    Every argument is optional; `OTEL_*` variables are honoured. Call it once, before the first decorated call; a second
    call replaces the first. It opens no connection and starts no thread.

    - `endpoint`: the collector's base address (default: RAGPULSE_ENDPOINT, OTEL_*, then `http://127.0.0.1:4318`).
    - `capture_content`: False sends figures only. Default: True, except to an OTEL_* endpoint on another computer.
    - `redact`: what to remove from texts before they are sent: see the SDK guide. Default: credentials, card numbers.
    - `tracer_provider`: the OpenTelemetry provider to use; `isolated=True` uses our own whatever the application has;
      `set_global=True` makes ours the global one, where there is none yet.
    - `spool_dir`: a folder that keeps batches while the collector is away.
    - `strict`: True raises our own failures instead of logging them (the default under pytest).
    """
    GUARD.strict = strict
    try:
        settings = read_settings(
            service_name=service_name,
            service_version=service_version,
            environment=environment,
            endpoint=endpoint,
            headers=headers,
            api_key=api_key,
            capture_content=capture_content,
            redact=redact,
            isolated=isolated,
            set_global=set_global,
            spool_dir=None if spool_dir is None else os.fspath(spool_dir),
            enabled=enabled,
            max_text_bytes=max_text_bytes,
        )
        _install(settings, tracer_provider)
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("configure", error)


def _install(settings: Settings, tracer_provider: Any) -> None:
    if not settings.enabled:
        PROCESS.install(None)
        logger.info("ragpulse: disabled")
        return
    runtime = Runtime(settings, tracer_provider)
    PROCESS.install(runtime)
    if settings.set_global and not isinstance(trace.get_tracer_provider(), PulseTracerProvider):
        if _global_sdk_provider() is None:
            trace.set_tracer_provider(PulseTracerProvider(runtime.own))
        else:
            logger.warning("ragpulse: set_global=True was ignored, the application has a global provider")
    logger.info("ragpulse: %s", describe(settings))


def describe(settings: Settings) -> str:
    """One line: destination, content, redaction."""
    content = "on" if settings.policy.capture else f"off ({settings.content_reason})"
    destination = settings.destination
    return (
        f"sending to {destination.traces_url} (by {destination.chosen_by}); content {content}; "
        f"redaction {settings.policy.redact.describe()}"
    )


def flush(timeout: float = 5.0) -> bool:
    """Send everything that is finished; True when it is delivered, False when `timeout` seconds ran out first."""
    return PROCESS.runtime is None or PROCESS.runtime.exporter.flush(timeout)


def shutdown(timeout: float = 2.0) -> bool:
    """Deliver what is finished within `timeout` seconds and stop recording. True when nothing was left behind."""
    runtime, PROCESS.runtime = PROCESS.runtime, None
    STATE.starter = None
    return runtime is None or runtime.shutdown(timeout)


def feedback(trace_id: str, name: str = "thumbs", score: float = 1, comment: str | None = None) -> None:
    """Send a person's score for a trace (`current_span().trace_id`); higher is better."""
    try:
        if PROCESS.runtime is not None:
            number = int(trace_id, 16)
            PROCESS.runtime.exporter.offer(Score(number, 0, time.time_ns(), str(name), float(score), comment))
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("feedback", error)


def stats() -> Stats:
    """The counts since `configure`; all zero when nothing is configured."""
    return Stats() if PROCESS.runtime is None else PROCESS.runtime.exporter.stats()


def doctor(timeout: float = 2.0) -> str:
    """A readable self-examination: settings, whether the collector answers an empty request, counts, and the mend."""
    runtime = PROCESS.runtime
    if runtime is None:
        return "not recording: call ragpulse.configure(), or see whether OTEL_SDK_DISABLED is set"
    transport = HttpTransport(runtime.settings)  # the exporting thread's own connection is not ours to use
    answer = transport.send(Batch("traces", b"", 0, False), timeout)
    transport.close()
    reached = "answers" if answer.accepted else f"does not accept: {answer.message or answer.status}"
    told = stats()
    lines = [
        describe(runtime.settings),
        f"provider: {runtime.mode}",
        f"collector: {reached}",
        f"spans: {told.exported} exported, {told.pending} pending, {told.dropped} dropped, {told.rejected} rejected",
        *[f"  {count} {reason}" for reason, count in told.reasons.items()],
    ]
    if answer.status == 0:
        lines.append("mend: start the collector (`ragpulse serve`) or set endpoint=")
    elif answer.status in (401, 403):
        lines.append("mend: set api_key= (or RAGPULSE_API_KEY) to a key with the scope ingest")
    elif not answer.accepted:
        lines.append("mend: the address answers, but not as an OTLP/HTTP receiver; check endpoint=")
    return "\n".join(lines)


def tracer_provider() -> trace.TracerProvider:
    """The provider our spans are made on, to hand to other instrumentations so that theirs reach the collector too."""
    runtime = PROCESS.runtime
    return PulseTracerProvider(runtime.own) if runtime is not None else trace.NoOpTracerProvider()
