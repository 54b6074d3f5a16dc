"""`python -m ragpulse_collector` and `python -c` as forks of a process that has imported the collector.

Imports are two thirds of a start. A fork is a process of its own in all that tests look at: signals, descriptors,
limits, children, its end. This file is also the program of the process that is forked.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULES = (
    *(f"ragpulse_collector.{name}" for name in ("app.serve", "app.web", "app.wiring", "cli.serve")),
    "uvicorn.protocols.http.httptools_impl",
)
_WIDTH = 10
"""Bytes of each number that is told: a process id, then an exit code."""


class Forked:
    """What tests use of `subprocess.Popen`: its attributes and methods are named and behave like those."""

    def __init__(self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], code: str | None = None) -> None:
        """Start `python -m ragpulse_collector`, or `python -c` with code, with these arguments."""
        (out, out_end), (err, err_end), (self._told, told_end) = ends = [os.pipe() for _ in range(3)]
        order = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(env), "code": code}
        socket.send_fds(_nursery(), [json.dumps(order).encode()], [out_end, err_end, told_end])
        for _, end in ends:
            os.close(end)
        self.returncode: int | None = None
        self.pid = int(os.read(self._told, _WIDTH))
        self.stdout, self.stderr = (os.fdopen(end, encoding="utf-8") for end in (out, err))

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("ragpulse serve", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float | None) -> int | None:
        ready = select.poll()
        ready.register(self._told, select.POLLIN)
        if self.returncode is None and ready.poll(None if timeout is None else 1000 * timeout):
            self.returncode = int(os.read(self._told, _WIDTH))
            os.close(self._told)
        return self.returncode


def run(
    code: str, *arguments: str, timeout_s: float = 300, cwd: Path | None = None, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a program that prints little, as `python -c` does."""
    process = Forked(arguments, cwd=cwd or Path.cwd(), env=env, code=code)
    with process.stdout as out, process.stderr as err:
        return subprocess.CompletedProcess(arguments, process.wait(timeout_s), out.read(), err.read())


@cache
def _nursery() -> socket.socket:
    """Start the process that is forked, once for the tests of this process; it ends with them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)
    atexit.register(process.wait, 60)
    atexit.register(ours.close)  # runs first
    return ours


def _serve_forks(orders: socket.socket) -> str | None:
    """Fork for each order; returns its code in the forked process, which is set up as it asks."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 2**20, 3)
        if not descriptors:
            sys.exit()
        if os.fork() == 0:  # its keeper: it has this one child, and tells of its birth and end
            return _keep(orders, json.loads(order), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(orders: socket.socket, order: Mapping[str, Any], out: int, err: int, told: int) -> str | None:
    orders.close()
    if child := os.fork():
        os.close(out)
        os.close(err)
        os.write(told, f"{child:{_WIDTH}}".encode())
        os.write(told, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):{_WIDTH}}".encode())
        os._exit(0)
    for ours, usual in ((out, 1), (err, 2)):
        os.dup2(ours, usual)
        os.close(ours)
    os.close(told)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path.insert(0, os.getcwd())
    sys.argv[1:] = order["arguments"]
    code: str | None = order["code"]
    return code


if __name__ == "__main__":
    for module in _MODULES:
        import_module(module)
    program = _serve_forks(socket.socket(fileno=int(sys.argv[1])))
    if program is None:
        program = "import sys; from ragpulse_collector.__main__ import main; sys.exit(main())"
    exec(program, {"__name__": "__main__"})
