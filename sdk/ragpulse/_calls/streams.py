"""Records streams: a span lasts from the first step of a generator to its end, early close or error.

A generator function's wrapper returns a real (async) generator that drives the function's own, step by step; so does
the wrapper of a plain function that returned one. The span is current only while the source runs, never while its
consumer does, and the source's own context is put back at each step. `send`, `throw`, `close` and the returned value
pass through as `yield from` would pass them.

What the application gets behaves as what its function returned: a generator, an iterator of the same type
(`iterators`), or the very object (`client_streams`). An object with `__next__` of any other class, such as a cursor,
a file or a mock, is returned as it is.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from functools import lru_cache, partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from ragpulse._guard import GUARD
from ragpulse._record.call import RecordedCall
from ragpulse._record.otel import current, enter, leave, leave_after, restore
from ragpulse._record.recording import runs_call

from .client_streams import is_client_stream, observe
from .iterators import ITERATORS, recorded

_HELD = ("body_iterator", "response_gen")
"""Where a streaming response of Starlette, FastAPI or sse-starlette, and one of LlamaIndex, have their stream."""


@runs_call()
def drive(begin: Callable[[], RecordedCall], source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator that runs `source` under a span which starts at the first step."""
    call = begin()
    step = send = source.send
    write: Callable[[str], object] = len
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
                write(item)
                capacity -= len(item)
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


def _close(call: RecordedCall, source: Generator[Any, Any, Any]) -> None:
    token = enter(call.context)
    try:
        source.close()
    finally:
        restore(token)


# Not one loop for both: a generator cannot await, and a function for each step would cost more than the step records.
@runs_call()
async def adrive(begin: Callable[[], RecordedCall], source: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """An async generator that runs `source` under a span which starts at the first step."""
    call = begin()
    step = send = source.asend
    write: Callable[[str], object] = len
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
                leave_after(error, token, call.context)
                raise
            call.context = current()
            leave(token)
            if capacity > 0 and type(item) is str:
                write(item)
                capacity -= len(item)
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


async def _aclose(call: RecordedCall, source: AsyncGenerator[Any, Any]) -> None:
    token = enter(call.context)
    try:
        await source.aclose()
    finally:
        leave(token)


class _Begun:
    """The call of a generator that a plain function returned; it ends even if the generator is never started."""

    __slots__ = ("_call",)

    def __init__(self, call: RecordedCall) -> None:
        self._call = call

    def __call__(self) -> RecordedCall:
        return self._call

    def __del__(self) -> None:
        self._call.closed_early()


@runs_call()
async def awaited(call: RecordedCall, source: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that runs under the call's span."""
    token = enter(call.context)
    try:
        result = await source
    except BaseException as error:
        leave_after(error, token, call.context)
        call.failed(error)
        raise
    leave(token)
    return returned(call, result)


def returned(call: RecordedCall, result: Any) -> Any:
    """What the application gets for the result of a function; the call ends now, or when the stream is read."""
    cls: Any = type(result)
    try:
        way = _way_of(cls)
    except Exception as error:  # noqa: BLE001 - a class of the application that cannot be hashed or looked at
        way = _whole
        GUARD.contain("looking at a result's class", error)
    return way(call, result)


def _driven(driver: Callable[..., Any], call: RecordedCall, source: Any) -> Any:
    generator = driver(_Begun(call), source)
    generator.__name__, generator.__qualname__ = source.__name__, source.__qualname__
    return generator


@runs_call()
def _block(begin: Callable[[], RecordedCall], manager: Any) -> Generator[Any, None, None]:
    """Runs a manager, and the block that it is given to, under the call's span; what the block got is the result."""
    call = begin()
    with call.around(), manager as given:
        yield given
    call.finished(given)


@runs_call()
async def _ablock(begin: Callable[[], RecordedCall], manager: Any) -> AsyncGenerator[Any, None]:
    """As `_block`."""
    call = begin()
    with call.around():
        async with manager as given:
            yield given
    call.finished(given)


def _manager(block: Callable[..., Any], call: RecordedCall, manager: Any) -> Any:
    """A context manager that `contextlib` made of a generator, which is replaced."""
    manager.gen = block(_Begun(call), copy(manager))
    return manager


def _reply(call: RecordedCall, result: dict[str, Any]) -> dict[str, Any]:
    """A reply of boto3 may have a stream in it."""
    for part in result.values() if "ResponseMetadata" in result else ():
        if is_client_stream(type(part)):
            observe(call, part)
            return result
    call.finished(result)
    return result


def _holder(call: RecordedCall, result: Any) -> Any:
    """An object that may have a stream in an attribute, which is then replaced."""
    try:
        name = next((name for name in _HELD if name in vars(result)), "")
        source = _as_generator(getattr(result, name)) if name else None
    except Exception:  # noqa: BLE001 - no attributes, or an object that raises
        source = None
    if source is None:
        return _whole(call, result)
    call.owner = (lambda: result) if name == "response_gen" else None
    call.beside(result)
    setattr(result, name, returned(call, source))
    return result


def _as_generator(source: Any) -> Any:
    """A generator of the items of a stream; None of anything else."""
    if type(source) in (GeneratorType, AsyncGeneratorType):
        return source
    return (
        _pieces(source) if hasattr(source, "__next__") else _apieces(source) if hasattr(source, "__aiter__") else None
    )


def _pieces(source: Iterable[Any]) -> Generator[Any, None, None]:
    yield from source


async def _apieces(source: Any) -> AsyncGenerator[Any, None]:
    async for piece in source:
        yield piece


def _whole(call: RecordedCall, result: Any) -> Any:
    call.finished(result)
    return result


_WAYS: dict[type, Callable[[RecordedCall, Any], Any]] = {
    GeneratorType: partial(_driven, drive),
    AsyncGeneratorType: partial(_driven, adrive),
    CoroutineType: awaited,
    type(contextmanager(_pieces)(())): partial(_manager, _block),
    type(asynccontextmanager(_apieces)(None)): partial(_manager, _ablock),
    dict: _reply,
    **dict.fromkeys((str, list, tuple, type(None), int, float, bool, bytes), _whole),
    **dict.fromkeys(ITERATORS, recorded),
}


@lru_cache(maxsize=1024)
def _way_of(cls: type) -> Callable[[RecordedCall, Any], Any]:
    """How results of a class are recorded."""
    return _WAYS.get(cls) or (observe if is_client_stream(cls) else _holder)
