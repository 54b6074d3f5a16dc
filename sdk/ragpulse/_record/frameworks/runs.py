"""Which span of a framework encloses a line of code, where the framework does not make its spans current.

LangChain's instrumentation works by callbacks, and gives each span its parent by LangChain's own tree of runs. So a
decorated function within a run would not know the run, and the run of a model below it would not know the function: the
call's tokens would be counted twice. Both are joined here: a decorated function starts below the current run, and a run
starts below a decorated function that is itself below the run's parent.
"""

import sys
import threading
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context

from ragpulse._guard import GUARD
from ragpulse._record.otel import RECORDING_KEY, SPAN_KEY, current

_BY_CALLBACKS = "openinference.instrumentation.langchain"
"""The instrumentation (the name of its tracer and of its module) whose spans are never current; it has a public
`get_current_span()`. `tests/sdk/test_assumptions.py` runs the genuine one."""
_MAX_OPEN = 1024


class _Run(NamedTuple):
    """An open span of that instrumentation, on our provider or on the application's."""

    task: object
    span: Any
    above: Any
    """The span above it: the application's spans only know its number."""

    def get_span_context(self) -> trace.SpanContext:
        """The span's identity."""
        identity: trace.SpanContext = self.span.get_span_context()
        return identity


class _Runs:
    """The open runs of this process."""

    def __init__(self) -> None:
        self._open: dict[int, _Run] = {}
        self._lock = threading.Lock()

    def started(self, library: Any, span: Any, context: Context) -> None:
        """Remembers a run's span until it ends."""
        if library.name == _BY_CALLBACKS:
            with self._lock:
                self._open[_number(span)] = _Run(_task_key(), span, context.get(SPAN_KEY))

    def context_of_call(self, context: Context) -> Context:
        """The context for a decorated function's span: below the current run, if that is below the current span."""
        if _BY_CALLBACKS not in sys.modules:
            return context
        top = self._innermost(context)
        nearest = None if top is None else self._below(top) or top
        return context if nearest is None else Context({**context, SPAN_KEY: nearest})

    def context_of_library(self, library: Any, given: Context | None) -> Context:
        """The context for another library's span, which may name the span above it."""
        context = current()
        if given is not None and not self._is_below(context.get(RECORDING_KEY), given.get(SPAN_KEY)):
            context = given
        if not self._open or library.name == _BY_CALLBACKS:
            return context
        top = self._innermost(context)
        # Callbacks of async calls run in other threads. Without a span above nothing tells two requests apart.
        nearest = self._below(top) or (None if top is None else self._below(top, everywhere=True) or top)
        return context if nearest is None else Context({**context, SPAN_KEY: nearest})

    def _innermost(self, context: Context) -> Any:
        """The current span, or LangChain's current run if that is below it."""
        span, run = context.get(SPAN_KEY), self._current_run()
        return run.span if run is not None and (not _number(span) or self._is_below(run, span)) else span

    def _current_run(self) -> _Run | None:
        """The open span of the run that LangChain's own context names, which follows async calls."""
        module: Any = sys.modules.get(_BY_CALLBACKS)
        span: Any = None
        with GUARD.containing("the span of LangChain's current run"):
            span = module.get_current_span() if module else None
        if span is None or not span.is_recording():
            return None
        return self._open.get(_number(span)) or _Run(None, span, None)  # begun before we watched its provider

    def _below(self, top: Any, *, everywhere: bool = False) -> Any:
        """The newest open run below a span: of this task, as code within it runs, or of any."""
        task = _task_key()
        with self._lock:
            still_open = [item for item in self._open.items() if item[1].span.is_recording()]
            self._open = dict(still_open[-_MAX_OPEN:])
            runs = [run for run in reversed(self._open.values()) if everywhere or run.task == task]
        return next((run.span for run in runs if top is None or self._is_below(run, top)), None)

    def _is_below(self, span: Any, top: Any) -> bool:
        """Whether `top` is the span or one above it; a run and each recording of ours know the span above."""
        number = _number(top)
        while number and span is not None:
            if _number(span) == number:
                return True
            span = self._open.get(_number(span), span)
            span = getattr(span, "above", None)
        return False


RUNS = _Runs()


def _number(span: Any) -> int:
    return 0 if span is None else int(span.get_span_context().span_id)


def _task_key() -> tuple[int, int]:
    """This thread and the running asyncio task, if there is one."""
    asyncio = sys.modules.get("asyncio")
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)
