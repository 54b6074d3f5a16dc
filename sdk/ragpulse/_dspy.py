"""Usage of dspy's model calls, which OpenInference's instrumentation leaves out, on the spans that it makes of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from opentelemetry import trace

from ._reading.usage import usage_facts


def track_usage() -> None:
    """Wraps `LM` before the instrumentation does: its span is current then. A cached answer has no usage."""
    dspy = import_module("dspy")
    wrapt = import_module("wrapt")

    @contextmanager
    def tracked() -> Iterator[None]:
        with dspy.track_usage() as tracker:
            yield
        for usage in tracker.get_total_tokens().values():
            trace.get_current_span().set_attributes(usage_facts(usage))

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with tracked():
            return wrapped(*args, **kwargs)

    async def acall(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with tracked():
            return await wrapped(*args, **kwargs)

    if hasattr(dspy, "track_usage"):  # since 2.6
        wrapt.wrap_function_wrapper(dspy.LM, "__call__", call)
        wrapt.wrap_function_wrapper(dspy.LM, "acall", acall)
