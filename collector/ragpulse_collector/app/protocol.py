"""HTTP/1.1 with bounds that uvicorn does not set: on a request's head, and on how long an answer waits to be read.

Without them a client that dribbles its headers keeps a connection for ever, one that never ends them fills the memory
(trailers included: whatever the parser has taken and not handed on counts), and so does one that asks and never reads.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ragpulse_collector.api.problems import MEDIA_TYPE, encoded

HEAD_WITHIN_S = 10.0
MAX_HEAD_BYTES = 64 * 1024
UNREAD_WITHIN_S = 30.0
"""A client that takes nothing of its answer for so long (twice that at most) is cut off."""


class _TooLarge(Exception):
    """The head is beyond its bound; the parser reports it as malformed."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol: a slow head is answered 408, a big one 431, and the connection is closed.

    A connection whose answer nobody reads is closed without a word.
    """

    head_within_s = HEAD_WITHIN_S
    unread_within_s = UNREAD_WITHIN_S
    _deadline: asyncio.TimerHandle | None = None
    _head = 0
    """Bytes of the headers of this request."""
    _held = 0
    """Bytes given to the parser since it last handed something on."""
    _watch: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes of answers that waited for the client at the last look."""
    _reads = False
    """Whether the client took some of them since."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._expect_head()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._head_is_here()
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Go on with an answer that the client had stopped reading for a while."""
        self._reads = True
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse a head that goes on and on."""
        self._held += len(data)
        super().data_received(data)
        if self._held > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "the head of the request is too large")

    def on_message_begin(self) -> None:
        """Expect the rest of a head that began on a connection kept alive."""
        super().on_message_begin()
        self._head = 0
        if self._deadline is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, as long as all of them stay small."""
        self._held = 0
        self._head += len(name) + len(value)
        if self._head > MAX_HEAD_BYTES:
            raise _TooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here: from now on the body's own deadlines count."""
        self._held = 0
        self._head_is_here()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here as a whole."""
        self._held = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed."""
        if self._head > MAX_HEAD_BYTES:
            self._refuse(431, "the head of the request is too large")
        else:
            super().send_400_response(msg)

    def _look_again(self) -> None:
        self._watch = self.loop.call_later(self.unread_within_s, self._look)

    def _look(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if self._unread and unread >= self._unread and not self._reads:
            self.transport.abort()
            return
        self._unread, self._reads = unread, False
        self._look_again()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_within_s, self._too_slow)

    def _head_is_here(self) -> None:
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
