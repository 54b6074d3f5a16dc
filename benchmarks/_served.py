"""A real `ragpulse serve` process under a benchmark: started, measured from outside, stopped."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

AS_INSTALLED = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed package has its bytecode: without it every start compiles every source file, which doubles its time."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, system time included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Server:
    """One process on a free port; `first_200_s` is the time from its start to its first answer."""

    def __init__(self, db: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        command = [sys.executable, "-m", "ragpulse_collector", "serve", "--db", str(db), "--port", str(self.port)]
        log = db.with_suffix(".log")
        begun = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, *arguments], stdout=subprocess.DEVNULL, stderr=errors, env=AS_INSTALLED | dict(environ or {})
            )
        while not self._answers():
            if self._process.poll() is not None:
                raise SystemExit(f"the collector did not start: {log.read_text()[-500:]}")
            time.sleep(0.002)
        self.first_200_s = time.perf_counter() - begun
        if not self._listens():
            self.kill()
            raise SystemExit(f"port {self.port} went to another process before the collector had it: run again")

    @property
    def pid(self) -> int:
        return self._process.pid

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is kept alive until closed."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def cpu_s(self) -> float:
        """CPU seconds used so far, system time included."""
        return cpu_s(self.pid)

    def memory_mb(self, which: str) -> float:
        """`VmRSS` (now) or `VmHWM` (peak) in MB of 2**20 bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(which)).split()[1]) / 1024

    def open_files(self) -> int:
        """How many files and sockets it holds."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> float:
        """SIGTERM; return the seconds until it has ended."""
        begun = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=120)
        return time.perf_counter() - begun

    def _listens(self) -> bool:
        """Whether it is this process that has the port: another may have taken it since it was found free."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{self.port:04X}")}
        held = set()
        for file in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                held.add(os.readlink(file))
        return bool(held & listening)

    def _answers(self) -> bool:
        with closing(self.connection()) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
            except OSError:
                return False
