"""`ragpulse serve` as a real process for tests: started on a free port, killed, stopped, started again on its file."""

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

START_WITHIN_S = 60.0


class Served:
    """One process; `url` once it answers, `output` and `errors` what it has printed so far."""

    def __init__(self, db: Path, *arguments: str) -> None:
        """Start it and wait until it answers; raises AssertionError with its words when it ends instead."""
        command = [sys.executable, "-m", "ragpulse_collector", "serve", "--db", str(db), "--port", "0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAGPULSE_")}
        self.process = subprocess.Popen(
            [*command, "--grpc-port", "0", *arguments],
            cwd=db.parent,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._kept: dict[str, list[str]] = {"stdout": [], "stderr": []}
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [self._reading("stdout", self.process.stdout), self._reading("stderr", self.process.stderr)]
        self.url = self._told_url()
        self._wait_until_it_answers()

    @property
    def output(self) -> str:
        """What it printed."""
        return "".join(self._kept["stdout"])

    @property
    def errors(self) -> str:
        """What it logged."""
        return "".join(self._kept["stderr"])

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._ended()

    def terminate(self) -> int:
        """Ask it to end and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait(timeout=60)
        for reader in self._readers:
            reader.join(timeout=10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def _reading(self, name: str, stream: IO[str]) -> threading.Thread:
        def read() -> None:
            for line in stream:
                self._kept[name].append(line)
                if name == "stdout":
                    self._lines.put(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return reader

    def _told_url(self) -> str:
        deadline = time.monotonic() + START_WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=0.1)
            except queue.Empty:
                continue
            if "ragpulse collector at " in line:
                return line.split()[3]
        self.process.kill()
        self._ended()
        raise AssertionError(f"it did not start: {self.errors}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                    return
            except OSError:
                time.sleep(0.02)  # bound, but not listening yet
        self.process.kill()
        self._ended()
        raise AssertionError(f"it does not answer: {self.errors}")
