"""The listening side: sockets with clear errors, HTTP bounds that uvicorn lacks, an answer during the start, gRPC."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ragpulse_collector.api.http import MEDIA_TYPE, problem
from ragpulse_collector.settings import CollectorSettings

if TYPE_CHECKING:
    from ragpulse_collector.receiver_grpc import GrpcReceiver

_ALIVE = PlainTextResponse("ok\n")


class StartingApp:
    """ASGI: answers `/healthz` at once; every other request waits for the application to load."""

    def __init__(self, rest: Future[ASGIApp]) -> None:
        self._rest = rest
        self.changes = 0
        """Requests that may have changed something."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or wait and pass on."""
        self.changes += scope["method"] not in ("GET", "HEAD")
        if scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD"):
            return await _ALIVE(scope, receive, send)
        if not self._rest.done():
            await asyncio.shield(asyncio.wrap_future(self._rest))
        await self._rest.result()(scope, receive, send)


HEAD_WITHIN_S = 10.0
MAX_HEAD_BYTES = 64 * 1024
"""The limit of a head, trailers included, beyond the read in which it starts."""
UNREAD_WITHIN_S = 30.0
"""A client that reads nothing of its answer for this long (at most twice) is disconnected."""


RESERVED_FILES = 64
"""Descriptors for the store, judges, child processes and connections that are being accepted; half of a low limit."""
RESERVED_CONNECTIONS = 16
"""Connections beyond the most, for health and receiving alone."""
_BODY, _ANSWERED = 2, 3
_RESERVED_FOR = (b"/healthz", b"/readyz", b"/v1/", b"/api/public/otel/")
_FULL = Response(
    problem(503, "too many connections are open: ask again, or raise the limit of open files (ulimit -n)"),
    503,
    {"Retry-After": "10", "Connection": "close"},
    MEDIA_TYPE,
)


def most_connections() -> int:
    """Return how many connections the limit of open files allows; gRPC takes a quarter of them, HTTP the rest."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**31 - 1
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 - 1 if limit == resource.RLIM_INFINITY else limit - min(RESERVED_FILES, limit // 2)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol: a slow head is answered 408, a large one 431, and the connection is closed.

    A connection whose answer nobody reads is closed without an answer. Where open files run short, connections without
    a request are closed first, then those between two requests, then those whose body is the slowest.
    """

    head_within_s = HEAD_WITHIN_S
    unread_within_s = UNREAD_WITHIN_S
    _deadline: asyncio.TimerHandle | None = None
    """The timer of the head; None while no head is expected."""
    _head = 0
    """Bytes since the parser last reported a complete head or a piece of a body."""
    _watch: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes of answers in the write buffer at the last check."""
    _reads = False
    """Whether the client has read some of them since."""
    _active_at = 0.0
    """When the connection was made, or last received something."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._active_at = self.loop.time()
        self._make_room()
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
        """Parse, and refuse an oversized head."""
        self._head += len(data)
        self._active_at = self.loop.time()
        super().data_received(data)
        if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "the head of the request is too large")

    def on_message_begin(self) -> None:
        """Expect the rest of a head on a kept-alive connection."""
        super().on_message_begin()
        self._head = 0
        if self._deadline is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """End the limits of the head; the body has its own deadline."""
        self._head = 0
        self._end_head()
        is_full = len(self.connections) > self._most and not self.url.startswith(_RESERVED_FOR)
        self.app = _FULL if is_full else self.config.loaded_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body; the receiver counts it."""
        self._head = 0
        super().on_body(body)

    @property
    def _most(self) -> int:
        most = most_connections()
        return max(1, most - most // 4 - RESERVED_CONNECTIONS)

    def _use(self) -> tuple[float, ...]:
        """Return the order in which connections are closed; those whose answer is being made are not."""
        cycle = self.cycle
        use = 0 if cycle is None else 1 if cycle.response_complete else _BODY if cycle.more_body else _ANSWERED
        return use, self._active_at

    def _make_room(self) -> None:
        """Close connections of the least use, where too many are open: this one, where all others are answered."""
        most = self._most
        if len(self.connections) <= most:
            return
        others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        others = [one for one in others if not one.transport.is_closing()]
        if len(others) >= most + RESERVED_CONNECTIONS:
            least = min(others, key=BoundedProtocol._use)
            (least if least._use() < (_ANSWERED,) else self).transport.abort()
        elif len(others) >= most:
            read_before = self.loop.time() - 0.1  # the request of a newer one may be on its way
            least_use = min(one._use()[0] for one in others)
            idle = [one for one in others if one._use()[0] == least_use < _BODY and one._active_at < read_before]
            for one in sorted(idle, key=BoundedProtocol._use)[: len(others) + 1 - most]:
                one.transport.abort()

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
        body = problem(status, message)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


KEEP_ALIVE_S = 75
GRACE_S = 3
BACKLOG, ACCEPTED_AT_ONCE = 512, 8
"""asyncio accepts as many connections as its backlog says before it looks at the first: descriptors would run out."""
_OWN_PORT = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
"""On Windows SO_REUSEADDR would let a second process take the port of a running one."""


class PortInUse(OSError):
    """The port is in use; the message names the likely owner and the fix."""


def bind(host: str, port: int) -> socket.socket:
    """Bind and listen; raises PortInUse or OSError with the fix.

    A port that is only bound is still free for another process: of two that start together both would go on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named asyncio turns the Nagle delay off: the second packet of an answer would wait 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, _OWN_PORT, 1)
    try:
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use, probably by an OpenTelemetry Collector or another ragpulse: "
                f"stop it, or choose another with --port {port + 1} (and RAGPULSE_URL for the application)"
            ) from error
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listening.set_inheritable(True)
    return listening


