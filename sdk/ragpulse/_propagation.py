"""Request attributes and experiment options for the spans below; context across threads and services."""

import hashlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import attributes as names
from ._guard import GUARD
from ._record.scope import current, enter, leave, scope_attributes, scope_in, with_scope
from ._record.tracer import RECORDING_KEY

_PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


class Attributes:
    """`ragpulse.attributes(...)`: attributes of the request, for all spans below.

    The module of attribute names has the same name; its constants can be read here, too.
    """

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
    ) -> Any:
        """A context manager (also usable as a decorator) that puts these on every span started within it.

        Session, user, prompt and variant also travel to other services where the application propagates OpenTelemetry
        context (as W3C baggage, readable by them); tags and metadata stay in this process.
        """
        found = scope_attributes(
            session_id=session_id,
            user_id=user_id,
            tags=tags,
            prompt_name=prompt_name,
            prompt_version=prompt_version,
            variant=variant,
        )
        return _scoped(found, metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(names, name)


attributes = Attributes()


@contextmanager
def _scoped(found: dict[str, Any], metadata: Mapping[str, Any] | None) -> Iterator[None]:
    token = None
    try:
        context = current()
        token = enter(with_scope(context, scope_in(context).with_attributes(found, metadata)))
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("attributes", error)
    try:
        yield
    finally:
        if token is not None:
            leave(token)


def variant(name: str, by: object, options: Sequence[str] = ("a", "b"), weights: Sequence[float] | None = None) -> str:
    """The option of experiment `name` for the unit `by` (a user, a session): always the same one for the same unit.

    It is recorded on the current span and on all started below it from here on. Outside a recorded call it holds for
    the rest of the enclosing `attributes` block, task or thread. `weights` are relative shares.
    """
    chosen = assigned(name, by, options, weights)
    try:
        facts = {names.VARIANT: chosen, f"{names.VARIANT_PREFIX}{name}": chosen}
        context = current()
        recording: Any = context.get(RECORDING_KEY)
        if recording is not None and recording.records:
            for key, value in facts.items():
                recording.put(key, value)
        # Not detached here: the enclosing decorated call restores its caller's context when it returns.
        enter(with_scope(context, scope_in(context).with_attributes(facts)))
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("variant", error)
    return chosen


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
            token = enter(context)
            try:
                return fn(*args, **kwargs)
            finally:
                leave(token)

        return self._executor.submit(run)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As the wrapped executor's."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def traced_executor(executor: Executor) -> Executor:
    """The executor (of threads) with the current context carried into its tasks; also for `loop.run_in_executor`."""
    return TracedExecutor(executor)


def inject(headers: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Writes the current trace and request attributes into outgoing headers (W3C traceparent and baggage)."""
    try:
        _PROPAGATOR.inject(headers)
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("inject", error)
    return headers


@contextmanager
def extract(headers: Mapping[str, str]) -> Iterator[Context]:
    """Continues the trace of incoming headers within the `with` block; yields the context."""
    token = None
    context = current()
    try:
        context = _PROPAGATOR.extract({str(key).lower(): str(value) for key, value in headers.items()})
        token = enter(context)
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("extract", error)
    try:
        yield context
    finally:
        if token is not None:
            leave(token)
