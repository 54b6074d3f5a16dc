"""The pages: what a person sees of the collector, rendered on the server over one JSON function.

    collector ── api("GET traces", params) ──▶ pages ──▶ templates ──▶ HTML (+ htmx, uPlot, own ES modules)

The collector mounts `routes(api)` and nothing here imports it: the seam is the JSON of `/api/v1`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from ragpulse_dashboards.mount import routes, standalone
    from ragpulse_dashboards.site import Api

__all__ = ["CONTENT_SECURITY_POLICY", "Api", "ApiError", "FieldError", "SecurityHeaders", "routes", "standalone"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
"""Prompts, contexts and answers are hostile text: templates escape them, and this policy is the second lock."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Headers of every page. The collector checks for every route which pages may send forms."""

_LAZY: Final = {"Api": "site", "routes": "mount", "standalone": "mount"}
"""Names whose modules load templates: a collector without pages does not import them."""


def __getattr__(name: str) -> Any:
    """Import a lazy name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


@dataclass(frozen=True, slots=True)
class FieldError:
    """A wrong parameter."""

    name: str
    detail: str


class ApiError(Exception):
    """An operation failed or was refused; `status` is the HTTP status, `message` says what to do.

    `headers` are those of its answer: `Retry-After` with `retry_after_s`. `errors` name each wrong parameter.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: int | None = None,
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = tuple(errors)
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


class SecurityHeaders:
    """ASGI middleware that adds the page headers to every response that does not set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; complete the headers on the way back."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