class _Server(uvicorn.Server):
    """Calls `listening` when it accepts requests, `signalled` at SIGTERM, and `stopping` when it starts to stop."""

    listening: Callable[[], object] = staticmethod(lambda: None)
    signalled: Callable[[], object] = staticmethod(lambda: None)
    stopping: Callable[[], object] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)
        self.listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signalled()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopping()
        await super().shutdown(sockets)


class Server:
    """uvicorn over a socket that is already bound."""

    def __init__(
        self, app: ASGIApp, listening: socket.socket, settings: CollectorSettings, *, stopping: Callable[[], object]
    ) -> None:
        """`stopping` is called on the event loop, before the server waits for running requests."""
        self._socket = listening
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a header must not decide who the client is
            lifespan="off",
            http=BoundedProtocol,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=ACCEPTED_AT_ONCE,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )
        self._server = _Server(self._config)
        self._server.stopping = stopping
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that was bound (useful with port 0)."""
        return int(self._socket.getsockname()[1])

    def run(self, listening: Callable[[], object], signalled: Callable[[], object]) -> None:
        """Serve in this thread until SIGINT or SIGTERM, then return.

        `listening` is called on the event loop, once requests are accepted; `signalled` when the signal comes.
        """
        self._server.signalled = signalled
        self._server.listening = listening
        # uvicorn raises the signal again once it has stopped: without a handler the process would end too early.
        former = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._server.run(sockets=[self._socket])
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Serve in a background thread (demo, tests); returns once requests are accepted."""
        started = threading.Event()
        self._server.listening = started.set
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="ragpulse-http", daemon=True
        )
        self._thread.start()
        started.wait(timeout=30)

    def end(self) -> None:
        """Let `run` return."""
        self._server.should_exit = True

    def stop(self) -> None:
        """Stop accepting, and let running requests finish."""
        self.end()
        if self._thread is not None:
            self._thread.join(timeout=GRACE_S + 5)
        self._socket.close()


STOP_AFTER_S = 1.0


def credentials(settings: CollectorSettings) -> Any:
    """Return the TLS settings for gRPC, None without TLS; raises OSError for unreadable files."""
    if not (settings.tls_certificate and settings.tls_key):
        return None
    import grpc

    pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes())
    return grpc.ssl_server_credentials([pair])


class GrpcServer:
    """OTLP/gRPC on an event loop and thread of its own: neither it nor HTTP waits for the other."""

    def __init__(self, make: Callable[[], GrpcReceiver]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ragpulse-grpc", daemon=True)
        self._receiver: GrpcReceiver | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises OSError with the fix where the port is in use."""
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout=10)

    def stop(self) -> None:
        """Let running calls finish, then end the thread."""
        if self._receiver is not None:
            asyncio.run_coroutine_threadsafe(self._receiver.stop(STOP_AFTER_S), self._loop).result(STOP_AFTER_S + 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    async def _start(self) -> int:
        self._receiver = self._make()
        return await self._receiver.start()
