"""Wrappers of decorated functions: each call is recorded and otherwise unchanged."""

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from ragpulse._record.call import STATE, begin
from ragpulse._record.capture import Capture
from ragpulse._record.otel import current, enter, leave
from ragpulse._record.recording import SpanPlan, runs_call

from .streams import adrive, awaited, drive, returned

Function = Callable[..., Any]


def is_generator(function: Function) -> bool:
    """Whether each call of the function is a stream."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def wrapper_of(function: Function, plan: SpanPlan, capture: Capture) -> Any:
    """The wrapper of a function: of the same kind (plain, async, generator), with its signature."""
    if inspect.isasyncgenfunction(function):
        return StreamFunction(function, plan, capture, adrive)
    if inspect.isgeneratorfunction(function):
        return StreamFunction(function, plan, capture, drive)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return _async(function, plan, capture)
    return _sync(function, plan, capture)


def _sync(function: Function, plan: SpanPlan, capture: Capture) -> Function:
    @functools.wraps(function)
    @runs_call()
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        starter = STATE.starter
        if starter is None:
            return function(*args, **kwargs)
        call = begin(starter, plan, capture, args, kwargs, current())
        token = enter(call.context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # whatever leaves the function ends its span, and is raised again
            leave(token)
            call.failed(error)
            raise
        leave(token)
        return returned(call, result)

    return wrapper


def _async(function: Function, plan: SpanPlan, capture: Capture) -> Function:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        starter = STATE.starter
        if starter is None:
            return await function(*args, **kwargs)
        call = begin(starter, plan, capture, args, kwargs, current())
        return await awaited(call, function(*args, **kwargs))

    return wrapper


class StreamFunction:
    """A decorated (async) generator function.

    An object rather than a function, so that the context is taken when it is called although nothing runs before the
    first step. `inspect.isgeneratorfunction` and `isasyncgenfunction` stay correct: they read `__code__`.
    """

    def __init__(self, function: Any, plan: SpanPlan, capture: Capture, driver: Callable[..., Any]) -> None:
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
