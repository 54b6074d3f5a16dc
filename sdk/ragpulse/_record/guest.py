"""On the application's SDK provider: our recording is itself one of that provider's spans.

Its sampler, id generator and processors are asked and told as for any span, and what they are handed is an
`opentelemetry.sdk.trace.Span`. Only what such a span costs its caller most (locks, lists, containers of attributes) is
made late, by the SDK's own constructor and under the provider's limits: when somebody first asks, which is usually an
exporting thread. Imported when a provider of the application is found, which has imported the SDK by then.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from time import time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace import Status as SpanStatus

from ragpulse import attributes as names

from .attach import Forwarder, encode_span, record_failure
from .call import Discarded
from .content import ContentPolicy, all_attributes, cleaned, encode_attributes
from .recording import CLIENT, Plan, Recording
from .scope import Scope, scope_in
from .tracer import SPAN_KEY, inside

_UNSET = SpanStatus()
_RANDOM = 2  # the W3C flag; the name of the constant came late to opentelemetry-api
_NEEDED = ("sampler", "resource", "id_generator", "span_processor", "_span_limits", "_instrumentation_scope")


class _Blank(SdkSpan):
    """A span by the SDK's own constructor, which refuses to make one of the base class."""


class GuestSpan(Recording, SdkSpan):
    """A recording that the application's provider takes for a span of its own."""

    def __init__(
        self,
        plan: Plan,
        scope: Scope,
        home: "GuestTracer",
        kind: SpanKind,
        context: SpanContext,
        parent: SpanContext | None,
        counted: Callable[[], None] | None,
    ) -> None:
        self.plan = plan
        self.query = self.response = self.documents = self.facts = self.texts = None
        self.scope = scope
        self.own: Mapping[str, Any] | None = None
        """What others set on the span, from its end on."""
        self._home = home
        self._counted = counted
        self._name = plan.name
        self._kind = kind
        self._context = context
        self._parent = parent
        self._status = _UNSET
        self._resource = home.tracer.resource
        self._instrumentation_scope = home.tracer._instrumentation_scope
        self._start_time: int = time_ns()
        self._end_time: int | None = None

    def __getattr__(self, name: str) -> Any:
        """What only the SDK's constructor makes; once the span has ended its attributes are all that was recorded."""
        mine = vars(self)
        if name[:1] != "_" or name[:2] == "__" or "_home" not in mine:
            raise AttributeError(name)
        forwarder = self._home.forwarder
        shown = {} if self._end_time is None else all_attributes(self, self.scope, forwarder.shown, self.own or {})
        for key, value in vars(self._home.blank(self, shown)).items():
            mine.setdefault(key, value)
        if name not in mine:
            raise AttributeError(name)
        return mine[name]

    def __deepcopy__(self, memo: Any) -> Any:
        """The SDK's plain form of the span, for processors that change what they hand on."""
        return deepcopy(self._readable_span(), memo)

    @property
    def records(self) -> bool:
        """True until the span has ended."""
        return self._end_time is None

    @property
    def start_ns(self) -> int:
        """When the span started."""
        return self._start_time

    def fail(self, error: BaseException) -> None:
        """Record an exception with its stack, and the status ERROR."""
        record_failure(self, self, error, self._home.forwarder.policy)

    def end(self, end_time: int | None = None) -> None:
        """End the span and tell the provider's processors; later calls do nothing."""
        if self._end_time is not None:
            return
        self.own = vars(self).pop("_attributes", None)
        self._end_time = time_ns() if end_time is None else end_time
        if self._counted is not None:
            self._counted()
        self._home.ending(self)
        self._home.tracer.span_processor.on_end(self)

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        return 1000 + super().size()

    def encode(self, policy: ContentPolicy) -> bytes:
        """The span as an OTLP protobuf message, under our policy whatever the application's provider was shown."""
        made = vars(self)
        own = cleaned(self.own or {}, policy)
        return encode_span(
            self, encode_attributes(self, self.scope, policy, own), made.get("_events", ()), made.get("_links", ())
        )

    def origin(self) -> tuple[bytes, bytes]:
        """Resource and instrumentation scope as OTLP protobuf."""
        return self._home.forwarder.origin(self)


