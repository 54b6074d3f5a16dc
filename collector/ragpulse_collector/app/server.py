"""The listening side: sockets bound with clear errors, uvicorn over them, an orderly end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from ragpulse_collector.app.protocol import BoundedProtocol
from ragpulse_collector.settings import CollectorSettings

KEEP_ALIVE_S = 75
GRACE_S = 10
BACKLOG = 512


class PortInUse(OSError):
    """The port is taken; the message names the likely owner and the mend."""


def bind(host: str, port: int) -> socket.socket:
    """Listen; raises PortInUse or OSError with the mend.

    Bound alone the port would be taken by nobody yet: of two that start together both would go on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves the Nagle delay on: the second packet of an answer waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
    """Says when it listens, and when it begins to stop."""

    listening: Callable[[], object] = staticmethod(lambda: None)
    stopping: Callable[[], object] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopping()
        await super().shutdown(sockets)


class Server:
    """uvicorn over a socket that is already bound."""

    def __init__(
        self, app: ASGIApp, listening: socket.socket, settings: CollectorSettings, *, stopping: Callable[[], object]
    ) -> None:
        """`stopping` is called, on the event loop, before requests in hand are waited for."""
        self._socket = listening
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a header must not decide who is asking
            lifespan="off",
            http=BoundedProtocol,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=BACKLOG,
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

    def run(self, listening: Callable[[], object]) -> None:
        """Serve in this thread until SIGINT or SIGTERM; returns, so that the caller can drain.

        `listening` is called, on the event loop, once requests are accepted.
        """
        self._server.listening = listening
        # uvicorn raises the signal again once it has stopped: without a handler that would end the process undrained.
        former = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._server.run(sockets=[self._socket])
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Serve in a background thread (the demo and tests); returns once requests are accepted."""
        started = threading.Event()

        async def serve() -> None:
            task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
            while not self._server.started and not task.done():
                await asyncio.sleep(0.005)
            started.set()
            await task

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), name="ragpulse-http", daemon=True)
        self._thread.start()
        started.wait(timeout=30)

    def end(self) -> None:
        """Let `run` return."""
        self._server.should_exit = True

    def stop(self) -> None:
        """Stop accepting, let requests in hand finish."""
        self.end()
        if self._thread is not None:
            self._thread.join(timeout=GRACE_S + 5)
        self._socket.close()
