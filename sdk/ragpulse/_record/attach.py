"""Recording on a provider of the application: its own tracer makes the span, and our recording lies beside it.

The application's span carries figures, and names of session, user and prompt where they begin to hold: each attribute
costs its caller a microsecond there (`benchmarks/sdk_overhead.py`). Content goes to our collector only, unless the
application asked for it on its own spans with `capture_content=True`. Our collector receives our spans, the spans below
them, and spans of GenAI and OpenInference instrumentations; it never receives any other span of the application.
"""

import re
import time
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind

from ragpulse import _names as names
from ragpulse._export import encoder
from ragpulse._export.encoder import AttributeMap, Origin
from ragpulse._export.exporter import Exporter

from .content import (
    IDENTITIES,
    ContentPolicy,
    all_attributes,
    cleaned,
    encode_attributes,
    encode_tail,
    failure,
    is_content,
)
from .frameworks.runs import RUNS
from .otel import RECORDING_KEY, SCOPE_KEY, SPAN_KEY
from .recording import CLIENT, INTERNAL, Recording, SpanPlan, error_name
from .scope import RequestScope, scope_of
from .tracer import TraceSampler, Unsampled, context_within

_GENAI_KEYS = ("gen_ai.operation.name", "gen_ai.system", "openinference.span.kind", "traceloop.span.kind")
_KINDS = {INTERNAL: SpanKind.INTERNAL, CLIENT: SpanKind.CLIENT}
_MAX_OPEN = 65_536
_SHARE = re.compile(r"(?:^|root:)TraceIdRatioBased\{([\d.]+)\}")
"""In the description of a sampler, alone or at the root of one that follows the parent."""


class _Queued:
    """A span of the application's provider in our queue, when it has ended."""

    __slots__ = ()
    span: Any
    forwarder: "Forwarder"
    parent_id = 0
    """The number of the parent that the span has here, where the application's instrumentation gave it another."""
    state: str
    """The trace state that the provider's sampler implies and does not write."""

    @property
    def trace_number(self) -> int:
        """The id of its trace."""
        return int(self.span.get_span_context().trace_id)

    def ends_here(self) -> bool:
        """Whether its parent, if any, is in another process."""
        return self.span.parent is None or bool(self.span.parent.is_remote)

    def origin(self) -> Origin:
        """The path, resource and instrumentation scope it is sent with."""
        return self.forwarder.origin(self.span)

    def encode(self) -> bytes:
        """The span as an OTLP protobuf message, under our own content policy."""
        policy = self.forwarder.policy
        attributes = cleaned(self.span.attributes or {}, policy)
        status = self.span.status.status_code.value, self._description()
        tail = encode_tail(self._events(), self.span.links, status, policy)
        return b"".join([*self._head(), *self._attributes(attributes, policy), *tail])

    def _head(self) -> list[bytes]:
        span, identity, parent = self.span, self.span.get_span_context(), self.span.parent
        state = identity.trace_state.to_header() or self.state
        parent_id = self.parent_id or (parent.span_id if parent else 0)
        return [
            encoder.span_identity(identity.trace_id, identity.span_id, parent_id, state),
            encoder.span_head(span.name, span.kind.value + 1),
            encoder.span_times(span.start_time, span.end_time),
            encoder.flags(bool(parent and parent.is_remote)),
        ]

    def _attributes(self, attributes: AttributeMap, policy: ContentPolicy) -> list[bytes]:
        dropped = encoder.varint(self.span.dropped_attributes)
        return [*encoder.key_value_parts(encoder.SPAN_ATTRIBUTES, attributes.items()), b"\x50", dropped]

    def _events(self) -> list[tuple[int, str, AttributeMap]]:
        return [(event.timestamp, event.name, event.attributes or {}) for event in self.span.events]

    def _description(self) -> str | None:
        description: str | None = self.span.status.description
        return description


class ForwardedSpan(_Queued):
    """A span of another instrumentation."""

    __slots__ = ("forwarder", "parent_id", "span", "state")

    def __init__(self, span: Any, forwarder: "Forwarder", state: str, parent_id: int) -> None:
        self.span = span
        self.parent_id = parent_id
        self.forwarder = forwarder
        self.state = state

    def size(self) -> int:
        """Estimates the bytes it holds in memory."""
        return 2000 + sum([len(value) for value in (self.span.attributes or {}).values() if isinstance(value, str)])


