"""The public address: the headers of trusted proxies, and the path below which ragpulse is hosted."""

from __future__ import annotations

import ipaddress
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragpulse_collector.settings import CollectorSettings


class PublicAddress:
    """The outermost ASGI middleware: the others see the request as if the browser had sent it to `/`.

    - A proxy in `trusted_proxies` sets scheme and host (`X-Forwarded-Proto`, `X-Forwarded-Host`).
    - The root path is removed from the path of the request, where the proxy has not done so, and put in front of
      redirects.
    """

    def __init__(self, app: ASGIApp, settings: CollectorSettings) -> None:
        self._app, self._root = app, settings.root
        self._trusted = [ipaddress.ip_network(address, strict=False) for address in settings.trusted_proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = self._without_root(self._as_sent(scope))
        await self._app(scope, receive, partial(self._with_root, send) if self._root else send)

    def _as_sent(self, scope: Scope) -> Scope:
        """Return the request with the scheme and host of the browser, where a trusted proxy sent it."""
        if not self._trusts((scope.get("client") or ("",))[0]):
            return scope
        headers = Headers(scope=scope)
        host, scheme = _last(headers.get("x-forwarded-host")), _last(headers.get("x-forwarded-proto")).lower()
        raw = [(name, value) for name, value in scope["headers"] if name != b"host" or not host]
        return {
            **scope,
            "scheme": scheme if scheme in ("http", "https") else scope["scheme"],
            "headers": [*raw, *([(b"host", host.encode("latin-1"))] if host else [])],
        }

    def _trusts(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)

    def _without_root(self, scope: Scope) -> Scope:
        path, raw = scope["path"], scope.get("raw_path") or b""
        if not self._root or not (path + "/").startswith(self._root + "/"):
            return scope
        cut = len(self._root)
        return {**scope, "path": path[cut:] or "/", "raw_path": raw[cut:] or b"/"}

    async def _with_root(self, send: Send, message: Message) -> None:
        """Put the root path in front of a redirect to one of our own pages."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            location = headers.get("location", "")
            if location.startswith("/") and not location.startswith("//"):
                headers["location"] = self._root + location
        await send(message)


def _last(header: str | None) -> str:
    """Return the value of the nearest proxy: each appends its own."""
    return (header or "").rpartition(",")[2].strip()
