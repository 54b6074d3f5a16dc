"""Our own span: an OpenTelemetry span that costs its caller a few microseconds and is encoded later.

It has the properties of the OpenTelemetry SDK's `ReadableSpan`, because instrumentations and span processors read them.
The SDK's classes are imported only when somebody reads a property that is made of them.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from ragpulse import _names as names
from ragpulse._export import encoder
from ragpulse._export.encoder import AttributeMap, Origin

from .content import Sender, all_attributes, cleaned, encode_attributes, encode_tail, failure
from .recording import Recording, SpanPlan, error_name
from .scope import RequestScope

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

_NO_STATE = TraceState()
_MAX_EVENTS = 128


class SpanOwner(Sender, Protocol):
    """What spans belong to: the tracer."""

    clock: Callable[[], int]

    @property
    def resource(self) -> "Resource":
        """The resource of this process."""

    @property
    def library(self) -> "InstrumentationScope":
        """The instrumentation scope of decorated functions."""

    def finished(self, span: "OwnSpan") -> None:
        """Takes a finished span."""


class OwnSpan(Recording, trace.Span):
    """A span on our own provider. Attributes, redaction and protobuf are left to the exporting thread."""

    __slots__ = (
        "_context", "_events", "_links", "_name", "_status", "above", "end_ns", "parent_id", "parent_is_remote",
        "records", "sampled", "scope", "span_number", "start_ns", "trace_number", "trace_state", "tracer",
    )  # fmt: skip

    def __init__(
        self,
        plan: SpanPlan,
        tracer: "SpanOwner",
        trace_number: int,
        span_number: int,
        parent_id: int,
        scope: RequestScope,
        sampled: bool,
    ) -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = self.calls = None
        self.tracer = tracer
        self.trace_number = trace_number
        self.span_number = span_number
        self.parent_id = parent_id
        self.parent_is_remote = False
        self.above: Any = None
        """The span above it, while it is open."""
        self.sampled = self.records = sampled
        self.trace_state = ""
        self.scope = scope
        self.start_ns = tracer.clock()
        self.end_ns = 0
        self._name: str | None = None
        self._events: list[tuple[int, str, AttributeMap]] | None = None
        self._links: list[Link] | None = None
        self._status: tuple[int, str | None] | None = None
        self._context: SpanContext | None = None

    def now_ns(self) -> int:
        """The time by the clock that its start was read from."""
        return self.tracer.clock()

    def ends_here(self) -> bool:
        """Whether its parent, if any, is in another process."""
        return not self.parent_id or self.parent_is_remote

    def fail(self, error: BaseException) -> None:
        """Records an exception with its stack, and the status ERROR."""
        if not self.records:
            return
        attributes, status = failure(self.plan, error)
        self.add_event(names.EXCEPTION_EVENT, attributes)
        self.put(names.ERROR_TYPE, error_name(error))
        self._status = (StatusCode.ERROR.value, status)

    def origin(self) -> Origin:
        """What it is sent with: the resource of this process, and the library that made it."""
        return self.tracer.origin("traces", self.plan.library)

    def encode(self) -> bytes:
        """The span as an OTLP protobuf message, under the content policy."""
        policy = self.tracer.policy
        parts = encode_attributes(self, self.scope, policy, {})
        parts += (
            encoder.span_identity(self.trace_number, self.span_number, self.parent_id, self.trace_state),
            self.plan.head if self._name is None else encoder.span_head(self._name, self.plan.span_kind),
            encoder.span_times(self.start_ns, self.end_ns),
            encoder.flags(self.parent_is_remote),
        )
        if self._events or self._links or self._status:
            parts += encode_tail(self._events or (), self._links or (), self._status, policy)
        return b"".join(parts)

    # --- opentelemetry.trace.Span ---------------------------------------------------------------------------------
    def end(self, end_time: int | None = None) -> None:
        """Ends the span and hands it to the exporter; later calls do nothing."""
        if self.end_ns:
            return
        ended = end_time or self.tracer.clock()
        self.end_ns = ended if ended > self.start_ns else self.start_ns or 1
        self.records = False
        self.above = None
        if self.sampled:
            self.tracer.finished(self)

    def get_span_context(self) -> SpanContext:
        """The identity that children, links and outgoing requests use."""
        if self._context is None:
            self._context = self._identity(self.span_number, is_remote=False)
        return self._context

    def _identity(self, number: int, *, is_remote: bool) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED if self.sampled else TraceFlags.DEFAULT)
        state = TraceState.from_header([self.trace_state]) if self.trace_state else _NO_STATE
        return SpanContext(self.trace_number, number, is_remote, flags, state)

    def set_attribute(self, key: str, value: Any) -> None:
        """Records one attribute."""
        if self.records:
            self.put(key, _immutable(value))

    def set_attributes(self, attributes: AttributeMap) -> None:
        """Records several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(self, name: str, attributes: AttributeMap | None = None, timestamp: int | None = None) -> None:
        """Adds an event, unless the span has 128 already."""
        if self._events is None:
            self._events = []
        if self.records and len(self._events) < _MAX_EVENTS:
            self._events.append((timestamp or self.tracer.clock(), name, _immutable(attributes or {})))

    def add_link(self, context: SpanContext, attributes: AttributeMap | None = None) -> None:
        """Links another span."""
        if self._links is None:
            self._links = []
        if self.records and context.is_valid and len(self._links) < _MAX_EVENTS:
            self._links.append(Link(context, _immutable(attributes or {})))

    def update_name(self, name: str) -> None:
        """Renames the span."""
        if self.records:
            self._name = name

    def is_recording(self) -> bool:
        """True until the span has ended, when its trace is sampled."""
        return self.records

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Sets the status; OK is final."""
        code = status if isinstance(status, StatusCode) else status.status_code
        if self.records and (self._status is None or self._status[0] != StatusCode.OK.value):
            text = description if isinstance(status, StatusCode) else status.description
            self._status = (code.value, text if code is StatusCode.ERROR and not self._withheld() else None)

    def _withheld(self) -> bool:
        """Whether the exception that was just recorded has no text: a description would repeat it."""
        _, name, attributes = self._events[-1] if self._events else (0, "", {})
        return name == names.EXCEPTION_EVENT and names.EXCEPTION_MESSAGE not in attributes

    def record_exception(
        self,
        exception: BaseException,
        attributes: AttributeMap | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Adds the exception as an event, with its stack."""
        self.add_event(names.EXCEPTION_EVENT, {**failure(self.plan, exception)[0], **(attributes or {})}, timestamp)

    def __exit__(self, exc_type: Any, exc_val: BaseException | None, exc_tb: Any) -> None:
        if exc_val is not None and isinstance(exc_val, Exception) and self.records:
            self.fail(exc_val)
        self.end()

    # --- opentelemetry.sdk.trace.ReadableSpan ---------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The span's name."""
        return self.plan.name if self._name is None else self._name

    @property
    def kind(self) -> SpanKind:
        """Internal, server, client, producer or consumer."""
        return SpanKind(self.plan.span_kind - 1)

    @property
    def context(self) -> SpanContext:
        """The same as `get_span_context()`."""
        return self.get_span_context()

    @property
    def parent(self) -> SpanContext | None:
        """The identity of the span above; None for a root."""
        return self._identity(self.parent_id, is_remote=self.parent_is_remote) if self.parent_id else None

    @property
    def start_time(self) -> int:
        """Nanoseconds since the epoch."""
        return self.start_ns

    @property
    def end_time(self) -> int | None:
        """Nanoseconds since the epoch; None while the span is open."""
        return self.end_ns or None

    @property
    def status(self) -> Status:
        """Unset, OK, or ERROR with its description."""
        code, text = self._status or (StatusCode.UNSET.value, None)
        return Status(StatusCode(code), self.tracer.policy.description(text))

    @property
    def attributes(self) -> AttributeMap:
        """All attributes as they are sent to the collector: redacted, cut or withheld."""
        return MappingProxyType(all_attributes(self, self.scope, self.tracer.policy))

    _attributes = attributes
    """OpenInference's instrumentations read this name of the SDK's span."""

    @property
    def events(self) -> "Sequence[Event]":
        """The events as the SDK's own objects, under the content policy."""
        from opentelemetry.sdk.trace import Event

        events = self._events or ()
        return tuple(
            [Event(name, cleaned(attributes, self.tracer.policy), time_ns) for time_ns, name, attributes in events]
        )

    @property
    def links(self) -> Sequence[Link]:
        """The linked spans."""
        return tuple(self._links or ())

    @property
    def resource(self) -> "Resource":
        """The resource of this process."""
        return self.tracer.resource

    @property
    def instrumentation_scope(self) -> "InstrumentationScope":
        """The library whose instrumentation made the span."""
        return self.plan.library or self.tracer.library

    def readable(self) -> "ReadableSpan":
        """A copy of the span as the SDK's own `ReadableSpan`, which processors and exporters expect."""
        from opentelemetry.sdk.trace import ReadableSpan

        return ReadableSpan(
            self.name,
            context=self.context,
            parent=self.parent,
            resource=self.resource,
            attributes=self.attributes,
            events=self.events,
            links=self.links,
            kind=self.kind,
            status=self.status,
            start_time=self.start_time,
            end_time=self.end_time,
            instrumentation_scope=self.instrumentation_scope,
        )

    def to_json(self, indent: int | None = 4) -> str:
        """The span as JSON text in the SDK's format."""
        return str(self.readable().to_json(indent))


def _immutable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_immutable(item) for item in value)
    if isinstance(value, Mapping):
        return {key: _immutable(item) for key, item in value.items()}
    return value
