"""Our own span: an OpenTelemetry span that costs its caller a few microseconds and encodes itself later."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags, TraceState

from ragpulse import attributes as names
from ragpulse._export import encoder as _wire

from .content import ContentPolicy, encode_attributes
from .recording import Plan, Recording, error_message, error_name, exception_attributes
from .scope import Scope

_NO_STATE = TraceState()
_MAX_EVENTS = 128


class Owner(Protocol):
    """What a span asks of the tracer that started it."""

    clock: Callable[[], int]
    finished: Callable[[Any], None]

    def clean(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Event attributes after redaction."""
        ...


class Span(Recording, trace.Span):
    """A span on our own provider. Everything that can wait for the exporting thread does."""

    __slots__ = (
        "_events", "_head", "_links", "_status", "context", "end_ns", "parent_id", "parent_is_remote", "sampled",
        "scope", "span_number", "start_ns", "trace_number", "trace_state", "tracer",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        tracer: Owner,
        trace_number: int,
        span_number: int,
        parent_id: int,
        scope: Scope,
        start_ns: int,
    ) -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = None
        self.tracer = tracer
        self.trace_number = trace_number
        self.span_number = span_number
        self.parent_id = parent_id
        self.parent_is_remote = False
        self.sampled = True
        self.trace_state = ""
        self.scope = scope
        self.start_ns = start_ns
        self.end_ns = 0
        self._head: bytes | None = None
        self._events: list[bytes] | None = None
        self._links: list[bytes] | None = None
        self._status: tuple[int, str | None] | None = None
        self.context: SpanContext | None = None

    @property
    def records(self) -> bool:
        """True until the span has ended, when its trace is sampled."""
        return self.sampled and not self.end_ns

    def fail(self, error: BaseException) -> None:
        """Record an exception with its stack, and the status ERROR."""
        self.record_exception(error)
        self.put(names.ERROR_TYPE, error_name(error))
        self._status = (2, f"{error_name(error)}: {error_message(error)}")

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message."""
        parts = encode_attributes(self, self.scope, policy, {})
        parts += (
            _wire.span_identity(self.trace_number, self.span_number, self.parent_id, self.trace_state),
            self._head or self.plan.head,
            _wire.span_times(self.start_ns, self.end_ns),
            _wire.flags(self.parent_is_remote),
        )
        if self._events is not None:
            parts += self._events
        if self._links is not None:
            parts += self._links
        if self._status is not None:
            parts.append(_wire.status(self._status[0], self._redacted_status(policy)))
        return b"".join(parts)

    def _redacted_status(self, policy: ContentPolicy) -> str | None:
        message = self._status[1] if self._status else None
        return policy.redact(message, []) if message else message

    # --- opentelemetry.trace.Span ---------------------------------------------------------------------------------
    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it to the exporter; later calls do nothing."""
        if self.end_ns:
            return
        ended = end_time or self.tracer.clock()
        self.end_ns = ended if ended > self.start_ns else self.start_ns or 1
        if self.sampled:
            self.tracer.finished(self)

    def get_span_context(self) -> SpanContext:
        """The identity that children, links and outgoing requests use."""
        if self.context is None:
            flags = TraceFlags.SAMPLED if self.sampled else TraceFlags.DEFAULT
            state = TraceState.from_header([self.trace_state]) if self.trace_state else _NO_STATE
            self.context = SpanContext(self.trace_number, self.span_number, False, TraceFlags(flags), state)
        return self.context

    def set_attribute(self, key: str, value: Any) -> None:
        """Record one attribute."""
        if self.records:
            self.put(key, _immutable(value))

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Record several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        """Add an event, unless the span has its 128 already."""
        if self._events is None:
            self._events = []
        if self.records and len(self._events) < _MAX_EVENTS:
            self._events.append(_wire.event(timestamp or time.time_ns(), name, self.tracer.clean(attributes or {})))

    def add_link(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Link another span."""
        if self._links is None:
            self._links = []
        if self.records and context.is_valid and len(self._links) < _MAX_EVENTS:
            self._links.append(_wire.link(context.trace_id, context.span_id, context.is_remote, attributes or {}))

    def update_name(self, name: str) -> None:
        """Rename the span."""
        self._head = _wire.span_head(name, self.plan.span_kind)

    def is_recording(self) -> bool:
        """True until the span has ended, when its trace is sampled."""
        return self.records

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the status; OK is final."""
        code = status if isinstance(status, StatusCode) else status.status_code
        if self._status is None or self._status[0] != StatusCode.OK.value:
            text = description if isinstance(status, StatusCode) else status.description
            self._status = (code.value, text if code is StatusCode.ERROR else None)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add the exception as an event, with its stack."""
        self.add_event(names.EXCEPTION_EVENT, {**exception_attributes(exception), **(attributes or {})}, timestamp)

    def __exit__(self, exc_type: Any, exc_val: BaseException | None, exc_tb: Any) -> None:
        if exc_val is not None and isinstance(exc_val, Exception) and self.records:
            self.fail(exc_val)
        self.end()


def _immutable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_immutable(item) for item in value)
    if isinstance(value, Mapping):
        return {key: _immutable(item) for key, item in value.items()}
    return value
