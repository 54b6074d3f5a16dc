"""Starts spans on our own provider: identity, parentage, sampling and scope."""

import random
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context

from ragpulse import _names as names
from ragpulse._export import encoder
from ragpulse._export.encoder import Origin
from ragpulse._guard import GUARD, logger

from .content import ContentPolicy
from .frameworks.runs import RUNS
from .otel import BAGGAGE_KEY, RECORDING_KEY, SCOPE_KEY, SPAN_KEY
from .recording import SpanPlan
from .scope import EMPTY, RequestScope, scope_of, without_identities
from .span import OwnSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

SDK_VERSION = "0.2.0"


def context_within(context: Context, span: trace.Span, recording: Any, scope: RequestScope) -> Context:
    """`context` as it is within a recorded call."""
    if BAGGAGE_KEY in context:
        context = without_identities(context)
    return Context({**context, SPAN_KEY: span, RECORDING_KEY: recording, SCOPE_KEY: scope})


class Ids:
    """Random identities from our own generator, which `random.seed()` in the application does not affect."""

    def __init__(self) -> None:
        self._source = random.Random()
        self._bits = self._source.getrandbits

    def reseed(self) -> None:
        """Takes new entropy, as every forked child must."""
        self._source.seed()

    def trace_id(self) -> int:
        """128 random bits, not all zero."""
        return self._bits(128) or 1

    def span_id(self) -> int:
        """64 random bits, not all zero."""
        return self._bits(64) or 1


class TraceSampler:
    """The OTEL_TRACES_SAMPLER choices: a share of traces, and whether a parent's decision is followed."""

    def __init__(self, ratio: float = 1.0, *, follow_parent: bool = True) -> None:
        self._threshold = round((1 - ratio) * 2**56)
        self.follow_parent = follow_parent
        self.state = f"ot=th:{self._threshold:014x}".rstrip("0") if 0 < self._threshold < 2**56 else ""
        """The trace state of a trace that was chosen with a share below 1: OpenTelemetry's rejection threshold."""

    @classmethod
    def named(cls, name: str, argument: float) -> "TraceSampler":
        """The sampler that a value of OTEL_TRACES_SAMPLER and its argument name."""
        ratio = argument if name.endswith("traceidratio") else 0.0 if name.endswith("always_off") else 1.0
        return cls(min(max(ratio, 0.0), 1.0), follow_parent=name.startswith("parentbased"))

    def samples(self, trace_number: int, parent_sampled: bool | None) -> bool:
        """Whether a trace is recorded; `parent_sampled` is None where there is no parent."""
        if parent_sampled is not None and self.follow_parent:
            return parent_sampled
        return (trace_number & 0xFFFFFFFFFFFFFF) >= self._threshold


