"""The decorators: `rag`, `retriever`, `llm` and so on; each may also open a `with` block."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MethodType, TracebackType
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from . import attributes as names
from ._guard import GUARD
from ._record.call import STATE, Call, begin
from ._record.capture import Capture, Declared
from ._record.recording import Plan, plan_for, snapshot_text
from ._record.scope import current, enter, leave, scope_attributes
from ._record.tracer import RECORDING_KEY
from ._record.usage import Usage, usage_facts
from ._streams import adrive, drive, is_stream, observed


class CurrentSpan:
    """A handle on one recorded call. Outside a span, and after its end, it does nothing."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    @property
    def trace_id(self) -> str:
        """32 hex digits, for `feedback`; empty outside a span."""
        return "" if self._recording is None else format(self._recording.get_span_context().trace_id, "032x")

    @property
    def span_id(self) -> str:
        """16 hex digits; empty outside a span."""
        return "" if self._recording is None else format(self._recording.get_span_context().span_id, "016x")

    def set(
        self,
        *,
        query: Any = None,
        response: Any = None,
        contexts: Any = None,
        model: str | None = None,
        usage: Usage | None = None,
        cost_usd: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Records what is given. It overrides what the decorator reads by itself."""
        recording = self._recording
        if recording is None or not recording.records:
            return
        try:
            if query is not None:
                recording.query = snapshot_text(query)
            if response is not None:
                recording.response = snapshot_text(response)
            if contexts is not None:
                recording.put_contexts(contexts)
            if model is not None:
                recording.put(names.REQUEST_MODEL, str(model))
            if usage is not None:
                recording.put_facts(usage_facts(usage))
            if cost_usd is not None:
                recording.put(names.COST_TOTAL, float(cost_usd))
            if metadata:
                recording.put_metadata(metadata)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("current_span().set", error)


def current_span() -> CurrentSpan:
    """The innermost recorded call that encloses this line; a handle that does nothing when there is none."""
    return CurrentSpan(current().get(RECORDING_KEY))


P = ParamSpec("P")
R = TypeVar("R")
_Function = Callable[..., Any]


class Decorator:
    """A kind of span with its options: apply it to a function, or open it with `with`."""

    def __init__(self, kind: str, name: str | None, options: Mapping[str, Any], declared: Declared) -> None:
        self._kind = kind
        self._name = name
        self._options = options
        self._declared = declared
        self._open: list[tuple[Call, Any]] = []

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The function, recorded; it behaves as before."""
        if isinstance(function, (classmethod, staticmethod)):
            return type(function)(self(function.__func__))
        try:
            name = self._name or getattr(function, "__qualname__", None) or type(function).__qualname__
            capture = Capture(function, self._kind, self._declared)
            return cast(Callable[P, R], _wrapper(function, self._plan(name), capture))
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain(f"decorating {function!r}", error)
            return function

    def _plan(self, name: str) -> Plan:
        return plan_for(self._kind, name, **self._options)

    def __enter__(self) -> CurrentSpan:
        plan = self._plan(self._name or self._kind)
        starter = STATE.starter
        if starter is None:
            return CurrentSpan(None)
        call = begin(starter, plan, _NOTHING, (), {}, current())
        self._open.append((call, enter(call.context)))
        return CurrentSpan(call.recording)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        call, token = self._open.pop()
        leave(token)
        if error is None:
            call.ended()
        else:
            call.failed(error)

    async def __aenter__(self) -> CurrentSpan:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


_NOTHING = Capture(lambda: None, "", Declared(capture_inputs=False, capture_outputs=False))


class Options(TypedDict, total=False):
    """The options of a decorator; each may be left out."""

    kind: str | None
    """The span's kind, for `span`: guardrail, evaluator, or a word of your own."""
    query: str | Callable[[Mapping[str, Any]], Any] | None
    """A parameter's name, or a function of the bound arguments."""
    contexts: Callable[[Any], Any] | None
    """From the result (of a stream: the list of its items) to the retrieved contexts."""
    response: Callable[[Any], Any] | None
    """From the result to the response."""
    usage: Callable[[Any], Any] | None
    """From the result to a `Usage`, or figures as a provider names them."""
    model: str | None
    provider: str | None
    data_source: str | None
    """Where a retriever searches."""
    prompt_name: str | None
    """On this span and all below it, as is `prompt_version`."""
    prompt_version: str | None
    capture_inputs: bool
    """False leaves this function's arguments out."""
    capture_outputs: bool
    """False leaves what it returns out."""


class Kind:
    """A decorator for one kind of span; use it bare, called with options, or in a `with` statement."""

    def __init__(self, kind: str, description: str) -> None:
        self._kind = kind
        self.__doc__ = description

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, function: str | None = None, /, name: str | None = None, **options: Unpack[Options]
    ) -> Decorator: ...

    def __call__(self, function: Any = None, /, name: str | None = None, **options: Unpack[Options]) -> Any:
        """The decorated function, or a decorator with these options."""
        named = function if isinstance(function, str) else name
        decorator = self._decorator(named, **options)
        return decorator if function is None or isinstance(function, str) else decorator(function)

    def _decorator(
        self,
        name: str | None,
        *,
        kind: str | None = None,
        prompt_name: str | None = None,
        prompt_version: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        data_source: str | None = None,
        **declared: Any,
    ) -> Decorator:
        scope = scope_attributes(prompt_name=prompt_name, prompt_version=prompt_version)
        constant = {"model": model, "provider": provider, "data_source": data_source, "scope": scope}
        return Decorator(kind or self._kind, name, constant, Declared(**declared))


