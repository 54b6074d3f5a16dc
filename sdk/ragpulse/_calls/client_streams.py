"""Streams of model clients and frameworks, recorded in place: the application keeps the object that its client made.

The methods of a stream's class by which it is read and closed are replaced once. Where the object is one that a
decorated function returned, they record what they pass on; everywhere else they only call the original. So type,
equality, copies, pickling and every other method are those of the client.
"""

import functools
import inspect
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ragpulse._reading.openers import opened, whole_result
from ragpulse._record.call import RecordedCall
from ragpulse._record.recording import runs_call

Method = Callable[..., Any]
_CLIENTS = (
    "agents.", "agno.", "aiobotocore.", "anthropic.", "azure.ai.inference.", "botocore.eventstream.", "cerebras.",
    "cohere.", "dspy.", "fireworks.", "google.genai.", "groq.", "haystack.", "huggingface_hub.", "instructor.",
    "langchain", "langgraph.", "litellm.", "llama_index.", "mistralai.", "ollama.", "openai.", "openrouter.",
    "pydantic_ai.", "replicate.", "semantic_kernel.", "smolagents.", "strands.", "together.", "vertexai.", "xai_sdk.",
)  # fmt: skip
_INSTRUMENTATIONS = ("ddtrace.", "langfuse.", "langsmith.", "logfire.", "mlflow.", "openinference.", "opentelemetry.")
"""They put proxies around the streams of clients."""
_KNOWN = _CLIENTS + _INSTRUMENTATIONS
"""Packages whose streams are known. A stream of any other class is returned as it is, and its text is not recorded."""
_STEPS = ("__next__", "__anext__")
_ITERATORS = ("__iter__", "__aiter__")
_READERS = ("stream_events", "async_response_gen", "stream_text", "stream_output", "stream_response")
"""Methods of openai-agents, LlamaIndex and pydantic-ai that return the only iterator over a result."""
_PROPERTY = "response_gen"
"""As a method of `_READERS`, a property of LlamaIndex's chat engines."""
_ENTERING = ("__enter__", "__aenter__")
_CLOSING = ("close", "aclose", "__exit__", "__aexit__")


def is_client_stream(cls: type) -> bool:
    """Whether objects of a class are streams, or managers of streams, of a known client, framework or instrumentation.

    An iterator is one; a class that can be read otherwise is one if its name has `Stream` in it: pages, models of
    pydantic and whole answers of LlamaIndex can be iterated, too.
    """
    if not f"{cls.__module__}.".startswith(_KNOWN) or hasattr(cls, "model_fields"):
        return False
    if any([hasattr(cls, name) for name in _STEPS]):
        return True
    ways = (*_ITERATORS, *_READERS, *_ENTERING, _PROPERTY)
    return "Stream" in cls.__name__ and any([hasattr(cls, name) for name in ways])


def observe(call: RecordedCall, result: Any) -> Any:
    """Returns the stream itself; the call is recorded while it is read, and ends when it is read, closed or dropped."""
    stream = _innermost(result)
    cls: Any = type(stream)
    if _is_complete(stream):
        call.finished(stream)
        return result
    _replace_methods(cls)
    _Observation(call, stream)
    if any([hasattr(cls, name) for name in (*_READERS, _PROPERTY)]):
        call.owner = weakref.ref(stream)
        call.beside(stream)
    return result


def _is_complete(stream: Any) -> bool:
    """Whether it was read already, and has its result."""
    result = opened(stream)
    if result is None or result is stream:
        return False
    return bool(getattr(stream, "is_complete", getattr(stream, "result", None) is not None))


def _innermost(stream: Any) -> Any:
    """The client's own stream in the proxies of instrumentations: it is read, whichever of them is."""
    while type(stream).__module__.startswith(_INSTRUMENTATIONS):
        wrapped = getattr(stream, "__wrapped__", None)
        if not is_client_stream(type(wrapped)):
            break
        stream = wrapped
    return stream


