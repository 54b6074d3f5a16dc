"""Recording on a provider of the application: its own tracer makes the span, and our recording lies beside it.

The application's span carries figures, and names of session, user and prompt where they begin to hold: each attribute
costs its caller a microsecond there (`benchmarks/sdk_overhead.py`). Content goes to our collector only, unless the
application asked for it on its own spans with `capture_content=True`. Our collector receives our spans, the spans below
them, and spans of GenAI and OpenInference instrumentations; it never receives any other span of the application.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind

from ragpulse import attributes as names
from ragpulse._export import encoder
from ragpulse._export.encoder import Origin
from ragpulse._export.exporter import Exporter

from .content import ContentPolicy, all_attributes, cleaned, encode_attributes, failure, figures
from .recording import CLIENT, Plan, Recording, error_name
from .scope import SCOPE_KEY, Scope, current, scope_of
from .tracer import RECORDING_KEY, Sampler, inside

_GENAI_KEYS = ("gen_ai.operation.name", "gen_ai.system", "openinference.span.kind", "traceloop.span.kind")
_MAX_OPEN = 65_536
_SHARE = re.compile(r"(?:^|root:)TraceIdRatioBased\{([\d.]+)\}")
"""In the description of a sampler, alone or at the root of one that follows the parent."""


class AttachedSpan(Recording):
    """A recording beside a span that the application's provider made."""

    __slots__ = ("_forwarder", "_identity", "_open", "_span", "exception", "scope", "start_ns", "status")

    def __init__(self, plan: Plan, scope: Scope, span: trace.Span, forwarder: "Forwarder") -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = self.calls = None
        self.scope = scope
        self._span = span
        self._identity = span.get_span_context()
        self.start_ns = time.time_ns()
        self.exception: tuple[int, dict[str, str]] | None = None
        self.status: str | None = None
        self._forwarder = forwarder
        self._open = span.is_recording()

    @property
    def records(self) -> bool:
        """Whether the provider's sampler chose this span and it is still open."""
        return self._open

    def get_span_context(self) -> trace.SpanContext:
        """The identity of the application's span."""
        return self._identity

    def fail(self, error: BaseException) -> None:
        """Records an exception with its stack, and the status ERROR."""
        if not self._open:
            return
        self.put(names.ERROR_TYPE, error_name(error))
        attributes, self.status = failure(self.plan, error)
        self.exception = time.time_ns(), attributes

    def end(self) -> None:
        """Puts on the application's span what it may carry, and ends it."""
        span, self._span = self._span, trace.INVALID_SPAN
        if self._open:
            self._open = False
            self._forwarder.complete(self, span)
        span.end()


class AttachTracer:
    """Starts our spans with a tracer of the application's provider."""

    def __init__(self, tracer: trace.Tracer, forwarder: "Forwarder") -> None:
        self._tracer = tracer
        self._forwarder = forwarder

    def start(self, plan: Plan, context: Context) -> tuple[AttachedSpan, Context]:
        """A span below the context's current one, and the context in which it is current."""
        scope = scope_of(context, plan.scope)
        kind = SpanKind.CLIENT if plan.span_kind == CLIENT else SpanKind.INTERNAL
        labels = plan.labels
        if RECORDING_KEY not in context or scope is not context.get(SCOPE_KEY):
            labels = {**labels, **scope.shown(self._forwarder.policy.redact).attributes}
        span = self._tracer.start_span(plan.name, context, kind, labels)
        recording = AttachedSpan(plan, scope, span, self._forwarder)
        if scope.metadata:
            recording.put_text(names.METADATA, scope.metadata_json())
        return recording, inside(context, span, recording, scope)


class ForwardedSpan:
    """A finished span of the application's provider, queued for our collector."""

    __slots__ = ("_forwarder", "_recording", "_span", "_state")

    def __init__(self, span: Any, recording: AttachedSpan | None, forwarder: "Forwarder", state: str = "") -> None:
        self._span = span
        self._state = state
        self._recording = recording
        self._forwarder = forwarder

    def size(self) -> int:
        """Estimates the bytes it holds in memory."""
        if self._recording is not None:
            return 2000 + self._recording.size()
        return 2000 + sum([len(value) for value in (self._span.attributes or {}).values() if isinstance(value, str)])

    def ends_here(self) -> bool:
        """Whether its parent, if any, is in another process."""
        return self._span.parent is None or bool(self._span.parent.is_remote)

    def origin(self) -> Origin:
        """The path, resource and instrumentation scope it is sent with."""
        return self._forwarder.origin(self._span)

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message, under our own content policy."""
        span, recording = self._span, self._recording
        own = cleaned(span.attributes or {}, policy)
        if recording is None:
            attributes = encoder.key_value_parts(encoder.SPAN_ATTRIBUTES, own.items())
            attributes += (b"\x50", encoder.varint(span.dropped_attributes))
        else:
            attributes = encode_attributes(recording, recording.scope, policy, own)
        return b"".join([*self._head(), *attributes, *self._events(policy), *self._links(), self._status(policy)])

    def _head(self) -> list[bytes]:
        span, identity, parent = self._span, self._span.get_span_context(), self._span.parent
        state = identity.trace_state.to_header() or self._state
        return [
            encoder.span_identity(identity.trace_id, identity.span_id, parent.span_id if parent else 0, state),
            encoder.span_head(span.name, span.kind.value + 1),
            encoder.span_times(span.start_time, span.end_time),
            encoder.flags(bool(parent and parent.is_remote)),
        ]

    def _events(self, policy: ContentPolicy) -> list[bytes]:
        """The span's events; our recording of its exception replaces the reduced one that the span carries."""
        found = [(event.timestamp, event.name, event.attributes or {}) for event in self._span.events]
        exception = None if self._recording is None else self._recording.exception
        if exception is not None:
            found = [event for event in found if event[:2] != (exception[0], names.EXCEPTION_EVENT)]
            found.append((exception[0], names.EXCEPTION_EVENT, exception[1]))
        return [encoder.event(at, name, cleaned(attributes, policy)) for at, name, attributes in found]

    def _links(self) -> list[bytes]:
        return [
            encoder.link(link.context.trace_id, link.context.span_id, link.context.is_remote, link.attributes or {})
            for link in self._span.links
        ]

    def _status(self, policy: ContentPolicy) -> bytes:
        status = self._span.status
        ours = None if self._recording is None else self._recording.status
        return encoder.status(status.status_code.value, policy.description(ours or status.description))


