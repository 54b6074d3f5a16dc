"""Arize Phoenix beside ragpulse: the same gzip OTLP bodies, one after the other, into each server's own default store.

    python benchmarks/ingest_phoenix.py --phoenix ENV/bin/phoenix      # an environment with `pip install arize-phoenix`

Each server receives the bodies over four connections until its database holds every span. Then a new process is killed
(SIGKILL) while it receives, is started again, and the acknowledged spans are counted. Prints both and the ratios.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
from _payload import body
from _sending import CONNECTIONS, Load
from _served import Process, Server, free_port, sql

SPANS = 512
RETRY_AFTER_S = 0.2


@dataclass
class Peer:
    """A server under test: how to start it, and how to count the spans in its database while it runs."""

    name: str
    start: Callable[[Path], Process]
    stored: Callable[[Path, Process], int]
    database: str


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
    bodies = [gzip.compress(body(SPANS, seed=n, start_ns=now + n * 10**8), 6) for n in range(options.bodies)]
    print(f"{len(bodies) * SPANS:,} spans in gzip bodies of {SPANS}, {CONNECTIONS} connections")
    peers = (_ragpulse(), _phoenix(options.phoenix))
    ours, phoenix = (measure(peer, bodies) for peer in peers)
    ratios = ", ".join(f"{name} {phoenix[name] / ours[name]:.1f} x" for name in ours if ours[name])
    print(f"phoenix / ragpulse: {ratios}")
    for peer in peers:
        kill(peer, bodies)


def measure(peer: Peer, bodies: list[bytes]) -> dict[str, float]:
    """Time from the first body until the database holds every span; CPU, memory and disk of the server for it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        server, load = peer.start(folder), Load(bodies, retry_after_s=RETRY_AFTER_S)
        before, cpu_s, begun = peer.stored(folder, server), server.cpu_s(), time.perf_counter()
        load.send_all([server.connection] * CONNECTIONS)
        while peer.stored(folder, server) - before < len(bodies) * SPANS:
            time.sleep(0.02)
        wall_s, cpu_s = time.perf_counter() - begun, server.cpu_s() - cpu_s
        peak_mb = server.memory_mb("VmHWM")
        server.stop()
        size = _size(folder / peer.database)
    spans = len(bodies) * SPANS
    figures = {
        "seconds": wall_s, "CPU-s per 100,000 spans": cpu_s / spans * 1e5, "ack p50 ms": median(load.acks) * 1e3,
        "start s": server.first_200_s, "peak RSS MB": peak_mb, "B/span": size / spans,
    }  # fmt: skip
    text = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items() if name != "seconds")
    print(f"{peer.name}: {spans / wall_s:,.0f} spans/s until all could be counted, {text}")
    return figures


def _size(database: Path) -> int:
    if database.suffix == ".duckdb":  # applies the log that a stopping collector leaves to its next start
        with duckdb.connect(str(database)) as file:
            file.execute("CHECKPOINT")
    return database.stat().st_size


def kill(peer: Peer, bodies: list[bytes]) -> None:
    """Send SIGKILL after half of the answers; start again and count the acknowledged spans."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        server, load = peer.start(folder), Load(bodies, retry_after_s=RETRY_AFTER_S)
        before = peer.stored(folder, server)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in range(CONNECTIONS):
                pool.submit(load.send, server.connection)
            while len(load.acks) < len(bodies) // 2:
                time.sleep(0.001)
            server.kill()
        server = peer.start(folder)
        acknowledged, stored = len(load.acks) * SPANS, peer.stored(folder, server) - before
        server.kill()
    print(f"{peer.name}, killed: {acknowledged:,} spans acknowledged, {max(0, acknowledged - stored):,} of them lost, "
          f"answers again after {server.first_200_s:.1f} s")  # fmt: skip


def _ragpulse() -> Peer:
    def start(folder: Path) -> Process:
        return Server(folder / "ragpulse.duckdb", "--roles", "ingest", "--grpc-port", str(free_port()))

    def stored(folder: Path, server: Process) -> int:
        return int(sql(server, "select count(*) from spans")[0][0])

    return Peer("ragpulse", start, stored, "ragpulse.duckdb")


def _phoenix(command: str) -> Peer:
    def start(folder: Path) -> Process:
        port = free_port()
        ports = {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_HOST": "127.0.0.1"}
        environ = {**ports, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false"}
        return Process([os.path.abspath(command), "serve"], port, log=folder / "log", environ=environ, cwd=folder)

    def stored(folder: Path, server: Process) -> int:
        with closing(sqlite3.connect(f"file:{folder / 'phoenix.db'}?mode=ro", uri=True, timeout=30)) as database:
            return int(database.execute("select count(*) from spans").fetchone()[0])

    return Peer("phoenix", start, stored, "phoenix.db")


if __name__ == "__main__":
    main()
