"""What this package assumes about OpenTelemetry's context beyond its documentation: the fast way to read and set it.

A stream enters and leaves a context at each item, and a call makes one with three entries at once. OpenTelemetry's
functions around the context variable take twice as long, and its functions that set one entry copy the context each.
`tests/sdk/test_assumptions.py` fails when one of these does not hold.
"""

from collections.abc import Callable
from contextvars import Token
from typing import Any

from opentelemetry import baggage
from opentelemetry import context as otel
from opentelemetry.context import Context, create_key
from opentelemetry.trace import INVALID_SPAN, set_span_in_context

enter: Callable[[Context], Token[Context]] = otel.attach
"""Makes a context current; the token restores the one before."""
current: Callable[[], Context] = otel.get_current
"""Returns the current context."""
restore: Callable[[Token[Context]], Any] = otel.detach
"""Restores the context before; only where it was entered."""

_token = otel.attach(otel.get_current())
if isinstance(_token, Token):
    # `Token.var` is Python's; that the token of `attach` is one is its annotation. `detach` would log an error where an
    # abandoned coroutine is closed.
    enter, current, restore = _token.var.set, _token.var.get, _token.var.reset
otel.detach(_token)


def leave(token: Token[Context]) -> None:
    """Restores the context before; does nothing for a step that was entered elsewhere (an abandoned coroutine)."""
    try:  # noqa: SIM105 - on the path of every call; `suppress` costs more than the rest of this function
        restore(token)
    except ValueError:
        pass


def leave_after(error: BaseException, token: Token[Context], context: Context) -> None:
    """Leaves the context that an error ended; an abandoned coroutine may be closed where it was never entered."""
    if not isinstance(error, GeneratorExit) or current() is context:
        leave(token)


def _only_key(context: Context) -> str:
    (key,) = context
    return key


SPAN_KEY = _only_key(set_span_in_context(INVALID_SPAN, Context()))
"""The key of the current span in a context."""
BAGGAGE_KEY = _only_key(baggage.set_baggage("probe", "", Context()))
"""The key of the baggage in a context."""
SCOPE_KEY = create_key("ragpulse-scope")
"""The key of the attributes that hold for every span below."""
RECORDING_KEY = create_key("ragpulse-recording")
"""The key of the innermost recording in a context; a span of another instrumentation may be current below it."""
