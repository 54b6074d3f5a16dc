"""OTLP/gRPC beside HTTP: the receiver on an event loop and thread of its own, so that neither waits for the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpulse_collector.settings import CollectorSettings

if TYPE_CHECKING:
    from ragpulse_collector.receiver_grpc import GrpcReceiver

STOP_AFTER_S = 5.0


def credentials(settings: CollectorSettings) -> Any:
    """Return gRPC's side of the TLS settings, None where there are none; raises OSError for unreadable files."""
    if not (settings.tls_certificate and settings.tls_key):
        return None
    import grpc

    pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes())
    return grpc.ssl_server_credentials([pair])


class GrpcServer:
    """Starts and stops the receiver; `port` is the one bound."""

    def __init__(self, make: Callable[[], GrpcReceiver]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ragpulse-grpc", daemon=True)
        self._receiver: GrpcReceiver | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises OSError with the fix when the port is taken."""
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout=10)

    def stop(self) -> None:
        """Let calls in hand finish, then end the thread."""
        if self._receiver is not None:
            asyncio.run_coroutine_threadsafe(self._receiver.stop(STOP_AFTER_S), self._loop).result(STOP_AFTER_S + 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    async def _start(self) -> int:
        self._receiver = self._make()
        return await self._receiver.start()