class AttachedSpan(Recording, _Queued):
    """A recording beside a span that the application's provider made; when the span has ended they are sent as one."""

    __slots__ = ("above", "failure", "forwarder", "records", "scope", "span", "state")

    def __init__(self, plan: SpanPlan, scope: RequestScope, span: trace.Span, forwarder: "Forwarder") -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = self.calls = None
        self.scope = scope
        self.span = span
        self.above: Any = None
        self.forwarder = forwarder
        self.state = ""
        self.failure: tuple[int, dict[str, str], str | None] | None = None
        """When an exception left the call, its attributes, and the description of the status."""
        self.records = span.is_recording()

    @property
    def start_ns(self) -> int:
        """Nanoseconds since the epoch."""
        start: int = self.span.start_time
        return start

    def now_ns(self) -> int:
        """The time by the clock that its start was read from."""
        return time.time_ns()

    def get_span_context(self) -> trace.SpanContext:
        """The identity of the application's span."""
        identity: trace.SpanContext = self.span.get_span_context()
        return identity

    def fail(self, error: BaseException) -> None:
        """Records an exception with its stack, and the status ERROR."""
        if self.records:
            self.put(names.ERROR_TYPE, error_name(error))
            self.failure = time.time_ns(), *failure(self.plan, error)

    def end(self) -> None:
        """Puts on the application's span what it may carry, and ends it."""
        if self.records:
            self.records = False
            self.above = None
            self.forwarder.complete(self)
        self.span.end()

    def size(self) -> int:
        """Estimates the bytes it holds in memory."""
        return 2000 + super().size()

    def _attributes(self, attributes: AttributeMap, policy: ContentPolicy) -> list[bytes]:
        return encode_attributes(self, self.scope, policy, attributes)

    def _events(self) -> list[tuple[int, str, AttributeMap]]:
        """The span's events; our record of its exception replaces the reduced one that the span carries."""
        events = super()._events()
        if self.failure is not None:
            time_ns, attributes, _ = self.failure
            events = [event for event in events if event[:2] != (time_ns, names.EXCEPTION_EVENT)]
            events.append((time_ns, names.EXCEPTION_EVENT, attributes))
        return events

    def _description(self) -> str | None:
        return super()._description() if self.failure is None else self.failure[2]


@dataclass(eq=False)
class AttachTracer:
    """Starts our spans with a tracer of the application's provider."""

    _tracer: trace.Tracer
    _forwarder: "Forwarder"
    _unsampled: Unsampled

    def start(self, plan: SpanPlan, context: Context) -> tuple[AttachedSpan, Context]:
        """A span below the context's current one, and the context in which it is current."""
        context = RUNS.context_of_call(context)
        scope = scope_of(context, plan.scope)
        labels = plan.labels
        if RECORDING_KEY not in context or scope is not context.get(SCOPE_KEY):
            labels = {**labels, **scope.shown(self._forwarder.policy.redact).attributes}
        span = self._tracer.start_span(plan.name, context, _KINDS[plan.span_kind], labels)
        recording = AttachedSpan(plan, scope, span, self._forwarder)
        recording.above = _above(context)
        if not recording.records and self._forwarder.follows_callers and RECORDING_KEY not in context:
            self._unsampled.add()
        if scope.metadata:
            recording.put_text(names.METADATA, scope.metadata_json())
        return recording, context_within(context, span, recording, scope)


def _above(context: Context) -> Any:
    """The current span, as our recording of it where there is one: that knows the span above."""
    recording: Any = context.get(RECORDING_KEY)
    span: Any = context.get(SPAN_KEY)
    return recording if recording is not None and recording.span is span else span


def _is_ours(span: Any) -> bool:
    library = span.instrumentation_scope
    return library is not None and library.name == "ragpulse"


