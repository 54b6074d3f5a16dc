"""Request attributes and experiment options for the spans below; context across threads and services."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator, default_getter, default_setter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# The public module, loaded before the function takes its name in the package: a later import would bind it again.
from . import attributes as names
from ._export.batch import host_of
from ._guard import GUARD
from ._record.otel import RECORDING_KEY, current, enter, leave
from ._record.scope import (
    current_scope,
    scope_attributes,
    with_baggage,
    with_scope,
    without_identities,
)
from ._record.span import OwnSpan

_BAGGAGE = W3CBaggagePropagator()
_PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), _BAGGAGE])
_HOST_KEYS = ("server.address", "net.peer.name", "url.full", "http.url")


class ListedHosts(TextMapPropagator):
    """The global propagator with identities in the baggage of requests to listed hosts, and of no others."""

    def __init__(self, inner: TextMapPropagator) -> None:
        self.hosts: frozenset[str] = frozenset()
        self._inner = inner

    @property
    def fields(self) -> set[str]:
        """The headers that may be written."""
        return self._inner.fields | _BAGGAGE.fields

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = default_getter) -> Context:
        """As the propagator that was global before."""
        return self._inner.extract(carrier, context, getter)

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = default_setter) -> None:
        """As the propagator that was global before; then the baggage again for a listed host."""
        self._inner.inject(carrier, context, setter)
        with GUARD.containing("propagate_to="):
            context = current() if context is None else context
            host = _called_host(trace.get_current_span(context)) if self.hosts else ""
            if any(host == pattern or (pattern[:1] == "." and host.endswith(pattern)) for pattern in self.hosts):
                _BAGGAGE.inject(carrier, with_baggage(context), setter)


def _called_host(span: Any) -> str:
    """The host that a client's span calls, as HTTP instrumentations record it; empty for any other span."""
    if getattr(span, "kind", None) is not SpanKind.CLIENT:
        return ""
    # Of our own span what was set on it, whatever the content policy shows.
    attributes = (span.facts if isinstance(span, OwnSpan) else getattr(span, "attributes", None)) or {}
    return next((host_of(str(attributes[key])) for key in _HOST_KEYS if key in attributes), "")


def propagate_to(hosts: frozenset[str]) -> None:
    """Lists the hosts; for the first ones `ListedHosts` becomes the global propagator."""
    for propagator in _INSTALLED:
        propagator.hosts = hosts
    if hosts and not _INSTALLED:
        from opentelemetry import propagate  # looks at every installed package

        _INSTALLED.append(ListedHosts(propagate.get_global_textmap()))
        propagate.set_global_textmap(_INSTALLED[0])
        _INSTALLED[0].hosts = hosts


_INSTALLED: list[ListedHosts] = []


class Attributes:
    """`ragpulse.attributes(...)`: attributes of the request, for all spans below.

    The public module of attribute names has the same name, so its constants can be read here, too.
    """

    @contextmanager
    def __call__(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        prompt_name: str | None = None,
        prompt_version: str | None = None,
        variant: str | None = None,
    ) -> Iterator[None]:
        """A context manager (also usable as a decorator) that puts these on every span started within it.

        Session, user, prompt and variant also travel, as W3C baggage, in the headers that `inject` writes and to the
        hosts in `configure(propagate_to=)`; tags and metadata stay in this process.
        """
        context = current()
        with GUARD.containing("attributes"):
            more = scope_attributes(
                session_id=session_id,
                user_id=user_id,
                tags=tags,
                prompt_name=prompt_name,
                prompt_version=prompt_version,
                variant=variant,
            )
            context = with_scope(context, current_scope(context).with_attributes(more, metadata))
        with _within(context):
            yield

    def __getattr__(self, name: str) -> Any:
        return getattr(names, name)


attributes = Attributes()


@contextmanager
def _within(context: Context) -> Iterator[Context]:
    token = enter(context)
    try:
        yield context
    finally:
        leave(token)


def variant(name: str, by: object, options: Sequence[str] = ("a", "b"), weights: Sequence[float] | None = None) -> str:
    """The option of experiment `name` for the unit `by` (a user, a session): always the same one for the same unit.

    It is recorded on the current span and on all started below it from here on. Outside a recorded call it holds for
    the rest of the enclosing `attributes` block, task or thread. `weights` are relative shares.
    """
    option = assigned(name, by, options, weights)
    with GUARD.containing("variant"):
        facts = {names.VARIANT: option, f"{names.VARIANT_PREFIX}{name}": option}
        context = current()
        recording: Any = context.get(RECORDING_KEY)
        if recording is not None and recording.records:
            for key, value in facts.items():
                recording.put(key, value)
        # Not detached here: the enclosing decorated call restores its caller's context when it returns.
        enter(with_scope(context, current_scope(context).with_attributes(facts)))
    return option


def assigned(name: str, by: object, options: Sequence[str], weights: Sequence[float] | None) -> str:
    """The deterministic choice behind `variant`: a hash of experiment and unit as a point on the options' shares."""
    shares = list(weights) if weights is not None else [1.0] * len(options)
    if not options or len(shares) != len(options) or min(shares) < 0 or sum(shares) <= 0:
        raise ValueError("variant needs options, and as many non-negative weights of which one is positive")
    digest = hashlib.sha256(f"{name}\0{by}".encode("utf-8", "backslashreplace")).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64 * sum(shares)
    for option, share in zip(options, shares, strict=True):
        point -= share
        if point < 0:
            return option
    return options[-1]


class TracedExecutor(Executor):
    """An executor whose tasks run in the context of the line that submitted them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As the wrapped executor's, in the submitter's OpenTelemetry context."""
        context = current()

        def run() -> Any:
            with _within(context):
                return fn(*args, **kwargs)

        return self._executor.submit(run)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As the wrapped executor's."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def traced_executor(executor: Executor) -> Executor:
    """The executor (of threads) with the current context carried into its tasks; also for `loop.run_in_executor`."""
    processes = sys.modules.get("concurrent.futures.process")
    if processes is not None and isinstance(executor, processes.ProcessPoolExecutor):
        raise TypeError(
            "traced_executor() carries the context into threads, and this is a ProcessPoolExecutor: submit "
            "`ragpulse.inject({})` as an argument of the task, and open `with ragpulse.extract(headers):` in the task"
        )
    return TracedExecutor(executor)


def inject(headers: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Writes the current trace, session, user, prompt and variant into outgoing headers (traceparent and baggage)."""
    with GUARD.containing("inject"):
        _PROPAGATOR.inject(headers, with_baggage(current()))
    return headers


@contextmanager
def extract(headers: Mapping[str, str]) -> Iterator[Context]:
    """Continues the trace of incoming headers within the `with` block; yields the context."""
    context = current()
    with GUARD.containing("extract"):
        extracted = _PROPAGATOR.extract({str(key).lower(): str(value) for key, value in headers.items()})
        context = without_identities(extracted)
    with _within(context):
        yield context
