"""Arize Phoenix beside ragpulse: the same gzip OTLP bodies, one after the other, into each server's own default store.

    python benchmarks/ingest_phoenix.py --phoenix ENV/bin/phoenix      # an environment with `pip install arize-phoenix`

Each server takes the bodies over four connections until every span can be counted in its database; then a fresh one is
killed (SIGKILL) while it receives, started again, and what it had acknowledged is counted. Prints both and the ratios.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import duckdb
from _payload import body
from _served import cpu_s

SPANS = 512
CONNECTIONS = 4
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}


@dataclass
class Peer:
    """A server under test: how to start it, and how to count what its database holds while it runs."""

    name: str
    command: Callable[[Path, int], list[str]]
    stored: Callable[[Path, int], int]
    database: str
    environment: Callable[[Path, int], dict[str, str]] = lambda place, port: {}


@dataclass
class Load:
    """Bodies on their way: what was acknowledged and how long each answer took."""

    waiting: deque[bytes]
    acks: list[float] = field(default_factory=list)

    def send(self, port: int) -> None:
        """Post the bodies one after another until none is left or the server is gone."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
            while self.waiting:
                try:
                    compressed = self.waiting.popleft()
                    begun = time.perf_counter()
                    while not _accepted(connection, compressed):
                        time.sleep(0.2)
                except (OSError, http.client.HTTPException, IndexError):
                    return
                self.acks.append(time.perf_counter() - begun)


def main() -> None:
    """Measure each server over the same bodies, then kill each while it receives."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--phoenix", default=shutil.which("phoenix"), help="Phoenix's command")
    arguments.add_argument("--bodies", type=int, default=16)
    options = arguments.parse_args()
    if not options.phoenix:
        print(
            "skipped: Phoenix is not installed (pip install arize-phoenix in an environment of its own, --phoenix PATH)"
        )
        return
    now = time.time_ns() - 3600 * 10**9
    made = [gzip.compress(body(SPANS, seed=n, start_ns=now + n * 10**8), 6) for n in range(options.bodies)]
    print(f"{len(made) * SPANS:,} spans in gzip bodies of {SPANS}, {CONNECTIONS} connections")
    figures = {peer.name: measure(peer, made) for peer in (_ragpulse(), _phoenix(options.phoenix))}
    ours, theirs = figures["ragpulse"], figures["phoenix"]
    told = ", ".join(f"{name} {theirs[name] / ours[name]:.1f} x" for name in ours if ours[name])
    print(f"phoenix / ragpulse: {told}")
    for peer in (_ragpulse(), _phoenix(options.phoenix)):
        killed(peer, made)


def measure(peer: Peer, bodies: list[bytes]) -> dict[str, float]:
    """Time from the first body until every span can be counted; CPU, memory and disk of the server for it."""
    with tempfile.TemporaryDirectory() as place:
        folder, port = Path(place), _free_port()
        server, started = _start(peer, folder, port)
        before, cpu, begun = peer.stored(folder, port), cpu_s(server.pid), time.perf_counter()
        load = _loaded(bodies, port)
        while peer.stored(folder, port) - before < len(bodies) * SPANS:
            time.sleep(0.02)
        wall, used = time.perf_counter() - begun, cpu_s(server.pid) - cpu
        peak = _memory_mb(server.pid)
        server.terminate()
        server.wait(timeout=60)
        size = _size(folder / peer.database)
    spans = len(bodies) * SPANS
    figures = {
        "seconds": wall, "CPU-s per 100,000 spans": used / spans * 1e5, "ack p50 ms": median(load.acks) * 1e3,
        "start s": started, "peak RSS MB": peak, "B/span": size / spans,
    }  # fmt: skip
    shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items() if name != "seconds")
    print(f"{peer.name}: {spans / wall:,.0f} spans/s until all could be counted, {shown}")
    return figures


def _size(database: Path) -> int:
    if database.suffix == ".duckdb":  # takes in the log that a stopping collector leaves to its next start
        with duckdb.connect(str(database)) as file:
            file.execute("CHECKPOINT")
    return database.stat().st_size


def killed(peer: Peer, bodies: list[bytes]) -> None:
    """SIGKILL after half of the answers; start again and count what had been acknowledged."""
    with tempfile.TemporaryDirectory() as place:
        folder, port = Path(place), _free_port()
        server, _ = _start(peer, folder, port)
        before, load = peer.stored(folder, port), Load(deque(bodies))
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in range(CONNECTIONS):
                pool.submit(load.send, port)
            while len(load.acks) < len(bodies) // 2:
                time.sleep(0.001)
            server.send_signal(signal.SIGKILL)
        server.wait()
        server, restarted = _start(peer, folder, port)
        acknowledged, kept = len(load.acks) * SPANS, peer.stored(folder, port) - before
        server.kill()
        server.wait()
    print(f"{peer.name}, killed: {acknowledged:,} spans acknowledged, {max(0, acknowledged - kept):,} of them lost, "
          f"answers again after {restarted:.1f} s")  # fmt: skip


def _loaded(bodies: list[bytes], port: int) -> Load:
    load = Load(deque(bodies))
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for sent in [pool.submit(load.send, port) for _ in range(CONNECTIONS)]:
            sent.result()
    assert len(load.acks) == len(bodies), "the server went away"
    return load


def _accepted(connection: http.client.HTTPConnection, compressed: bytes) -> bool:
    connection.request("POST", "/v1/traces", compressed, HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def _start(peer: Peer, folder: Path, port: int) -> tuple[subprocess.Popen[bytes], float]:
    begun = time.perf_counter()
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            peer.command(folder, port),
            env={**os.environ, **peer.environment(folder, port)}, stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    while not _answers(port):
        if server.poll() is not None:
            raise SystemExit(f"{peer.name} did not start: {(folder / 'log').read_text()[-500:]}")
        time.sleep(0.01)
    return server, time.perf_counter() - begun


def _answers(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False


def _ragpulse() -> Peer:
    def stored(folder: Path, port: int) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            query = json.dumps({"query": "select count(*) from spans"})
            connection.request("POST", "/api/v1/sql", query, {"Content-Type": "application/json"})
            return int(json.loads(connection.getresponse().read())["rows"][0][0])

    def command(folder: Path, port: int) -> list[str]:
        serve = [sys.executable, "-m", "ragpulse_collector", "serve", "--roles", "ingest"]
        return [*serve, "--db", str(folder / "ragpulse.duckdb"), "--port", str(port), "--grpc-port", str(_free_port())]

    return Peer("ragpulse", command, stored, "ragpulse.duckdb")


def _phoenix(command: str) -> Peer:
    def stored(folder: Path, port: int) -> int:
        with closing(sqlite3.connect(f"file:{folder / 'phoenix.db'}?mode=ro", uri=True, timeout=30)) as database:
            return int(database.execute("select count(*) from spans").fetchone()[0])

    def environment(folder: Path, port: int) -> dict[str, str]:
        ports = {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(_free_port()), "PHOENIX_HOST": "127.0.0.1"}
        return {**ports, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false"}

    return Peer("phoenix", lambda folder, port: [command, "serve"], stored, "phoenix.db", environment)


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
