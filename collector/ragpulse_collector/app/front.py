"""The door that opens first: the process answers while the rest of it is still being made."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALIVE = b"ok\n"
_HEADERS = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(_ALIVE)).encode())]


class Front:
    """ASGI: `/healthz` is answered at once, every other request as soon as there is who answers it."""

    def __init__(self, rest: Future[ASGIApp]) -> None:
        self._rest = rest
        self.changes = 0
        """Requests that may have changed something."""
        self.waiting = 0
        """Requests whose answer has not begun."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or wait and pass on."""
        self.changes += scope["method"] not in ("GET", "HEAD")
        if scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": _ALIVE})
            return
        if not self._rest.done():
            await asyncio.shield(asyncio.wrap_future(self._rest))
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, counted until the answer begins: one that is streamed goes on for hours."""
        begun = False

        async def begin(message: Message) -> None:
            nonlocal begun
            self.waiting -= not begun
            begun = True
            await send(message)

        self.waiting += 1
        try:
            await self._rest.result()(scope, receive, begin)
        finally:
            self.waiting -= not begun
