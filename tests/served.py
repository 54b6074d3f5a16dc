"""`ragpulse serve` as a real process for tests: started on a free port, killed, stopped, restarted on its file."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO

from forks import Forked

START_WITHIN_S = 60.0


class Served:
    """One process: its `url`, and its `output` and `errors` so far."""

    def __init__(self, db: Path, *arguments: str, python: str | Path | None = None) -> None:
        """Start it and wait until it answers; raises AssertionError with its log if it ends instead.

        It is a fork of a process that has imported the collector; a new process where its interpreter is named, or
        PYTHONPATH has another version of the product.
        """
        command = ["serve", "--db", str(db), "--port", "0", "--grpc-port", "0", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAGPULSE_")}
        self.process: subprocess.Popen[str] | Forked
        if python is None and "PYTHONPATH" not in environment:
            self.process = Forked(command, cwd=db.parent, env=environment)
        else:
            self.process = subprocess.Popen(
                [str(python or sys.executable), "-m", "ragpulse_collector", *command],
                cwd=db.parent,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._printed: dict[str, list[str]] = {"stdout": [], "stderr": []}
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [self._reader("stdout", self.process.stdout), self._reader("stderr", self.process.stderr)]
        self.url = self._printed_url()
        self._wait_until_healthy()

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return "".join(self._printed["stdout"])

    @property
    def errors(self) -> str:
        """Its log so far."""
        return "".join(self._printed["stderr"])

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._wait()

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _wait(self) -> int:
        code = self.process.wait(timeout=60)
        for reader in self._readers:
            reader.join(timeout=10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def _reader(self, name: str, stream: IO[str]) -> threading.Thread:
        def read() -> None:
            for line in stream:
                self._printed[name].append(line)
                if name == "stdout":
                    self._lines.put(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return reader

    def _printed_url(self) -> str:
        deadline = time.monotonic() + START_WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=0.1)
            except queue.Empty:
                continue
            if "ragpulse collector at " in line:
                return line.split()[3]
        self.kill()
        raise AssertionError(f"it did not start: {self.errors}")

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                    return
            except OSError:
                time.sleep(0.02)  # bound, but not listening yet
        self.kill()
        raise AssertionError(f"it does not answer: {self.errors}")
