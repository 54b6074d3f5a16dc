"""On a provider of the application: ordinary SDK spans for it, and a copy of ours for the collector.

Content is on its spans only where the application asked for it: it handed the provider in, or said
`capture_content=True`; otherwise content goes to our collector alone. Other tenants' spans are none of our business:
we forward what happens below one of ours, and GenAI spans.

On the SDK's own provider our spans are made by `_guest`. `AttachTracer` serves a provider that wraps one: our recording
lies beside an ordinary span of its making, which is given the attributes when it ends.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from ragpulse import attributes as names
from ragpulse._export import encoder as _wire
from ragpulse._export.exporter import Exporter

from .content import ContentPolicy, all_attributes, cleaned, encode_attributes
from .recording import CLIENT, Plan, Recording, error_message, error_name, exception_attributes
from .scope import Scope, current, scope_in
from .tracer import RECORDING_KEY, inside

_FOREIGN_GENAI = ("gen_ai.operation.name", "gen_ai.system", "openinference.span.kind", "traceloop.span.kind")
_MAX_OPEN = 65_536


def record_failure(recording: Recording, carrier: Any, error: BaseException, policy: ContentPolicy) -> None:
    """Put an exception with its stack, and the status ERROR, on a span that the application's exporters will see."""
    recording.put(names.ERROR_TYPE, error_name(error))
    clean = policy.redact
    carrier.add_event(
        names.EXCEPTION_EVENT, {key: clean(text, []) for key, text in exception_attributes(error).items()}
    )
    message = clean(f"{error_name(error)}: {error_message(error)}", [])
    carrier.set_status(trace.Status(trace.StatusCode.ERROR, message))


def encode_span(span: Any, attributes: Iterable[bytes], events: Iterable[Any], links: Iterable[Any]) -> bytes:
    """An SDK span as an OTLP protobuf message, its attributes encoded already."""
    identity, parent, status = span.get_span_context(), span.parent, span.status
    parts = [
        _wire.span_identity(
            identity.trace_id, identity.span_id, parent.span_id if parent else 0, identity.trace_state.to_header()
        ),
        _wire.span_head(span.name, span.kind.value + 1),
        _wire.span_times(span.start_time, span.end_time),
        *attributes,
        *[_wire.event(event.timestamp, event.name, event.attributes or {}) for event in events],
        *[_link(link) for link in links],
        _wire.status(status.status_code.value, status.description),
        _wire.flags(bool(parent and parent.is_remote)),
    ]
    return b"".join(parts)


def _link(link: Any) -> bytes:
    return _wire.link(link.context.trace_id, link.context.span_id, link.context.is_remote, link.attributes or {})


class AttachedSpan(Recording):
    """A recording beside a span that the application's provider made."""

    __slots__ = ("_forwarder", "_open", "carrier", "own", "scope", "start_ns")

    def __init__(self, plan: Plan, scope: Scope, carrier: Any, forwarder: "Forwarder") -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = None
        self.scope = scope
        self.carrier = carrier
        self.own: Mapping[str, Any] = {}
        """What others set on the carrying span."""
        self.start_ns = getattr(carrier, "start_time", None) or time.time_ns()
        self._forwarder = forwarder
        self._open = bool(carrier.is_recording())

    @property
    def records(self) -> bool:
        """Whether the provider's sampler chose this span and it is still open."""
        return self._open

    def get_span_context(self) -> trace.SpanContext:
        """The identity of the carrying span."""
        return self.carrier.get_span_context()  # type: ignore[no-any-return]

    def fail(self, error: BaseException) -> None:
        """Record an exception with its stack, and the status ERROR."""
        if self._open:
            record_failure(self, self.carrier, error, self._forwarder.policy)

    def end(self) -> None:
        """End the carrying span, which shows from then on what was recorded."""
        if self._open:
            self._open = False
            self.own = dict(getattr(self.carrier, "attributes", None) or {})
            self.carrier.set_attributes(all_attributes(self, self.scope, self._forwarder.shown, {}))
            self._forwarder.completes(self)
        self.carrier.end()


