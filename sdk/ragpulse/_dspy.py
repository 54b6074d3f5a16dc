"""Usage of dspy's model calls, which OpenInference's instrumentation leaves out, on the spans that it makes of them."""

from importlib import import_module
from typing import Any

from opentelemetry import trace

from ._reading.usage import usage_facts


def track_usage() -> None:
    """Wraps `LM` before the instrumentation does: its span is current then. A cached answer has no usage."""
    dspy = import_module("dspy")
    wrapt = import_module("wrapt")

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with dspy.track_usage() as tracker:
            result = wrapped(*args, **kwargs)
        _put(tracker.get_total_tokens())
        return result

    async def acall(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with dspy.track_usage() as tracker:
            result = await wrapped(*args, **kwargs)
        _put(tracker.get_total_tokens())
        return result

    if hasattr(dspy, "track_usage"):  # since 2.6
        wrapt.wrap_function_wrapper(dspy.LM, "__call__", call)
        wrapt.wrap_function_wrapper(dspy.LM, "acall", acall)


def _put(usage_of_models: dict[str, Any]) -> None:
    span = trace.get_current_span()
    for usage in usage_of_models.values():
        span.set_attributes(usage_facts(usage))
