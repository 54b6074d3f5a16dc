"""Starts spans on our own provider: identity, parentage, sampling, scope; hands finished ones to the exporter."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanKind, set_span_in_context

from ragpulse import attributes as names

from .content import ContentPolicy
from .recording import Plan
from .scope import EMPTY, SCOPE_KEY, Scope, scope_in
from .span import Span

SPAN_KEY = next(iter(set_span_in_context(trace.INVALID_SPAN, Context())))
"""Where OpenTelemetry keeps the current span in a context."""
RECORDING_KEY = "ragpulse-recording"
"""Where we keep the innermost recording, which a foreign span may hide."""


def inside(context: Context, span: trace.Span, recording: Any, scope: Scope) -> Context:
    """`context` as it is within a recorded call."""
    return Context({**context, SPAN_KEY: span, RECORDING_KEY: recording, SCOPE_KEY: scope})


class Sink(Protocol):
    """Takes finished spans; never blocks."""

    def offer(self, span: Any, /) -> None:
        """Queue a span for export, or count it as dropped."""
        ...


class Ids:
    """Random identities from our own generator, which an application that seeds `random` does not touch."""

    def __init__(self) -> None:
        self._source = random.Random()
        self._bits = self._source.getrandbits

    def reseed(self) -> None:
        """Take new entropy, as every forked child must."""
        self._source.seed()

    def trace_id(self) -> int:
        """128 random bits, not all zero."""
        return self._bits(128) or 1

    def span_id(self) -> int:
        """64 random bits, not all zero."""
        return self._bits(64) or 1


class Tracer:
    """Our own fast provider's tracer."""

    def __init__(
        self,
        sink: Sink,
        *,
        policy: ContentPolicy,
        sampler: "Sampler",
        isolated: bool = False,
        ids: Ids | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.policy = policy
        self.ids = ids or Ids()
        self.clock = clock
        self.finished: Callable[[Any], None] = sink.offer
        self._sink = sink
        self._sampler = sampler
        self._isolated = isolated

    def forked(self) -> None:
        """In a forked child: new identities; spans that were open belong to the parent, which sends them."""
        self.ids.reseed()
        born, offer = self.clock(), self._sink.offer
        self.finished = lambda span: offer(span) if span.start_ns >= born else None

    def start(self, plan: Plan, context: Context) -> tuple[Span, Context]:
        """A span below the context's current one, and the context in which it is current."""
        parent = context.get(SPAN_KEY)
        if type(parent) is Span:
            scope: Any = context.get(SCOPE_KEY, EMPTY)
            if plan.scope:
                scope = scope.joined(plan.scope)
            span = Span(plan, self, parent.trace_number, self.ids.span_id(), parent.span_number, scope, self.clock())
            span.sampled = parent.sampled
            span.trace_state = parent.trace_state
        else:
            scope = scope_in(context)
            if plan.scope:
                scope = scope.joined(plan.scope)
            span = self._local_root(plan, parent, scope)
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        return span, inside(context, span, span, scope)

    def _local_root(self, plan: Plan, parent: Any, scope: Scope) -> Span:
        """A span without a parent of ours: it joins a foreign or remote trace, or begins one."""
        foreign = parent.get_span_context() if isinstance(parent, trace.Span) else trace.INVALID_SPAN_CONTEXT
        joins = foreign.is_valid and (foreign.is_remote or not self._isolated)
        trace_number = foreign.trace_id if joins else self.ids.trace_id()
        parent_id = foreign.span_id if joins else 0
        span = Span(plan, self, trace_number, self.ids.span_id(), parent_id, scope, self.clock())
        span.sampled = self._sampler.samples(trace_number, foreign.trace_flags.sampled if joins else None)
        if joins:
            span.parent_is_remote = foreign.is_remote
            span.trace_state = foreign.trace_state.to_header()
        elif foreign.is_valid:
            span.add_link(foreign)
        return span

    def clean(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Event attributes after redaction."""
        redact = self.policy.redact
        return {k: redact(v, []) if isinstance(v, str) else v for k, v in attributes.items()}


class Sampler:
    """The OTEL_TRACES_SAMPLER choices: a share of traces, and whether a parent's decision is followed."""

    def __init__(self, ratio: float = 1.0, *, follow_parent: bool = True) -> None:
        self._bound = round(ratio * 2**64)
        self._follow_parent = follow_parent

    def samples(self, trace_number: int, parent_sampled: bool | None) -> bool:
        """Whether a trace is recorded; `parent_sampled` is None where there is no parent."""
        if parent_sampled is not None and self._follow_parent:
            return parent_sampled
        return (trace_number & 0xFFFFFFFFFFFFFFFF) < self._bound


_SPAN_KINDS = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}


class PulseTracer(trace.Tracer):
    """Our tracer under OpenTelemetry's interface, for other instrumentations."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

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
        """Start a span; the caller ends it."""
        plan = Plan(name=name, kind="", span_kind=_SPAN_KINDS.get(kind, 1), constants={})
        span, _ = self._tracer.start(plan, get_current() if context is None else context)
        span.start_ns = start_time or span.start_ns
        span.set_attributes(attributes or {})
        for link in links or ():
            span.add_link(link.context, link.attributes)
        return span

    def start_as_current_span(self, name: str, context: Context | None = None, *args: Any, **options: Any) -> Any:
        """Start a span that is current within a `with` block (or a decorated function)."""
        end_on_exit = options.pop("end_on_exit", True)
        behaviour = {key: options.get(key, True) for key in ("record_exception", "set_status_on_exception")}
        span = self.start_span(name, context, *args, **options)
        return trace.use_span(span, end_on_exit=end_on_exit, **behaviour)


class PulseTracerProvider(trace.TracerProvider):
    """Our own provider under OpenTelemetry's interface."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        """The one tracer there is: instrumentation scopes are not told apart."""
        return PulseTracer(self._tracer)
