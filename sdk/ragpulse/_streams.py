"""Records streams: a span lasts from the first step of a generator to its end, early close or error.

A generator function's wrapper returns a real (async) generator that drives the function's own, step by step; an
iterator that a plain function returned is wrapped by a proxy. Either way the span is current only while the source
runs, never while its consumer does, and the source's own context is put back at each step. `send`, `throw`, `close`
and the returned value pass through as `yield from` would pass them.
"""

import functools
import inspect
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from types import CoroutineType
from typing import Any

from ._reading.values import read
from ._record.call import Call
from ._record.scope import current, enter, leave, restore

_PLAIN = frozenset({str, dict, list, tuple, type(None), int, float, bool, bytes})


def is_stream(result: Any) -> bool:
    """Whether a function's result is to be consumed step by step; files are left alone."""
    cls = type(result)
    if cls in _PLAIN:
        return False
    if hasattr(cls, "__next__") or hasattr(cls, "__anext__"):
        return not isinstance(result, io.IOBase)
    return cls is CoroutineType or _is_streaming_response(result) or is_manager(cls)


def _is_streaming_response(result: Any) -> bool:
    """Whether it is a response of Starlette, FastAPI or sse-starlette whose body is streamed later."""
    return "body_iterator" in getattr(result, "__dict__", ())


def is_manager(cls: type) -> bool:
    """Whether a `with` block over the object gives a stream: `client.chat.completions.stream(...)` and its like."""
    return cls.__name__.endswith("StreamManager") and (hasattr(cls, "__enter__") or hasattr(cls, "__aenter__"))


