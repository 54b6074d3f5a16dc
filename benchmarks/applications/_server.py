"""A client that disconnects during a streamed response, for the applications with a web server."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_LIMIT_S = 60.0


def disconnect(command: list[str], folder: Path, stop: signal.Signals = signal.SIGTERM) -> None:
    """Start a server (`PORT` in its command), read the first words of `/`, disconnect, and stop the server.

    The application creates the file `closed` when its stream has been closed.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell and their children ignore it
    closed = Path("closed")
    closed.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    paths = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    parts = [part.replace("PORT", str(port)) for part in command]
    server = subprocess.Popen(parts, env={**os.environ, "PYTHONPATH": paths})
    try:
        wait(lambda: _reads(port))
        wait(closed.exists)
    finally:
        server.send_signal(stop)
        server.wait(_LIMIT_S)


def _reads(port: int) -> bool:
    """Whether the server answered; its socket may listen before it is ready."""
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), _LIMIT_S) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            while b"Paris" not in received and (part := reader.recv(4096)):
                received += part
    except ConnectionError:
        return False
    return b"Paris" in received


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.02)
