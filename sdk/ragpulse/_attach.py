"""On a provider of the application: ordinary SDK spans for it, and a copy of ours for the collector.

Its samplers and processors see the spans with their figures. Content goes on them only where the application asked for
it (it handed the provider in, or said `capture_content=True`); otherwise it travels beside the span, to us alone.
Other tenants' spans are none of our business: we forward what happens below one of ours, and GenAI spans.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from . import _wire
from . import attributes as names
from ._content import ContentPolicy, render
from ._export import Exporter
from ._plan import CLIENT, Plan
from ._recording import Recording, error_message, error_name, exception_attributes
from ._scope import SCOPE_KEY, scope_in
from ._tracer import RECORDING_KEY, SPAN_KEY

_FOREIGN_GENAI = ("gen_ai.operation.name", "gen_ai.system", "openinference.span.kind", "traceloop.span.kind")
_MAX_OPEN = 65_536


class AttachedSpan(Recording):
    """A recording whose span belongs to the application's provider."""

    __slots__ = ("_ended", "_forwarder", "_metadata", "carrier", "start_ns")

    def __init__(self, plan: Plan, carrier: Any, forwarder: "Forwarder") -> None:
        super().__init__(plan)
        self.carrier = carrier
        self.start_ns = getattr(carrier, "start_time", 0) or 0
        self._forwarder = forwarder
        self._ended = False

    @property
    def records(self) -> bool:
        """Whether the provider's sampler chose this span and it is still open."""
        return not self._ended and bool(self.carrier.is_recording())

    def get_span_context(self) -> trace.SpanContext:
        """The identity of the carrying span."""
        return self.carrier.get_span_context()  # type: ignore[no-any-return]

    def set_attribute(self, key: str, value: Any) -> None:
        """Record one attribute."""
        self.put(key, value)

    def fail(self, error: BaseException) -> None:
        """Record an exception with its stack, and the status ERROR."""
        self.put(names.ERROR_TYPE, error_name(error))
        clean = self._forwarder.policy.redact
        told = {key: clean(text, []) for key, text in exception_attributes(error).items()}
        self.carrier.add_event(names.EXCEPTION_EVENT, told)
        message = clean(f"{error_name(error)}: {error_message(error)}", [])
        self.carrier.set_status(trace.Status(trace.StatusCode.ERROR, message))

    def end(self) -> None:
        """End the carrying span; what it does not show is kept for our copy."""
        if self._ended:
            return
        if self.carrier.is_recording():
            self._forwarder.complete(self)
        self._ended = True
        self.carrier.end()


class AttachTracer:
    """Starts our spans on the application's provider."""

    def __init__(self, provider: Any, forwarder: "Forwarder") -> None:
        self._tracer = provider.get_tracer("ragpulse")
        self._forwarder = forwarder

    def start(self, plan: Plan, context: Context) -> tuple[AttachedSpan, Context]:
        """A span below the context's current one, and the context in which it is current."""
        scope = scope_in(context)
        if plan.scope:
            scope = scope.joined(plan.scope)
        context = Context({**context, RECORDING_KEY: plan, SCOPE_KEY: scope})
        carrier = self._tracer.start_span(
            plan.name,
            context=context,
            kind=SpanKind.CLIENT if plan.span_kind == CLIENT else SpanKind.INTERNAL,
            attributes={**plan.constants, **scope.attributes},
        )
        span = AttachedSpan(plan, carrier, self._forwarder)
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        return span, Context({**context, SPAN_KEY: carrier, RECORDING_KEY: span})