class GuestTracer:
    """Starts our spans on the application's SDK provider, as its own tracer would."""

    def __init__(self, tracer: SdkTracer, forwarder: Forwarder) -> None:
        self.tracer = tracer
        self.forwarder = forwarder
        self.ending: Callable[[Any], Any] = getattr(tracer.span_processor, "_on_ending", lambda span: None)
        self._enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", lambda: True)
        self._random: Callable[[], bool] = getattr(tracer.id_generator, "is_trace_id_random", lambda: False)
        # The usual sampler lets the children of a sampled span through; asking it would cost more than all the rest.
        self._follows = type(tracer.sampler) is ParentBased and (
            getattr(tracer.sampler, "_local_parent_sampled", None) is ALWAYS_ON
        )
        metrics = getattr(tracer, "_tracer_metrics", None)
        self._counted: Callable[..., Any] = (lambda *_: None) if metrics is None else metrics.start_span

    @staticmethod
    def fits(tracer: Any) -> bool:
        """Whether a tracer is the SDK's own, of a version that tells what is needed."""
        return type(tracer) is SdkTracer and all(hasattr(tracer, name) for name in _NEEDED)

    def start(self, plan: Plan, context: Context) -> tuple[Any, Context]:
        """A span below the context's current one, and the context in which it is current."""
        scope = scope_in(context)
        if plan.scope:
            scope = scope.joined(plan.scope)
        held: Any = context.get(SPAN_KEY)
        parent: SpanContext | None = None if held is None else held.get_span_context()
        if parent is not None and not parent.is_valid:
            parent = None
        if not self._enabled():
            return _unrecorded(parent or INVALID_SPAN_CONTEXT, context, scope)
        kind = SpanKind.CLIENT if plan.span_kind == CLIENT else SpanKind.INTERNAL
        identity, decision, added = self._sampled(plan, context, kind, parent)
        counted = self._counted(parent, decision)
        if decision is Decision.DROP:
            return _unrecorded(identity, context, scope)
        span = GuestSpan(plan, scope, self, kind, identity, parent, counted)
        if added != plan.constants:
            span.set_attributes({key: value for key, value in added.items() if key not in plan.constants})
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        self.tracer.span_processor.on_start(span, parent_context=context)
        return span, inside(context, span, span, scope)

    def _sampled(
        self, plan: Plan, context: Context, kind: SpanKind, parent: SpanContext | None
    ) -> tuple[SpanContext, Decision, Mapping[str, Any]]:
        """A new span's identity, what the provider's sampler decided about it, and the attributes it answered with."""
        tracer = self.tracer
        number = tracer.id_generator.generate_span_id()
        if parent is not None and parent.trace_flags & 1 and not parent.is_remote and self._follows:
            known = SpanContext(parent.trace_id, number, False, parent.trace_flags, parent.trace_state)
            return known, Decision.RECORD_AND_SAMPLE, plan.constants
        trace_id = tracer.id_generator.generate_trace_id() if parent is None else parent.trace_id
        asked = tracer.sampler.should_sample(context, trace_id, plan.name, kind, plan.constants, ())
        random = _RANDOM if (self._random() if parent is None else parent.trace_flags & _RANDOM) else 0
        flags = TraceFlags(random | (asked.decision is Decision.RECORD_AND_SAMPLE))
        return SpanContext(trace_id, number, False, flags, asked.trace_state), asked.decision, asked.attributes or {}

    def blank(self, span: GuestSpan, attributes: Mapping[str, Any]) -> SdkSpan:
        """A span as the SDK itself would have made it, with its locks and bounded containers."""
        tracer = self.tracer
        return _Blank(
            span.name,
            span.get_span_context(),
            sampler=tracer.sampler,
            resource=span.resource,
            attributes=attributes,
            span_processor=tracer.span_processor,
            limits=tracer._span_limits,
        )


def _unrecorded(identity: SpanContext, context: Context, scope: Scope) -> tuple[Any, Context]:
    nothing = Discarded(identity)
    return nothing, inside(context, NonRecordingSpan(identity), nothing, scope)
