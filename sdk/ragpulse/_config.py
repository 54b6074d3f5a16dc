"""The functions that configure and inspect the SDK. The first span starts the exporting thread."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from ._export.batch import EncodedBatch, HttpAnswer, Stats
from ._guard import GUARD, logger
from ._propagation import propagate_to as _propagate_to
from ._record.call import STATE, Unrecorded
from ._record.content import FeedbackRecord
from ._record.provider import Provider
from ._record.recording import SpanPlan
from ._record.redaction import redaction
from ._record.tracer import UNSAMPLED
from ._runtime import EXIT_SECONDS, PROCESS, PROVIDER, Runtime
from ._settings import SdkSettings, is_disabled, names_destination, read_settings


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
    propagate_to: Sequence[str] = (),
) -> None:
    """Starts recording decorated functions and sending their spans to a collector.

    Every argument is optional; `OTEL_*` variables are honoured. Call it once, before the first decorated call; a second
    call replaces the first. It opens no connection and starts no thread. Where RAGPULSE_URL,
    RAGPULSE_ENDPOINT or RAGPULSE_API_KEY is set, the first decorated call configures.

    - `endpoint`: the collector's base address (default: RAGPULSE_URL, its alias RAGPULSE_ENDPOINT, OTEL_*, then
      `http://127.0.0.1:4318`).
    - `capture_content`: False sends figures only. Default: True, except to an OTEL_* endpoint on another computer. The
      spans of an application's own provider carry content only where it is True explicitly.
    - `redact`: what to remove from texts before they are sent: see the SDK guide. Default: credentials, card numbers.
    - `tracer_provider`: the OpenTelemetry provider to use; `isolated=True` uses our own whatever the application has;
      `set_global=True` makes ours the global one, where there is none yet.
    - `propagate_to`: the hosts (`"search.internal"`, `"*.example.org"`) that receive session, user, prompt and variant
      as W3C baggage when an instrumented HTTP client calls them. Default: none; see also `inject`.
    - `spool_dir`: a folder that keeps batches while the collector is away.
    - `strict`: True raises our own failures instead of logging them (the default under pytest).
    """
    GUARD.strict = strict
    with GUARD.containing("configure"):
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
            propagate_to=propagate_to,
        )
        _install(settings, tracer_provider)


def _install(settings: SdkSettings, tracer_provider: Any) -> None:
    runtime = Runtime(settings, tracer_provider) if settings.enabled else None
    _propagate_to(settings.propagate_to)
    if settings.enabled and "console" in settings.exporters:
        PROVIDER.print_spans()
    previous = PROCESS.use(runtime)
    if previous is not None:
        previous.shutdown(EXIT_SECONDS)
    if runtime is not None and settings.set_global and not isinstance(trace.get_tracer_provider(), Provider):
        if hasattr(trace.get_tracer_provider(), "add_span_processor"):
            logger.warning("ragpulse: set_global=True was ignored, the application has a global provider")
        else:
            trace.set_tracer_provider(PROVIDER)
    logger.info("ragpulse: %s", "disabled" if runtime is None else describe(settings))


class Unconfigured:
    """Starts the first span of a process that did not call `configure`, which spawned children often forget."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def start(self, plan: SpanPlan, context: Context) -> tuple[Any, Context]:
        """A span, where the environment says where to send it."""
        starter = self.resolve()
        return (Unrecorded(plan), context) if starter is None else starter.start(plan, context)

    def resolve(self) -> Any:
        """Configures from the environment, or logs once that nothing is recorded; the tracer from now on."""
        with self._lock:
            if STATE.starter is self:
                if names_destination():
                    configure()
                elif not is_disabled(None):
                    logger.warning(
                        "ragpulse: nothing is recorded in this process: call ragpulse.configure() before the first "
                        "decorated call, or set RAGPULSE_URL (RAGPULSE_ENABLED=0 silences this line)"
                    )
            if STATE.starter is self:
                STATE.starter = None
        return STATE.starter


STATE.starter = UNCONFIGURED = Unconfigured()
PROVIDER.resolve = UNCONFIGURED.resolve


def describe(settings: SdkSettings) -> str:
    """One line: destination, content, redaction."""
    content = "on" if settings.policy.capture else f"off ({settings.content_reason})"
    destination = settings.destination
    if "otlp" not in settings.exporters:
        return "printing spans, and sending nothing: OTEL_TRACES_EXPORTER=console"
    return (
        f"sending to {redaction('key')(destination.traces_url, [])} (by {destination.chosen_by}); content {content}; "
        f"redaction {settings.policy.redact.describe()}"
    )


def feedback(trace_id: str, name: str = "thumbs", score: float = 1, comment: str | None = None) -> None:
    """Sends a person's score for a trace (`current_span().trace_id`); higher is better."""
    with GUARD.containing("feedback"):
        UNCONFIGURED.resolve()
        runtime = PROCESS.runtime
        if runtime is not None:
            number = int(trace_id, 16)
            runtime.offer(FeedbackRecord(runtime.own, number, time.time_ns(), str(name), float(score), comment))


def last_trace() -> str | None:
    """The trace id of the request that ended last in this process, for a look or `feedback`; None before the first."""
    record = None if PROCESS.runtime is None else PROCESS.runtime.exporter.last_root
    return None if record is None else format(record.trace_number, "032x")


def stats() -> Stats:
    """The counts since `configure`; all zero when nothing is configured."""
    runtime = PROCESS.runtime
    return Stats() if runtime is None else replace(runtime.exporter.stats(), unsampled=runtime.own.unsampled.count)


def doctor(timeout: float = 2.0) -> str:
    """A readable check: settings, whether the collector answers an empty request, counts, and how to fix it."""
    runtime = PROCESS.runtime
    if runtime is None:
        reasons = "OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER=none"
        return f"not recording: call ragpulse.configure(), or check whether {reasons} is set"
    if "otlp" not in runtime.settings.exporters:
        return describe(runtime.settings)
    transport = runtime.connect()
    answer = transport.send(EncodedBatch("traces", b"", 0, False), timeout)
    transport.close()
    counts = stats()
    lines = [
        describe(runtime.settings),
        f"provider: {runtime.mode}",
        f"collector: {'answers' if answer.accepted else f'does not accept: {answer.message or answer.status}'}",
        f"spans: {counts.exported} exported, {counts.pending} pending, {counts.dropped} dropped, "
        f"{counts.rejected} rejected",
        *[f"  {count} {reason}" for reason, count in counts.reasons.items()],
    ]
    if counts.unsampled:
        lines.append(f"not recorded: {counts.unsampled} requests; {UNSAMPLED}")
    if not answer.accepted:
        lines.append(f"fix: {_fix(answer)}")
    return "\n".join(lines)


def _fix(answer: HttpAnswer) -> str:
    """What to do about an answer that accepts nothing."""
    if "CERTIFICATE_VERIFY_FAILED" in answer.message:
        return "name the authority of its certificate: OTEL_EXPORTER_OTLP_CERTIFICATE=FILE, or SSL_CERT_FILE"
    if answer.message.startswith("SSL"):
        return "the address does not speak TLS: begin endpoint= with http://"
    if answer.status == 0:
        return "start the collector (`ragpulse serve`) or set endpoint="
    if answer.status in (401, 403):
        return "set api_key= (or RAGPULSE_API_KEY) to a key with the scope ingest"
    return "the address answers, but not as an OTLP/HTTP receiver; check endpoint="


def tracer_provider() -> Provider:
    """Our provider, to hand to other instrumentations so that their spans reach the collector, too."""
    return PROVIDER
