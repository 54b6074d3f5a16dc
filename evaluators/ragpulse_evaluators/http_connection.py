"""One kept-alive HTTP/1.1 connection that asks one question at a time: a protocol, since streams cost twice as much."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

__all__ = ("Connection", "Reply", "connect")

_MAX_BODY = 32 * 1024 * 1024


@dataclass(eq=False)
class Reply:
    """A response as far as it has come; `feed` takes bytes, `complete` says whether more will come."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False
    _unread: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        """Take in what came; raises ValueError for what is no response, or one above 32 MB."""
        self._unread += data
        if not self.headers and not self._head():
            return
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunks()
        else:
            self.body += self._unread
            self._unread.clear()
            self.complete = len(self.body) >= self._length
        if len(self.body) > _MAX_BODY:
            raise ValueError("the reply is larger than 32 MB")

    def end(self) -> bool:
        """The server hung up: tells whether that was the end of a response."""
        self.complete = self.complete or (bool(self.headers) and self._length > _MAX_BODY)
        return self.complete

    @property
    def keeps_alive(self) -> bool:
        """Whether another question may follow on this connection."""
        return self._length <= _MAX_BODY and self.headers.get("connection", "").lower() != "close"

    @property
    def _length(self) -> int:
        """Bytes of the body; beyond all limits where only the end of the connection tells."""
        if self.headers.get("transfer-encoding"):
            return 0
        return int(self.headers.get("content-length", _MAX_BODY + 1))

    def _head(self) -> bool:
        end = self._unread.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = self._unread[:end].decode("latin-1").split("\r\n")
        del self._unread[: end + 4]
        self.status = int(first.split(" ", 2)[1])
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs} or {"": ""}
        return True

    def _chunks(self) -> None:
        """Take every whole chunk; the empty one is followed by trailers and a blank line."""
        while (end := self._unread.find(b"\r\n")) >= 0:
            size = int(self._unread[:end].split(b";")[0], 16)
            if not size:
                self.complete = self._unread.find(b"\r\n\r\n", end) >= 0
                return
            if len(self._unread) < end + 2 + size + 2:
                return
            self.body += self._unread[end + 2 : end + 2 + size]
            del self._unread[: end + 2 + size + 2]


class Connection(asyncio.Protocol):
    """Made by `connect`; not shared between questions under way."""

    used = False
    """True once a question was answered: the server may have closed it meanwhile."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._reply = Reply()
        self._answered: asyncio.Future[Reply] | None = None

    async def ask(self, request: bytes) -> Reply:
        """Send the bytes and wait for the whole response; raises OSError when the server hangs up, ValueError."""
        if self.closed:
            raise ConnectionResetError("the server closed the connection")
        self._reply, self._answered = Reply(), self.loop.create_future()
        self._transport.write(request)
        try:
            return await self._answered
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether it can no longer be asked."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of the protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of the protocol."""
        try:
            self._reply.feed(data)
        except ValueError as wrong:
            self._end(wrong)
        else:
            if self._reply.complete:
                self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of the protocol."""
        self._end(None if self._reply.end() else exc or ConnectionResetError("the server closed the connection"))

    def _end(self, error: Exception | None) -> None:
        answered, self._answered = self._answered, None
        if answered is None or answered.done():
            return
        if error is None:
            self.used = True
            answered.set_result(self._reply)
        else:
            answered.set_exception(error)


async def connect(host: str, port: int, *, tls: bool) -> Connection:
    """Open a connection; raises OSError."""
    context = ssl.create_default_context() if tls else None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, host, port, ssl=context)
    return connection