class Unsampled:
    """Counts calls that are not recorded because the caller's `traceparent` ends in `-00`, and logs the first."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """Counts one."""
        self.count += 1
        if self.count == 1:
            logger.warning("ragpulse: a request is not recorded: %s", UNSAMPLED)


UNSAMPLED = (
    "its traceparent says 'not sampled' (it ends in -00), which some load balancers write into every request; "
    "OTEL_TRACES_SAMPLER=always_on ignores that"
)


class Tracer:
    """Starts spans of our own, and hands finished ones to the exporter and to the provider's span processors."""

    def __init__(
        self,
        offer: Callable[[Any], None],
        *,
        policy: ContentPolicy,
        sampler: TraceSampler,
        resource: Mapping[str, Any],
        processors: list[Any] | None = None,
        isolated: bool = False,
        ids: Ids | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.policy = policy
        self.ids = ids or Ids()
        self.clock = clock
        self._processors = [] if processors is None else processors
        self._resource = resource
        self._encoded_resource = self._identified()
        self._offer = offer
        self._forked_ns = 0
        self._sampler = sampler
        self._isolated = isolated
        self.unsampled = Unsampled()

    def forked(self) -> None:
        """In a forked child: new identities; the parent sends the spans that were open."""
        self.ids.reseed()
        self._encoded_resource = self._identified()
        self._forked_ns = self.clock()

    def _identified(self) -> bytes:
        """The encoded resource, with an identity of this process unless it was given one."""
        return encoder.resource({names.SERVICE_INSTANCE_ID: str(uuid.uuid4()), **self._resource})

    def origin(self, path: str, library: Any = None) -> Origin:
        """What the records of this process are sent with; `library` made the span, where that was not us."""
        name, version = ("ragpulse", SDK_VERSION) if library is None else (library.name, library.version)
        return path, self._encoded_resource, encoder.scope(name, version)

    @cached_property
    def resource(self) -> "Resource":
        """The resource of this process as an object of the OpenTelemetry SDK."""
        from opentelemetry.sdk.resources import Resource

        return Resource(self._resource)

    @cached_property
    def library(self) -> "InstrumentationScope":
        """The instrumentation scope of decorated functions."""
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        return InstrumentationScope("ragpulse", SDK_VERSION)

    def start(self, plan: SpanPlan, context: Context) -> tuple[OwnSpan, Context]:
        """A span below the context's current one, and the context in which it is current."""
        context = RUNS.context_of_call(context)
        span = self.start_span(plan, context)
        if self._processors and span.sampled:
            self.started(span, context)
        return span, context_within(context, span, span, span.scope)

    def start_span(self, plan: SpanPlan, context: Context) -> OwnSpan:
        """A span below the context's current one, before the processors know of it."""
        parent = context.get(SPAN_KEY)
        if isinstance(parent, OwnSpan):  # or another library's proxy of one
            scope: Any = context.get(SCOPE_KEY, EMPTY)
            if plan.scope:
                scope = scope.joined(plan.scope)
            span = OwnSpan(
                plan, self, parent.trace_number, self.ids.span_id(), parent.span_number, scope, parent.sampled
            )
            span.trace_state = parent.trace_state
            if parent.start_ns < self._forked_ns:  # the parent stays in the process that this one was forked from
                span.parent_is_remote = True
        else:
            scope = scope_of(context, plan.scope)
            span = self._local_root(plan, parent, scope)
        span.above = parent
        if scope.metadata:
            span.put_text(names.METADATA, scope.metadata_json())
        return span

    def _local_root(self, plan: SpanPlan, parent: Any, scope: RequestScope) -> OwnSpan:
        """A span whose parent is not ours: it joins a foreign or remote trace, or begins one."""
        foreign = parent.get_span_context() if isinstance(parent, trace.Span) else trace.INVALID_SPAN_CONTEXT
        if not foreign.is_valid:
            return self._begun_trace(plan, scope)
        if not foreign.is_remote and self._isolated:
            span = self._begun_trace(plan, scope)
            span.add_link(foreign)
            return span
        sampled = self._sampler.samples(foreign.trace_id, foreign.trace_flags.sampled)
        if foreign.is_remote and not (sampled or foreign.trace_flags.sampled):
            self.unsampled.add()
        span = OwnSpan(plan, self, foreign.trace_id, self.ids.span_id(), foreign.span_id, scope, sampled)
        span.parent_is_remote = foreign.is_remote
        if self._sampler.follow_parent:
            span.trace_state = foreign.trace_state.to_header()
        else:
            entries = [f"{key}={value}" for key, value in foreign.trace_state.items() if key != "ot"]
            span.trace_state = ",".join(filter(None, [self._sampler.state, *entries]))
        return span

    def _begun_trace(self, plan: SpanPlan, scope: Any) -> OwnSpan:
        trace_number = self.ids.trace_id()
        sampled = self._sampler.samples(trace_number, None)
        span = OwnSpan(plan, self, trace_number, self.ids.span_id(), 0, scope, sampled)
        span.trace_state = self._sampler.state
        return span

    def started(self, span: OwnSpan, context: Context) -> None:
        """Calls `on_start` of the processors."""
        for processor in self._processors:
            with GUARD.containing("a span processor's on_start"):
                processor.on_start(span, parent_context=context)

    def finished(self, span: OwnSpan) -> None:
        """Queues a finished span and calls `on_end` of the processors."""
        if span.start_ns < self._forked_ns:
            return
        above = span.plan.recording
        if above is not None and span.facts:
            above.put_call(span.span_number, span.parent_id, span.facts)
        self._offer(span)
        if self._processors:
            readable = span.readable()
            for processor in self._processors:
                with GUARD.containing("a span processor's on_end"):
                    processor.on_end(readable)
