"""On a provider of the application: ordinary SDK spans for it, and a copy of ours for the collector.

Its samplers and processors see ordinary spans, whose attributes are made when somebody first reads them (usually an
exporting thread). Content is among them only where the application asked for it: it handed the provider in, or said
`capture_content=True`; otherwise content goes to our collector alone. Other tenants' spans are none of our business:
we forward what happens below one of ours, and GenAI spans.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from . import _wire
from . import attributes as names
from ._content import ContentPolicy, render, without_content
from ._context import current
from ._export import Exporter
from ._plan import CLIENT, Plan
from ._recording import Recording, error_message, error_name, exception_attributes
from ._scope import SCOPE_KEY, Scope, scope_in
from ._tracer import RECORDING_KEY, SPAN_KEY

_FOREIGN_GENAI = ("gen_ai.operation.name", "gen_ai.system", "openinference.span.kind", "traceloop.span.kind")
_MAX_OPEN = 65_536


class AttachedSpan(Recording):
    """A recording whose span belongs to the application's provider."""

    __slots__ = ("_forwarder", "_open", "carrier", "scope", "start_ns")

    def __init__(self, plan: Plan, scope: Scope, carrier: Any, forwarder: "Forwarder") -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = None
        self.scope = scope
        self.carrier = carrier
        self.start_ns = getattr(carrier, "start_time", 0) or 0
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
        if not self._open:
            return
        self.put(names.ERROR_TYPE, error_name(error))
        clean = self._forwarder.policy.redact
        told = {key: clean(text, []) for key, text in exception_attributes(error).items()}
        self.carrier.add_event(names.EXCEPTION_EVENT, told)
        message = clean(f"{error_name(error)}: {error_message(error)}", [])
        self.carrier.set_status(trace.Status(trace.StatusCode.ERROR, message))

    def end(self) -> None:
        """End the carrying span, which shows from then on what was recorded."""
        if self._open:
            self._open = False
            self._forwarder.complete(self)
        self.carrier.end()

    def attributes(self, own: Mapping[str, Any], policy: ContentPolicy) -> dict[str, Any]:
        """All attributes under a policy: those set on the carrying span, and what was recorded."""
        return {**own, **self.plan.constants, **self.scope.attributes, **render(self, policy)}


class LateAttributes(Mapping[str, Any]):
    """A finished span's attributes, made at the first look; they stand in for the SDK's own container."""

    dropped = 0

    def __init__(self, own: Any, span: AttachedSpan, policy: ContentPolicy) -> None:
        self.own = own
        self._made: dict[str, Any] | None = None
        self._span = span
        self._policy = policy

    def _all(self) -> dict[str, Any]:
        if self._made is None:
            self._made = self._span.attributes(self.own, self._policy)
        return self._made

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __setitem__(self, key: str, value: Any) -> None:
        self._all()[key] = value

    def copy(self) -> dict[str, Any]:
        """A plain dict of them."""
        return dict(self._all())


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
        carrier = self._tracer.start_span(
            plan.name,
            context,
            SpanKind.CLIENT if plan.span_kind == CLIENT else SpanKind.INTERNAL,
        )
        span = AttachedSpan(plan, scope, carrier, self._forwarder)
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        return span, Context({**context, SPAN_KEY: carrier, RECORDING_KEY: span, SCOPE_KEY: scope})


class Forwarded:
    """A finished span of the application's provider, on its way to our collector."""

    __slots__ = ("_beside", "_resource", "_span")

    def __init__(self, span: Any, beside: AttachedSpan | None, resource: Mapping[str, Any]) -> None:
        self._span = span
        self._beside = beside
        self._resource = resource

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        if self._beside is not None:
            return 2000 + self._beside.size()
        shown = (self._span.attributes or {}).values()
        return 2000 + sum([len(value) for value in shown if isinstance(value, str)])

    def _attributes(self, policy: ContentPolicy) -> dict[str, Any]:
        """Under our policy, whatever the application's provider was shown."""
        shown = self._span._attributes if self._beside is not None else self._span.attributes
        own = shown.own if isinstance(shown, LateAttributes) else shown or {}
        own = own if policy.capture else without_content(own)
        clean = {key: policy.redact(v, []) if isinstance(v, str) else v for key, v in own.items()}
        return clean if self._beside is None else self._beside.attributes(clean, policy)

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message."""
        span = self._span
        identity, parent, status = span.get_span_context(), span.parent, span.status
        parts = [
            _wire.span_identity(
                identity.trace_id, identity.span_id, parent.span_id if parent else 0, identity.trace_state.to_header()
            ),
            _wire.span_head(span.name, span.kind.value + 1),
            _wire.span_times(span.start_time, span.end_time),
            _wire.key_values(_wire.SPAN_ATTRIBUTES, self._attributes(policy).items()),
            b"\x50" + _wire.varint(span.dropped_attributes),
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


class Forwarder:
    """A span processor on the application's provider; knows which spans are ours to forward."""

    def __init__(
        self, exporter: Exporter, policy: ContentPolicy, *, content_on_spans: bool, resource: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.active = True
        self._shown = policy if content_on_spans else replace(policy, capture=False)
        self._born_ns = 0
        self._exporter = exporter
        self._resource = resource
        self._below: dict[int, None] = {}
        self._completed = threading.local()

    def complete(self, span: AttachedSpan) -> None:
        """Let the carrying span show what was recorded, and remember the recording for our copy of it."""
        carrier = span.carrier
        own = getattr(carrier, "_attributes", None)
        if isinstance(own, Mapping):
            carrier._attributes = LateAttributes(own, span, self._shown)
        else:
            carrier.set_attributes(span.attributes({}, self._shown))
        self._completed.span = span

    # --- opentelemetry.sdk.trace.SpanProcessor, without importing it ------------------------------------------------
    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Remember spans that begin below one of ours."""
        if self.active and RECORDING_KEY in (current() if parent_context is None else parent_context):
            if len(self._below) >= _MAX_OPEN:
                self._below.clear()
            self._below[span.get_span_context().span_id] = None

    def _on_ending(self, span: Any) -> None:
        pass

    def on_end(self, span: Any) -> None:
        """Forward the span if it is ours, or a GenAI span of another instrumentation."""
        beside = getattr(self._completed, "span", None)
        number = span.get_span_context().span_id
        if beside is not None and beside.get_span_context().span_id == number:
            self._completed.span = None
        else:
            beside = None
        below = self._below.pop(number, 0) is None
        if not self.active or (span.start_time or 0) < self._born_ns:
            return
        if beside is not None or below or any(key in (span.attributes or {}) for key in _FOREIGN_GENAI):
            self._exporter.offer(Forwarded(span, beside, self._resource))

    def forked(self) -> None:
        """In a forked child: spans that were open belong to the parent."""
        self._below.clear()
        self._born_ns = time.time_ns()

    def shutdown(self) -> None:
        """The provider is going away: send what there is."""
        self._exporter.flush(2.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what there is within the time."""
        return self._exporter.flush(timeout_millis / 1000)