class Forwarder(SpanProcessor):
    """A span processor on the application's provider: selects the spans that our collector receives."""

    def __init__(
        self, exporter: Exporter, policy: ContentPolicy, *, content_on_spans: bool, resource: AttributeMap
    ) -> None:
        self.active = True
        self.policy = policy
        self._content_on_spans = content_on_spans and policy.capture
        self._forked_ns = 0
        self._exporter = exporter
        self._resource = resource
        self._resources: dict[int, tuple[Any, bytes]] = {}
        self._ended: dict[int, AttachedSpan] = {}
        """Our recordings between `complete` and `on_end`, which the end of the span calls."""
        self._recordings_above: dict[int, tuple[Recording, int]] = {}
        """Open span of another instrumentation → the innermost recorded call above it, and the number of its parent."""
        self._open_roots: set[int] = set()
        """The traces that began in this process and are open, where its sampler chooses a share of them."""
        self._state = ""
        self.follows_callers = False
        """Whether a span is unsampled only because its caller's is."""

    def read_sampler(self, sampler: Any) -> None:
        """Reads the share of traces that the provider's sampler chooses, which it does not write into trace states."""
        description = "" if sampler is None else sampler.get_description()
        self.follows_callers = description.startswith("ParentBased{root:AlwaysOnSampler")
        match = _SHARE.search(description)
        self._state = "" if match is None else TraceSampler(float(match[1])).state

    def complete(self, recording: AttachedSpan) -> None:
        """Puts figures (and content, where asked for) on the span, and keeps the recording for our copy of it."""
        policy, span = self.policy, recording.span
        self._ended[span.get_span_context().span_id] = recording
        if self._content_on_spans:
            span.set_attributes(all_attributes(recording, recording.scope, policy))
        elif recording.facts:
            for key, value in recording.facts.items():  # for a few, cheaper than `set_attributes`
                if type(value) is not str or key in IDENTITIES:
                    span.set_attribute(key, value)
                elif not is_content(key):
                    span.set_attribute(key, policy.redact(value, []))
        if recording.failure is not None:
            policy = replace(policy, capture=self._content_on_spans)
            time_ns, attributes, description = recording.failure
            span.add_event(names.EXCEPTION_EVENT, cleaned(attributes, policy), time_ns)
            span.set_status(trace.Status(trace.StatusCode.ERROR, policy.description(description)))

    def origin(self, span: Any) -> Origin:
        """The path, encoded resource (with the service that `configure` was given) and scope of a span."""
        resource, scope = span.resource, span.instrumentation_scope
        entry = self._resources.get(id(resource))
        if entry is None:
            entry = resource, encoder.resource({**resource.attributes, **self._resource})
            self._resources[id(resource)] = entry
        return "traces", entry[1], encoder.scope(scope.name, scope.version) if scope else encoder.scope("", None)

    # --- opentelemetry.sdk.trace.SpanProcessor ------------------------------------------------------------------
    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Remembers a span that begins below one of ours, and a trace that begins."""
        if self._state and span.parent is None:
            if len(self._open_roots) >= _MAX_OPEN:
                self._open_roots.clear()
            self._open_roots.add(span.get_span_context().trace_id)
        library = span.instrumentation_scope
        if not self.active or library is None or _is_ours(span):
            return
        context = RUNS.context_of_library(library, parent_context)
        RUNS.started(library, span, context)
        recording: Any = context.get(RECORDING_KEY)
        if recording is not None:
            if len(self._recordings_above) >= _MAX_OPEN:
                self._recordings_above.clear()
            parent = trace.get_current_span(context).get_span_context().span_id
            self._recordings_above[span.get_span_context().span_id] = recording, parent

    def on_end(self, span: Any) -> None:
        """Queues the span if it is ours, below one of ours, or a GenAI span of another instrumentation."""
        identity = span.get_span_context()
        recording = self._ended.pop(identity.span_id, None)
        above, parent = self._recordings_above.pop(identity.span_id, (None, 0)) if recording is None else (None, 0)
        if above is not None and span.attributes:
            above.put_call(identity.span_id, parent, span.attributes)
        state = self._state if self._open_roots and identity.trace_id in self._open_roots else ""
        if state and span.parent is None:
            self._open_roots.discard(identity.trace_id)
        if not self.active or not identity.trace_flags & 1 or (span.start_time or 0) < self._forked_ns:
            return
        if recording is not None:
            recording.span, recording.state = span, state
            self._exporter.offer(recording)
        elif above is not None or _is_ours(span) or not (span.attributes or {}).keys().isdisjoint(_GENAI_KEYS):
            self._exporter.offer(ForwardedSpan(span, self, state, parent))

    def forked(self) -> None:
        """In a forked child: the parent sends the spans that were open."""
        self._ended.clear()
        self._recordings_above.clear()
        self._open_roots.clear()
        self._forked_ns = time.time_ns()

    def shutdown(self) -> None:
        """Sends what is finished; the provider shuts down."""
        self._exporter.flush(2.0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Sends what is finished within the time."""
        return self._exporter.flush(timeout_millis / 1000)
