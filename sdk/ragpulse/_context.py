"""Entering and leaving an OpenTelemetry context, without the layers above the context variable where they are known."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from opentelemetry import context as otel
from opentelemetry.context import Context

enter: Callable[[Context], Token[Context]] = otel.attach
"""Make a context current; the token restores the one before."""
current: Callable[[], Context] = otel.get_current
"""The current context."""
restore: Callable[[Token[Context]], Any] = otel.detach
"""Put back what was current before; only where it was entered."""

_variable = getattr(getattr(otel, "_RUNTIME_CONTEXT", None), "_current_context", None)
if isinstance(_variable, ContextVar):
    enter, current, restore = _variable.set, _variable.get, _variable.reset


def leave(token: Token[Context]) -> None:
    """Restore the context before; a step that was entered elsewhere (an abandoned coroutine) has nothing to restore."""
    try:  # noqa: SIM105 - on the path of every call; `suppress` costs more than the rest of this function
        restore(token)
    except ValueError:
        pass
