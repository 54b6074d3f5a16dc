"""What the SDK tells about itself: counts, and a self-examination."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry import trace

from ._batch import Batch
from ._configure import PROCESS, describe
from ._tracer import PulseTracerProvider
from ._transport import HttpTransport


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """What became of every finished span and score of this process."""

    exported: int = 0
    """Accepted by the collector."""
    dropped: int = 0
    """Never sent: the queue was full, or the process ended."""
    rejected: int = 0
    """Sent, and refused by the collector."""
    pending: int = 0
    """Waiting in memory."""
    spooled: int = 0
    """Written to disk while the collector was away, in all."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why: counts of what was dropped or rejected."""
    last_error: str = ""


def stats() -> Stats:
    """The counts since `configure`; all zero when nothing is configured."""
    runtime = PROCESS.runtime
    if runtime is None:
        return Stats()
    counts = runtime.exporter.counts()
    return Stats(
        exported=counts.exported,
        dropped=counts.dropped,
        rejected=counts.rejected,
        pending=counts.pending,
        spooled=counts.spooled,
        reasons=dict(counts.reasons),
        last_error=runtime.exporter.last_error,
    )


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