class Forwarded:
    """A finished span of the application's provider, on its way to our collector."""

    __slots__ = ("_beside", "_resource", "_size", "_span")

    def __init__(self, span: Any, beside: Recording | None, resource: Mapping[str, Any]) -> None:
        self._span = span
        self._beside = beside
        self._resource = resource
        shown = sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))
        self._size = 1200 + shown + (beside.size() if beside is not None else 0)

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        return self._size

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message."""
        span = self._span
        own = {key: policy.redact(v, []) if isinstance(v, str) else v for key, v in (span.attributes or {}).items()}
        attributes = {**own, **(render(self._beside, policy) if self._beside is not None else {})}
        identity, parent = span.get_span_context(), span.parent
        status = span.status
        parts = [
            _wire.span_identity(
                identity.trace_id, identity.span_id, parent.span_id if parent else 0, identity.trace_state.to_header()
            ),
            _wire.span_head(span.name, span.kind.value + 1),
            _wire.span_times(span.start_time, span.end_time),
            _wire.key_values(_wire.SPAN_ATTRIBUTES, attributes.items()),
            _dropped(b"\x50", span.dropped_attributes),
            *[_wire.event(event.timestamp, event.name, event.attributes or {}) for event in span.events],
            *[_link(link) for link in span.links],
            _wire.status(status.status_code.value, status.description),
            _wire.flags(_wire.span_flags(bool(parent and parent.is_remote))),
        ]
        return b"".join(parts)

    def resource(self) -> bytes:
        """The provider's resource, with the service that was named to `configure`."""
        return _wire.resource({**self._span.resource.attributes, **self._resource})

    def scope(self) -> bytes:
        """The instrumentation scope that made the span."""
        scope = self._span.instrumentation_scope
        return _wire.scope(scope.name, scope.version) if scope is not None else _wire.scope("", None)


def _link(link: Any) -> bytes:
    return _wire.link(link.context.trace_id, link.context.span_id, link.context.is_remote, link.attributes or {})


def _dropped(tag: bytes, count: int) -> bytes:
    return tag + _wire.varint(count) if count else b""


class Forwarder:
    """A span processor on the application's provider; knows which spans are ours to forward."""

    def __init__(
        self, exporter: Exporter, policy: ContentPolicy, *, content_on_spans: bool, resource: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.active = True
        self._born_ns = 0
        self._exporter = exporter
        self._content_on_spans = content_on_spans
        self._resource = resource
        self._lock = threading.Lock()
        self._ours: OrderedDict[int, Recording | None] = OrderedDict()

    def complete(self, span: AttachedSpan) -> None:
        """Put on the carrying span what it may show, and keep the rest beside it."""
        carrier = span.carrier
        if self._content_on_spans:
            carrier.set_attributes(render(span, self.policy))
            return
        if span.facts:
            carrier.set_attributes(span.facts)
        with self._lock:
            self._ours[carrier.get_span_context().span_id] = span

    # --- opentelemetry.sdk.trace.SpanProcessor, without importing it ------------------------------------------------
    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Remember spans that begin below one of ours."""
        if self.active and parent_context is not None and parent_context.get(RECORDING_KEY) is not None:
            with self._lock:
                self._ours[span.get_span_context().span_id] = None
                if len(self._ours) > _MAX_OPEN:
                    self._ours.popitem(last=False)

    def _on_ending(self, span: Any) -> None:
        pass

    def on_end(self, span: Any) -> None:
        """Forward the span if it is ours, or a GenAI span of another instrumentation."""
        if not self.active or (span.start_time or 0) < self._born_ns:
            return
        number = span.get_span_context().span_id
        with self._lock:
            known = number in self._ours
            beside = self._ours.pop(number, None)
        if known or any(key in (span.attributes or {}) for key in _FOREIGN_GENAI):
            self._exporter.offer(Forwarded(span, beside, self._resource))

    def forked(self) -> None:
        """In a forked child: spans that were open belong to the parent."""
        self._lock = threading.Lock()
        self._ours.clear()
        self._born_ns = time.time_ns()

    def shutdown(self) -> None:
        """The provider is going away: send what there is."""
        self._exporter.flush(2.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what there is within the time."""
        return self._exporter.flush(timeout_millis / 1000)