rag: Final = Kind("rag", "The root of one answer: the query goes in, the response comes out.")
retriever: Final = Kind("retriever", "A search; what it returns becomes typed contexts.")
reranker: Final = Kind("reranker", "A reordering of contexts; what it returns supersedes what came in.")
embedding: Final = Kind("embedding", "A call of an embedding model; vectors are not recorded.")
llm: Final = Kind("llm", "A call of a language model; usage, model and finish reason are read from its result.")
tool: Final = Kind("tool", "A tool's call, with its arguments and result.")
agent: Final = Kind("agent", "A run of an agent.")
span: Final = Kind("chain", "Any other step; `kind=` names it.")


def _wrapper(function: _Function, plan: Plan, capture: Capture) -> Any:
    if inspect.isasyncgenfunction(function):
        return StreamFunction(function, plan, capture, adrive)
    if inspect.isgeneratorfunction(function):
        return StreamFunction(function, plan, capture, drive)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return _async(function, plan, capture)
    return _sync(function, plan, capture)


def _sync(function: _Function, plan: Plan, capture: Capture) -> _Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        starter = STATE.starter
        if starter is None:
            return function(*args, **kwargs)
        call = begin(starter, plan, capture, args, kwargs, current())
        token = enter(call.context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            leave(token)
            call.failed(error)
            raise
        leave(token)
        if is_stream(result):
            return observed(call, result)
        call.finished(result)
        return result

    return wrapper


def _async(function: _Function, plan: Plan, capture: Capture) -> _Function:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        starter = STATE.starter
        if starter is None:
            return await function(*args, **kwargs)
        call = begin(starter, plan, capture, args, kwargs, current())
        token = enter(call.context)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            call.release(token, error)
            call.failed(error)
            raise
        leave(token)
        if is_stream(result):
            return observed(call, result)
        call.finished(result)
        return result

    return wrapper


class StreamFunction:
    """A decorated (async) generator function.

    An object rather than a function, so that the context is taken when it is called although nothing runs before the
    first step. `inspect.isgeneratorfunction` and `isasyncgenfunction` stay correct: they read `__code__`.
    """

    def __init__(self, function: Any, plan: Plan, capture: Capture, driver: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        plainest = inspect.unwrap(functools.partial(function).func)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            if hasattr(plainest, name):
                setattr(self, name, getattr(plainest, name))
        self._function = function
        self._plan = plan
        self._capture = capture
        self._driver = driver

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        source = self._function(*args, **kwargs)
        starter = STATE.starter
        if starter is None:
            return source
        context = current()
        return self._driver(lambda: begin(starter, self._plan, self._capture, args, kwargs, context), source)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return str(self._function.__qualname__)

    def __repr__(self) -> str:
        return repr(self._function)