def _is_ours(span: Any) -> bool:
    library = span.instrumentation_scope
    return library is not None and library.name == "ragpulse"


class Forwarder(SpanProcessor):
    """A span processor on the application's provider: selects the spans that our collector receives."""

    def __init__(
        self, exporter: Exporter, policy: ContentPolicy, *, content_on_spans: bool, resource: Mapping[str, Any]
    ) -> None:
        self.active = True
        self.policy = policy
        self._content_on_spans = content_on_spans and policy.capture
        self._born_ns = 0
        self._exporter = exporter
        self._resource = resource
        self._resources: dict[int, tuple[Any, bytes]] = {}
        self._ended: dict[int, AttachedSpan] = {}
        """Recordings of ours between `complete` and the `on_end` that it leads to."""
        self._above: dict[int, Recording] = {}
        """Open span of another instrumentation → the innermost recorded call above it."""
        self._begun: set[int] = set()
        """The traces that began in this process and are open, where its sampler chooses a share of them."""
        self._state = ""

    def sampled_by(self, sampler: Any) -> None:
        """Notes the share of traces that the provider's sampler chooses, which it does not write into trace states."""
        found = _SHARE.search(sampler.get_description()) if sampler is not None else None
        self._state = "" if found is None else Sampler(float(found[1])).state

    def complete(self, recording: AttachedSpan, span: trace.Span) -> None:
        """Puts figures (and content, where asked for) on the span, and keeps the recording for our copy of it."""
        policy = self.policy
        self._ended[recording.get_span_context().span_id] = recording
        if self._content_on_spans:
            span.set_attributes(all_attributes(recording, recording.scope, policy))
        elif recording.facts:
            for key, value in figures(recording.facts, policy).items():
                span.set_attribute(key, value)  # for a few, cheaper than `set_attributes`
        if recording.exception is not None:
            shows = policy.with_capture(self._content_on_spans)
            at, attributes = recording.exception
            span.add_event(names.EXCEPTION_EVENT, cleaned(attributes, shows), at)
            span.set_status(trace.Status(trace.StatusCode.ERROR, shows.description(recording.status)))

    def origin(self, span: Any) -> Origin:
        """The path, encoded resource (with the service that `configure` was given) and scope of a span."""
        resource, scope = span.resource, span.instrumentation_scope
        known = self._resources.get(id(resource))
        if known is None:
            known = resource, encoder.resource({**resource.attributes, **self._resource})
            self._resources[id(resource)] = known
        return "traces", known[1], encoder.scope(scope.name, scope.version) if scope else encoder.scope("", None)

    # --- opentelemetry.sdk.trace.SpanProcessor ------------------------------------------------------------------
    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Remembers a span that begins below one of ours, and a trace that begins."""
        if self._state and span.parent is None:
            if len(self._begun) >= _MAX_OPEN:
                self._begun.clear()
            self._begun.add(span.get_span_context().trace_id)
        if not self.active or _is_ours(span):
            return
        recording = (current() if parent_context is None else parent_context).get(RECORDING_KEY)
        if recording is not None:
            if len(self._above) >= _MAX_OPEN:
                self._above.clear()
            self._above[span.get_span_context().span_id] = recording  # type: ignore[assignment]

    def on_end(self, span: Any) -> None:
        """Queues the span if it is ours, below one of ours, or a GenAI span of another instrumentation."""
        identity = span.get_span_context()
        recording = self._ended.pop(identity.span_id, None)
        above = None if recording is not None else self._above.pop(identity.span_id, None)
        if above is not None and span.attributes:
            above.put_call(identity.span_id, span.parent.span_id if span.parent else 0, span.attributes)
        state = self._state if self._begun and identity.trace_id in self._begun else ""
        if state and span.parent is None:
            self._begun.discard(identity.trace_id)
        if not self.active or not identity.trace_flags & 1 or (span.start_time or 0) < self._born_ns:
            return
        if (
            recording is not None
            or above is not None
            or _is_ours(span)
            or not (span.attributes or {}).keys().isdisjoint(_GENAI_KEYS)
        ):
            self._exporter.offer(ForwardedSpan(span, recording, self, state))

    def forked(self) -> None:
        """In a forked child: the parent sends the spans that were open."""
        self._ended.clear()
        self._above.clear()
        self._begun.clear()
        self._born_ns = time.time_ns()

    def shutdown(self) -> None:
        """Sends what is finished; the provider shuts down."""
        self._exporter.flush(2.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Sends what is finished within the time."""
        return self._exporter.flush(timeout_millis / 1000)