class _Observation:
    """A client's stream and the call that records it."""

    __slots__ = ("_key", "_reading", "_stream", "call")

    def __init__(self, call: RecordedCall, stream: Any) -> None:
        self.call = call
        self._reading = False
        """While the stream reads itself: one method of it may call another."""
        self._key = id(stream)
        self._stream = weakref.ref(stream, self._dropped)
        _OBSERVED[self._key] = self

    def _dropped(self, _: Any) -> None:
        if _OBSERVED.get(self._key) is self:
            del _OBSERVED[self._key]
        self.call.closed_early()

    def is_idle(self) -> bool:
        """Whether the stream is being recorded, and no step of it is going on."""
        return not (self._reading or self.call.done)

    def ended(self) -> None:
        """The stream was read to its end; a run of openai-agents then has its result."""
        stream = self._stream()
        if whole_result(stream) is not None:
            self.call.finished(stream)
        else:
            self.call.ended()

    def next(self, step: Callable[[], Any]) -> Any:
        """Takes and records one item."""
        self._reading = True
        try:
            return self.call.next(step, self.ended)
        finally:
            self._reading = False

    async def anext(self, step: Callable[[], Any]) -> Any:
        """Takes and records one item."""
        self._reading = True
        try:
            return await self.call.anext(step, self.ended)
        finally:
            self._reading = False

    def items(self, source: Iterator[Any], only: bool) -> Iterator[Any]:
        """The items of an iterator over the stream. Unless it is the only one, the rest may follow after a `break`."""
        try:
            while True:
                try:
                    item = self.next(source.__next__)
                except StopIteration:
                    return
                yield item
        finally:
            getattr(source, "close", _nothing)()
            if only:
                self.call.closed_early()

    async def aitems(self, source: AsyncIterator[Any], only: bool) -> AsyncIterator[Any]:
        """As `items`."""
        try:
            while True:
                try:
                    item = await self.anext(source.__anext__)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if hasattr(source, "aclose"):
                await source.aclose()
            if only:
                self.call.closed_early()

    def entered(self, manager: Any, stream: Any) -> Any:
        """The stream that a manager gave: the request may only have been sent now."""
        if stream is not manager and is_client_stream(type(stream)):
            observe(self.call, stream)
        return stream

    def left(self, error: BaseException | None = None) -> None:
        """The stream was closed, or its block was left."""
        stream = self._stream()
        if error is None and _is_complete(stream):
            self.call.finished(stream)
        elif error is None or isinstance(stream, (Iterator, AsyncIterator)):
            self.call.closed_early()
        else:
            self.call.failed(error)


_OBSERVED: dict[int, _Observation] = {}
"""By the stream's identity, until it is dropped: streams need not be hashable."""


def _idle(stream: Any) -> _Observation | None:
    """The observation of a stream that is read or closed from outside; None for all other streams."""
    found = _OBSERVED.get(id(stream))
    return found if found is not None and found.is_idle() else None


def _nothing() -> None:
    pass


@functools.lru_cache(maxsize=1024)
def _replace_methods(cls: type) -> None:
    for names, record in _REPLACEMENTS.items():
        for name in names:
            original = inspect.getattr_static(cls, name, None)
            if original is not None and not hasattr(original, "_ragpulse") and callable(getattr(cls, name)):
                method = functools.wraps(original)(_recorded(record, original))
                method._ragpulse = True  # type: ignore[attr-defined]
                setattr(cls, name, method)
    _replace_property(cls)


def _replace_property(cls: type) -> None:
    found = inspect.getattr_static(cls, _PROPERTY, None)
    if isinstance(found, property) and found.fget is not None and not hasattr(found.fget, "_ragpulse"):
        getter: Any = functools.wraps(found.fget)(_recorded(_only_iterator, found.fget))
        getter._ragpulse = True
        setattr(cls, _PROPERTY, found.getter(getter))


Record = Callable[..., Any]
"""What a method does while its stream is recorded: from the observation, the original method, and its arguments."""


def _recorded(record: Record, original: Method) -> Method:
    def method(stream: Any, *args: Any, **kwargs: Any) -> Any:
        seen = _idle(stream)
        if seen is None:
            return original(stream, *args, **kwargs)
        return record(seen, original, stream, *args, **kwargs)

    return method


def _step(seen: _Observation, original: Method, stream: Any) -> Any:
    return seen.next(functools.partial(original, stream))


def _astep(seen: _Observation, original: Method, stream: Any) -> Any:
    return seen.anext(functools.partial(original, stream))


def _iterator(seen: _Observation, original: Method, stream: Any, *args: Any, **kwargs: Any) -> Any:
    return _items(seen, original(stream, *args, **kwargs), stream, only=False)


def _only_iterator(seen: _Observation, original: Method, stream: Any, *args: Any, **kwargs: Any) -> Any:
    return _items(seen, original(stream, *args, **kwargs), stream, only=True)


def _items(seen: _Observation, found: Any, stream: Any, *, only: bool) -> Any:
    if found is stream:
        return found
    return seen.aitems(found, only) if hasattr(found, "__anext__") else seen.items(found, only)


@runs_call()
def _enter(seen: _Observation, original: Method, manager: Any) -> Any:
    call = seen.call
    with call.within():
        return seen.entered(manager, original(manager))


@runs_call()
async def _aenter(seen: _Observation, original: Method, manager: Any) -> Any:
    call = seen.call
    with call.within():
        return seen.entered(manager, await original(manager))


def _close(seen: _Observation, original: Method, stream: Any, *args: Any, **kwargs: Any) -> Any:
    seen.left(*args[1:2])
    return original(stream, *args, **kwargs)


_REPLACEMENTS: dict[tuple[str, ...], Record] = {
    ("__next__",): _step,
    ("__anext__",): _astep,
    _ITERATORS: _iterator,
    _READERS: _only_iterator,
    ("__enter__",): _enter,
    ("__aenter__",): _aenter,
    _CLOSING: _close,
}
"""Names of methods → what they do for a stream that is recorded."""
