"""A reader who leaves a streamed response, for the applications with a web server: starts the server and stops it."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_LIMIT_S = 60.0


def leave(command: list[str], folder: Path, stop: signal.Signals = signal.SIGTERM) -> None:
    """Starts a server (`PORT` in its command), reads the first words of `/`, leaves, and stops the server.

    The application makes the file `closed` when its stream has been closed.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and what it starts, ignores it
    closed = Path("closed")
    closed.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    paths = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    parts = [part.replace("PORT", str(port)) for part in command]
    server = subprocess.Popen(parts, env={**os.environ, "PYTHONPATH": paths})
    try:
        _wait(lambda: _reads(port))
        _wait(closed.exists)
    finally:
        server.send_signal(stop)
        server.wait(_LIMIT_S)


def _reads(port: int) -> bool:
    """Whether the server answered; its listening socket may be there before it is."""
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), _LIMIT_S) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            while b"Paris" not in received and (part := reader.recv(4096)):
                received += part
    except ConnectionError:
        return False
    return b"Paris" in received


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not until():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)