class AttachTracer:
    """Starts our spans on a provider of the application through OpenTelemetry's interface alone."""

    def __init__(self, tracer: Any, forwarder: "Forwarder") -> None:
        self._tracer = tracer
        self._forwarder = forwarder

    def start(self, plan: Plan, context: Context) -> tuple[AttachedSpan, Context]:
        """A span below the context's current one, and the context in which it is current."""
        scope = scope_in(context)
        if plan.scope:
            scope = scope.joined(plan.scope)
        kind = SpanKind.CLIENT if plan.span_kind == CLIENT else SpanKind.INTERNAL
        carrier = self._tracer.start_span(plan.name, context, kind, plan.constants)
        span = AttachedSpan(plan, scope, carrier, self._forwarder)
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        return span, inside(context, carrier, span, scope)


class Forwarded:
    """A finished span of the application's provider, on its way to our collector."""

    __slots__ = ("_beside", "_forwarder", "_span")

    def __init__(self, span: Any, beside: AttachedSpan | None, forwarder: "Forwarder") -> None:
        self._span = span
        self._beside = beside
        self._forwarder = forwarder

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        if self._beside is not None:
            return 2000 + self._beside.size()
        shown = (self._span.attributes or {}).values()
        return 2000 + sum([len(value) for value in shown if isinstance(value, str)])

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message, under our policy whatever the application's provider was shown."""
        span, beside = self._span, self._beside
        if beside is None:
            own = cleaned(span.attributes or {}, policy)
            attributes = _wire.key_value_parts(_wire.SPAN_ATTRIBUTES, own.items())
            attributes += (b"\x50", _wire.varint(span.dropped_attributes))
        else:
            attributes = encode_attributes(beside, beside.scope, policy, cleaned(beside.own, policy))
        return encode_span(span, attributes, span.events, span.links)

    def origin(self) -> tuple[bytes, bytes]:
        """Resource and instrumentation scope as OTLP protobuf."""
        return self._forwarder.origin(self._span)


class Forwarder:
    """A span processor on the application's provider; knows which spans are ours to forward."""

    def __init__(
        self, exporter: Exporter, policy: ContentPolicy, *, content_on_spans: bool, resource: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.shown = policy if content_on_spans else replace(policy, capture=False)
        """What the application's own exporters may see of what we record."""
        self.active = True
        self._born_ns = 0
        self._exporter = exporter
        self._resource = resource
        self._origins: dict[tuple[int, int], tuple[Any, Any, tuple[bytes, bytes]]] = {}
        self._ours: dict[int, AttachedSpan | None] = {}

    def completes(self, span: AttachedSpan) -> None:
        """The carrying span is about to end: remember the recording for our copy of it."""
        self._ours[span.get_span_context().span_id] = span

    def origin(self, span: Any) -> tuple[bytes, bytes]:
        """The encoded resource (with the service that was named to `configure`) and scope of a span; there are few."""
        resource, scope = span.resource, span.instrumentation_scope
        known = self._origins.get((id(resource), id(scope)))
        if known is None:
            named = _wire.scope(scope.name, scope.version) if scope is not None else _wire.scope("", None)
            known = (resource, scope, (_wire.resource({**resource.attributes, **self._resource}), named))
            self._origins[id(resource), id(scope)] = known
        return known[2]

    # --- opentelemetry.sdk.trace.SpanProcessor, without importing it ------------------------------------------------
    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Remember spans that begin below one of ours."""
        if isinstance(span, Recording) or not self.active:
            return
        if RECORDING_KEY in (current() if parent_context is None else parent_context):
            if len(self._ours) >= _MAX_OPEN:
                self._ours.clear()
            self._ours[span.get_span_context().span_id] = None

    def _on_ending(self, span: Any) -> None:
        pass

    def on_end(self, span: Any) -> None:
        """Forward the span if it is ours, or a GenAI span of another instrumentation."""
        identity = span.get_span_context()
        wanted = self.active and identity.trace_flags & 1 and (span.start_time or 0) >= self._born_ns
        if isinstance(span, Recording):
            if wanted:
                self._exporter.offer(span)
            return
        below = identity.span_id in self._ours
        beside = self._ours.pop(identity.span_id, None)
        if wanted and (below or any(key in (span.attributes or {}) for key in _FOREIGN_GENAI)):
            self._exporter.offer(Forwarded(span, beside, self))

    def forked(self) -> None:
        """In a forked child: spans that were open belong to the parent."""
        self._ours.clear()
        self._born_ns = time.time_ns()

    def shutdown(self) -> None:
        """The provider is going away: send what there is."""
        self._exporter.flush(2.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what there is within the time."""
        return self._exporter.flush(timeout_millis / 1000)
