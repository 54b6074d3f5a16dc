"""The decorators: `rag`, `retriever`, `llm` and so on; each may also open a `with` block."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from . import _names as names
from ._calls.wrappers import is_generator, wrapper_of
from ._guard import GUARD
from ._record.call import STATE, RecordedCall, begin
from ._record.capture import Capture, CaptureOptions, declared_usage
from ._record.frameworks.crews import CREWS
from ._record.otel import RECORDING_KEY, current, enter, leave
from ._record.recording import SpanPlan, left_withholding_block, plan_for, snapshot_text
from ._record.scope import scope_attributes


class CurrentSpan:
    """A handle on one recorded call. Outside a span, and after its end, it does nothing."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    @property
    def trace_id(self) -> str:
        """32 hex digits, for `feedback`; empty outside a span."""
        return format(self._identity().trace_id, "032x") if self._identity().is_valid else ""

    @property
    def span_id(self) -> str:
        """16 hex digits; empty outside a span."""
        return format(self._identity().span_id, "016x") if self._identity().is_valid else ""

    def _identity(self) -> SpanContext:
        context: SpanContext = INVALID_SPAN_CONTEXT if self._recording is None else self._recording.get_span_context()
        return context

    def set(
        self,
        *,
        query: Any = None,
        response: Any = None,
        contexts: Any = None,
        model: str | None = None,
        usage: object = None,
        cost_usd: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Records what is given. It overrides what the decorator reads by itself.

        `usage` is a `Usage`, or a provider's object or mapping of token counts.
        """
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
                recording.put_facts(declared_usage(usage))
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


@dataclass(eq=False)
class Decorator:
    """A kind of span with its options: apply it to a function, or open it with `with`."""

    _kind: str
    _name: str | None
    _options: Mapping[str, Any]
    _declared: CaptureOptions
    _open: list[tuple[RecordedCall, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"ragpulse.{self._kind if self._kind in names.OPERATIONS else 'span'}"

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Returns the function, recorded; it behaves as before."""
        _check_function(self, function)
        CREWS.listen()
        if isinstance(function, (classmethod, staticmethod)):
            return type(function)(self(function.__func__))
        try:
            name = self._name or getattr(function, "__qualname__", None) or type(function).__qualname__
            capture = Capture(function, self._kind, self._declared)
            return cast(Callable[P, R], wrapper_of(function, self._plan(name, streams=is_generator(function)), capture))
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain(f"decorating {function!r}", error)
            return function

    def _plan(self, name: str, *, streams: bool = False) -> SpanPlan:
        withholds = not (self._declared.capture_inputs and self._declared.capture_outputs)
        return plan_for(self._kind, name, withholds=withholds, streams=streams, **self._options)

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
            return
        if call.recording.plan.withholds and error.__traceback__ is not None:
            left_withholding_block(error)
        call.failed(error)

    async def __aenter__(self) -> CurrentSpan:
        return self.__enter__()

    async def __aexit__(self, *failure: Any) -> None:
        self.__exit__(*failure)


_NOTHING = Capture(lambda: None, "", CaptureOptions(capture_inputs=False, capture_outputs=False))


class Options(TypedDict, total=False):
    """The options of a decorator; each may be left out. `_HELP` describes them."""

    kind: str | None
    query: str | Callable[[Mapping[str, Any]], Any] | None
    contexts: str | Callable[[Any], Any] | None
    response: Callable[[Any], Any] | None
    usage: Callable[[Any], Any] | None
    model: str | None
    provider: str | None
    data_source: str | None
    index_version: str | None
    prompt_name: str | None
    prompt_version: str | None
    capture_inputs: bool
    capture_outputs: bool


_HELP = """{description}

Use it bare, with options, or as a block:

{example}

Options, each with its default:

name: str = the function's qualified name
    The span's name.
query: str | Callable[[Mapping[str, Any]], Any] = the parameter `query`, `question`, ..., else the first one
    A parameter's name, or a function of the bound arguments.
contexts: str | Callable[[Any], Any] = None
    The name of the field that has the text of a context, or a function from the result (of a stream: the list of its
    items) to the retrieved contexts.
response: Callable[[Any], Any] = None
    From the result to the response.
usage: Callable[[Any], Any] = None
    From the result to a `Usage`, or figures as a provider names them.
model: str = None
provider: str = None
data_source: str = None
index_version: str = None
    The model that is called, its provider, where a retriever searches, and the version of that index: sent as they are.
prompt_name: str = None
prompt_version: str = None
    On this span and on all below it.
capture_inputs: bool = True
capture_outputs: bool = True
    False leaves the function's arguments or its result out, and the texts of its exceptions.
kind: str = {kind!r}
    The span's kind: for `span`, a word such as `guardrail` or one of your own.

Arguments, results, exceptions and the signature of the function stay as they are."""
_EXAMPLE = """    @ragpulse.{name}
    def step(query: str) -> ...: ...

    @ragpulse.{name}(name="step", query="question", capture_outputs=False)
    async def step(other: int, question: str) -> ...: ...

    with ragpulse.{name}("step") as span:
        span.set(query="...", response="...")"""


class Kind:
    """A decorator for one kind of span; use it bare, called with options, or in a `with` statement."""

    def __init__(self, kind: str, description: str, name: str | None = None) -> None:
        self._kind = kind
        self._called = name or kind
        example = _EXAMPLE.format(name=self._called)
        self.__doc__ = _HELP.format(description=description, example=example, kind=kind)

    def __repr__(self) -> str:
        return f"ragpulse.{self._called}"

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, function: str | None = None, /, name: str | None = None, **options: Unpack[Options]
    ) -> Decorator: ...

    def __call__(self, function: Any = None, /, name: str | None = None, **options: Unpack[Options]) -> Any:
        """Returns the decorated function, or a decorator with these options."""
        _check_options(self, options)
        named = function if isinstance(function, str) else name
        decorator = self._decorator(named, {**options})
        if function is None or isinstance(function, str):
            return decorator
        return decorator(function)

    def _decorator(self, name: str | None, options: dict[str, Any]) -> Decorator:
        kind = options.pop("kind", None) or self._kind
        constant = {key: options.pop(key, None) for key in ("model", "provider", "data_source", "index_version")}
        prompt = {key: options.pop(key, None) for key in ("prompt_name", "prompt_version")}
        return Decorator(kind, name, {**constant, "scope": scope_attributes(**prompt)}, CaptureOptions(**options))


