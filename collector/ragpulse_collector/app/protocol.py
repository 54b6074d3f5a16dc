"""HTTP/1.1 with bounds that uvicorn does not set: on a request's head, and on how long an answer waits to be read.

Without them a client that sends its headers slowly keeps a connection open for ever. A client whose headers never end
fills the memory, and so does a client that sends requests and never reads the answers.

uvicorn has no option for either. The subclass overrides methods of asyncio.Protocol and callbacks of httptools only.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ragpulse_collector.api.problems import MEDIA_TYPE, encoded

HEAD_WITHIN_S = 10.0
MAX_HEAD_BYTES = 64 * 1024
"""The bound on a head, trailers included, beyond the read that it began in."""
UNREAD_WITHIN_S = 30.0
"""A client that reads nothing of its answer for this long (twice that at most) is disconnected."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol: a slow head is answered 408, a large one 431, and the connection is closed.

    A connection whose answer nobody reads is closed without an answer.
    """

    head_within_s = HEAD_WITHIN_S
    unread_within_s = UNREAD_WITHIN_S
    _deadline: asyncio.TimerHandle | None = None
    """When the head must be complete; None while no head is expected."""
    _head = 0
    """Bytes given to the parser since it last reported a complete head or a piece of a body."""
    _watch: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes of answers in the write buffer at the last check."""
    _reads = False
    """Whether the client has read some of them since."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._expect_head()
        self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._end_head()
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Note that the client reads, and continue the answer."""
        self._reads = True
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse a head that is too large."""
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "the head of the request is too large")

    def on_message_begin(self) -> None:
        """Expect the rest of a head that began on a connection kept alive."""
        super().on_message_begin()
        self._head = 0
        if self._deadline is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """End the bounds on the head; the body has its own deadline."""
        self._head = 0
        self._end_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Accept a piece of the body, which is counted elsewhere."""
        self._head = 0
        super().on_body(body)

    def _check_later(self) -> None:
        self._watch = self.loop.call_later(self.unread_within_s, self._check)

    def _check(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if self._unread and unread >= self._unread and not self._reads:
            self.transport.abort()
            return
        self._unread, self._reads = unread, False
        self._check_later()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_within_s, self._too_slow)

    def _end_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._refuse(408, f"the head of the request did not arrive within {self.head_within_s:g} s")

    def _refuse(self, status: int, message: str) -> None:
        body = encoded(status, message)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
