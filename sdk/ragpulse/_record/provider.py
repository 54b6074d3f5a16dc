"""Our own provider for other instrumentations, with the interface of the OpenTelemetry SDK's provider."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from ragpulse._guard import GUARD

from .frameworks.runs import RUNS
from .otel import RECORDING_KEY
from .recording import SpanPlan
from .tracer import Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource


class Provider(trace.TracerProvider):
    """The provider of this process. It stays the same object when `configure` is called again."""

    def __init__(self) -> None:
        self.processors: list[Any] = []
        self.tracer: Tracer | None = None
        self.flush: Callable[[float], bool] = lambda timeout: True
        self.resolve: Callable[[], object] = lambda: None
        """Configures from the environment, where nobody did."""

    @property
    def resource(self) -> "Resource":
        """The service that `configure` named; empty before it is called."""
        from opentelemetry.sdk.resources import Resource

        return Resource.get_empty() if self.tracer is None else self.tracer.resource

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Any = None,
    ) -> trace.Tracer:
        """A tracer for one instrumentation library."""
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        named = (instrumenting_module_name or "", instrumenting_library_version or "", schema_url, attributes)
        return ProviderTracer(self, InstrumentationScope(*named))

    def add_span_processor(self, span_processor: Any) -> None:
        """Adds a processor: it receives each sampled span at its start, and what is sent of it at its end."""
        self.processors.append(span_processor)

    def print_spans(self) -> None:
        """Adds a processor that prints every span, unless there is one: OTEL_TRACES_EXPORTER=console."""
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

        exporters = (getattr(processor, "span_exporter", None) for processor in self.processors)
        if not any(isinstance(exporter, ConsoleSpanExporter) for exporter in exporters):
            self.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stdout)))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Delivers what is finished; True when that took no longer than the timeout."""
        deadline = time.monotonic() + timeout_millis / 1000
        done = self.flush(timeout_millis / 1000)
        for processor in self.processors:
            milliseconds = max(int((deadline - time.monotonic()) * 1000), 0)
            done = processor.force_flush(milliseconds) is not False and done
        return done

    def shutdown(self) -> None:
        """Delivers what is finished and removes the processors."""
        self.flush(2.0)
        processors, self.processors[:] = list(self.processors), []
        for processor in processors:
            with GUARD.containing("a span processor's shutdown"):
                processor.shutdown()


class ProviderTracer(trace.Tracer):
    """The tracer of one instrumentation library on our provider."""

    def __init__(self, provider: Provider, library: Any) -> None:
        self._provider = provider
        self._library = library

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None,
        links: Any = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """Starts a span; the caller ends it."""
        above = RUNS.context_of_library(self._library, context)
        if self._provider.tracer is None:
            self._provider.resolve()
        tracer = self._provider.tracer
        if tracer is None:
            return trace.NonRecordingSpan(trace.get_current_span(above).get_span_context())
        plan = SpanPlan(name=name, kind="", span_kind=kind.value + 1, constants={}, library=self._library)
        plan.recording = above.get(RECORDING_KEY)
        span = tracer.start_span(plan, above)
        RUNS.started(self._library, span, above)
        span.start_ns = start_time or span.start_ns
        span.set_attributes(attributes or {})
        for link in links or ():
            span.add_link(link.context, link.attributes)
        if span.sampled:
            tracer.started(span, above)
        return span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, context: Context | None = None, *args: Any, **options: Any
    ) -> Iterator[trace.Span]:
        """Starts a span that is current within a `with` block or a decorated function."""
        end_on_exit = options.pop("end_on_exit", True)
        behaviour = {key: options.get(key, True) for key in ("record_exception", "set_status_on_exception")}
        with trace.use_span(self.start_span(name, context, *args, **options), end_on_exit, **behaviour) as span:
            yield span
