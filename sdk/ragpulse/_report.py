"""What the SDK tells about itself: counts, and a self-examination."""

from opentelemetry import trace

from ._batch import Batch
from ._configure import PROCESS, describe
from ._export import Stats
from ._tracer import PulseTracerProvider
from ._transport import HttpTransport


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