rag: Final = Kind("rag", "The root of one answer: the query goes in, the response comes out.")
retriever: Final = Kind("retriever", "A search; what it returns becomes typed contexts.")
reranker: Final = Kind("reranker", "A reordering of contexts; what it returns supersedes what came in.")
embedding: Final = Kind("embedding", "A call of an embedding model; vectors are not recorded.")
llm: Final = Kind("llm", "A call of a language model; usage, model and finish reason are read from its result.")
tool: Final = Kind("tool", "A tool's call, with its arguments and result.")
agent: Final = Kind("agent", "A run of an agent.")
span: Final = Kind("chain", "Any other step; `kind=` names it.", name="span")


def _check_options(kind: Kind, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that does not exist, with the nearest name."""
    for option in options.keys() - Options.__annotations__.keys():
        close = get_close_matches(option, ["name", *Options.__annotations__], 1)
        nearest = "".join(f" did you mean {near}=?" for near in close)
        raise TypeError(f"{kind!r} has no option {option}=:{nearest} help({kind!r}) lists them")


def _check_function(kind: object, function: Any) -> None:
    """Raises TypeError, with the fix, unless it is a function: a decorated class would no longer be a class."""
    if isinstance(function, type):
        raise TypeError(
            f"{kind!r} decorates functions, and {function.__qualname__} is a class: decorate its methods, for example "
            f"`@{kind!r}` above `def __call__` in {function.__qualname__}"
        )
    if isinstance(function, property):
        raise TypeError(f"{kind!r} decorates functions: put `@property` above `@{kind!r}`")
    if not callable(function) and not isinstance(function, (classmethod, staticmethod)):
        raise TypeError(
            f"{kind!r} decorates functions, and {function!r} is not one: write `@{kind!r}` above a function, or "
            f'`with {kind!r}("name"):`'
        )
