"""A real `ragpulse serve` process for a benchmark: started, asked, measured from outside, stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

AS_INSTALLED = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed package has its bytecode: without it every start compiles every source file, which doubles its time."""
GZIP_OTLP = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class HasConnection(Protocol):
    """A running collector, over a file or over the lake."""

    def connection(self) -> http.client.HTTPConnection: ...


class Process:
    """A server that answers `/healthz`; `first_200_s` is the time from its start to its first answer."""

    def __init__(
        self, command: Sequence[str], port: int, *, log: Path, environ: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self.port = port
        begun = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, env=AS_INSTALLED | dict(environ), cwd=cwd
            )
        while not self._answers():
            if self._process.poll() is not None:
                raise SystemExit(f"{' '.join(command[:4])} did not start: {log.read_text()[-500:]}")
            time.sleep(0.002)
        self.first_200_s = time.perf_counter() - begun

    @property
    def pid(self) -> int:
        return self._process.pid

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is kept alive until closed."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def cpu_s(self) -> float:
        """CPU seconds used so far, system time included."""
        return cpu_s(self.pid)

    def children_cpu_s(self) -> float:
        """CPU seconds of the processes that it started and that run."""
        return sum(map(cpu_s, self.children()))

    def children(self) -> list[int]:
        """The processes that it started and that run."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for thread in threads for child in thread.read_text().split()]

    def memory_mb(self, field: str) -> float:
        """`VmRSS` (now) or `VmHWM` (peak) in MB of 2**20 bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024

    def open_files(self) -> int:
        """The number of open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> float:
        """Send SIGTERM; return the seconds until the process has ended."""
        begun = time.perf_counter()
        self.terminate()
        self._process.wait(timeout=120)
        return time.perf_counter() - begun

    def _answers(self) -> bool:
        with closing(self.connection()) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
            except OSError:
                return False


class Server(Process):
    """One `ragpulse serve` over a file, on a free port."""

    def __init__(self, db: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        port = free_port()
        command = [sys.executable, "-m", "ragpulse_collector", "serve", "--db", str(db), "--port", str(port)]
        super().__init__([*command, *arguments], port, log=db.with_suffix(".log"), environ=environ or {})
        if not self._listens():
            self.kill()
            raise SystemExit(f"port {self.port} went to another process before the collector had it: run again")

    def _listens(self) -> bool:
        """Whether the port belongs to this process: another may have taken it before the start."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{self.port:04X}")}
        files = set()
        for file in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                files.add(os.readlink(file))
        return bool(files & listening)


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, system time included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def elapsed_s(run: Callable[[], object]) -> float:
    """Wall seconds of a call."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def get(connection: http.client.HTTPConnection, path: str) -> bytes:
    """Return the body of an answer; any other status than 200 ends the benchmark."""
    connection.request("GET", path)
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise SystemExit(f"GET {path}: {response.status} {content[:200]!r}")
    return content


def get_json(server: HasConnection, path: str) -> Any:
    """Return a JSON answer, read over a connection of its own."""
    with closing(server.connection()) as connection:
        return json.loads(get(connection, path))


def post_traces(connection: http.client.HTTPConnection, gzipped: bytes) -> http.client.HTTPResponse:
    """Send one gzip OTLP body; return the answer, read to its end."""
    connection.request("POST", "/v1/traces", gzipped, GZIP_OTLP)
    response = connection.getresponse()
    response.read()
    return response


def sql(server: HasConnection, query: str) -> list[list[Any]]:
    """Return the rows of a query, sent over a connection of its own."""
    with closing(server.connection()) as connection:
        connection.request("POST", "/api/v1/sql", json.dumps({"query": query}), {"Content-Type": "application/json"})
        rows: list[list[Any]] = json.loads(connection.getresponse().read())["rows"]
    return rows