def drive(begin: Callable[[], Call], source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator that runs `source` under a span which starts at the first step."""
    call = begin()
    step = send = source.send
    write: Callable[[str], int] = len
    capacity, value = 0, None
    try:
        while True:
            token = enter(call.context)
            try:
                item = step(value)
            except StopIteration as stop:
                call.ended()
                return stop.value
            finally:
                call.context = current()
                restore(token)
            if capacity > 0 and type(item) is str:
                capacity -= write(item)
            else:
                capacity, write = call.item(item), call.write
            try:
                value = yield item
                step = send
            except GeneratorExit:
                _close(call, source)
                raise
            except BaseException as error:  # noqa: BLE001 - what the consumer throws in belongs to the source
                step, value = source.throw, error
    except BaseException as error:
        call.failed(error)
        raise


def _close(call: Call, source: Generator[Any, Any, Any]) -> None:
    token = enter(call.context)
    try:
        source.close()
    finally:
        restore(token)


async def adrive(begin: Callable[[], Call], source: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """An async generator that runs `source` under a span which starts at the first step."""
    call = begin()
    step = send = source.asend
    write: Callable[[str], int] = len
    capacity, value = 0, None
    try:
        while True:
            token = enter(call.context)
            try:
                item = await step(value)
            except StopAsyncIteration:
                leave(token)
                call.ended()
                return
            except BaseException as error:
                call.release(token, error)
                raise
            call.context = current()
            leave(token)
            if capacity > 0 and type(item) is str:
                capacity -= write(item)
            else:
                capacity, write = call.item(item), call.write
            try:
                value = yield item
                step = send
            except GeneratorExit:
                await _aclose(call, source)
                raise
            except BaseException as error:  # noqa: BLE001 - what the consumer throws in belongs to the source
                step, value = source.athrow, error
    except BaseException as error:
        call.failed(error)
        raise


async def _aclose(call: Call, source: AsyncGenerator[Any, Any]) -> None:
    token = enter(call.context)
    try:
        await source.aclose()
    finally:
        leave(token)


def record_snapshot(call: Call, stream: Any, reply: Any = None) -> None:
    """Records the reply that a client's stream has put together so far, and the one that its method gave."""
    for snapshot in (read(stream, "current_message_snapshot"), read(stream, "current_completion_snapshot"), reply):
        if snapshot is not None and snapshot is not stream:
            call.whole(snapshot)


class _Proxy:
    """Wraps a stream and observes its steps; its class and all other attributes are those of the stream."""

    __slots__ = ("__weakref__", "_ragpulse_call", "_ragpulse_source")
    _STEPS = frozenset({"send", "throw"})
    _ASYNC_STEPS = frozenset({"asend", "athrow"})
    _CLOSERS = frozenset({"close", "aclose"})
    _WHOLE = ("get_final_", "until_done")
    """Methods of the clients' own streams: they read the source past the proxy."""

    def __init__(self, call: Call, source: Any) -> None:
        object.__setattr__(self, "_ragpulse_call", call)
        object.__setattr__(self, "_ragpulse_source", source)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._ragpulse_source)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._ragpulse_source, name)
        if name in self._STEPS:
            return lambda *args: self._step(attribute, args)
        if name in self._ASYNC_STEPS:
            return lambda *args: self._astep(attribute, args)
        if name in self._CLOSERS:
            self._ragpulse_call.closed_early()
        if name == "text_stream":
            return self._atexts(attribute) if hasattr(attribute, "__anext__") else self._texts(attribute)
        if name.startswith(self._WHOLE) and callable(attribute):
            return self._awhole(attribute) if inspect.iscoroutinefunction(attribute) else self._whole(attribute)
        return attribute

    def _texts(self, texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            self._ragpulse_call.item(text)
            yield text
        self._finish()

    async def _atexts(self, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        async for text in texts:
            self._ragpulse_call.item(text)
            yield text
        self._finish()

    def _whole(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def read_whole(*args: Any, **kwargs: Any) -> Any:
            reply = method(*args, **kwargs)
            self._finish(reply)
            return reply

        return read_whole

    def _awhole(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def read_whole(*args: Any, **kwargs: Any) -> Any:
            reply = await method(*args, **kwargs)
            self._finish(reply)
            return reply

        return read_whole

    def _finish(self, reply: Any = None) -> None:
        """The stream was read to its end by a method of its own."""
        record_snapshot(self._ragpulse_call, self._ragpulse_source, reply)
        self._ragpulse_call.ended()

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ragpulse_source, name, value)

    def __repr__(self) -> str:
        return repr(self._ragpulse_source)

    def _step(self, step: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        call = self._ragpulse_call
        with call.step(StopIteration):
            item = step(*args)
        call.item(item)
        return item

    async def _astep(self, step: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        call = self._ragpulse_call
        with call.step(StopAsyncIteration):
            item = await step(*args)
        call.item(item)
        return item

    def __enter__(self) -> Any:
        return self._stream_of(self._ragpulse_source.__enter__())

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> Any:
        self._leave(error)
        return self._ragpulse_source.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        return self._stream_of(await self._ragpulse_source.__aenter__())

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> Any:
        self._leave(error)
        return await self._ragpulse_source.__aexit__(kind, error, trace)

    def _stream_of(self, entered: Any) -> Any:
        if entered is self._ragpulse_source:
            return self
        return observed(self._ragpulse_call, entered) if is_stream(entered) else entered

    def _leave(self, error: BaseException | None) -> None:
        self._ragpulse_call.closed_early()

    def __del__(self) -> None:
        self._ragpulse_call.closed_early()


class _SyncProxy(_Proxy):
    __slots__ = ()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._step(self._ragpulse_source.__next__, ())


class _AsyncProxy(_Proxy):
    __slots__ = ()

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self._astep(self._ragpulse_source.__anext__, ())


class _DualProxy(_SyncProxy, _AsyncProxy):
    __slots__ = ()


class _Manager(_Proxy):
    """A manager of a stream; the call ends with its block, whichever way the stream was read."""

    __slots__ = ("_ragpulse_stream",)

    def __init__(self, call: Call, source: Any) -> None:
        super().__init__(call, source)
        object.__setattr__(self, "_ragpulse_stream", None)

    def _stream_of(self, entered: Any) -> Any:
        object.__setattr__(self, "_ragpulse_stream", entered)
        return super()._stream_of(entered)

    def _leave(self, error: BaseException | None) -> None:
        record_snapshot(self._ragpulse_call, self._ragpulse_stream)
        if error is None:
            self._ragpulse_call.closed_early()
        else:
            self._ragpulse_call.failed(error)


async def awaited(call: Call, source: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that runs under the call's span."""
    token = enter(call.context)
    try:
        result = await source
    except BaseException as error:
        call.release(token, error)
        call.failed(error)
        raise
    leave(token)
    if is_stream(result):
        return observed(call, result)
    call.finished(result)
    return result


def observed(call: Call, source: Any) -> Any:
    """The stream or coroutine that a plain function returned, with the call's span ending when it is read or closed."""
    if isinstance(source, CoroutineType):
        return awaited(call, source)
    if _is_streaming_response(source):
        source.body_iterator = observed(call, source.body_iterator)
        return source
    if is_manager(type(source)):
        return _Manager(call, source)
    if not hasattr(type(source), "__anext__"):
        return _SyncProxy(call, source)
    return (_DualProxy if hasattr(type(source), "__next__") else _AsyncProxy)(call, source)
