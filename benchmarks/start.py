"""Start of the process, the memory of an idle one, and the restart after kill -9.

The floor, in the same run: a Python process that imports duckdb, uvicorn and starlette and ends. Prints wall and CPU
seconds to the first 200 and to the first stored body, the memory of an idle process, and both times after a kill -9
with a full log. CPU seconds and ratios hold on a busy machine, wall seconds do not. `--short`: fewer rounds, a smaller
log.
"""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from _payload import body
from _served import AS_INSTALLED, Server, post_traces

from ragpulse_collector.store.log import log_bytes

SPANS = 512
IDLE_AFTER_S = 6.0


class Start(NamedTuple):
    """Seconds from the start of a process."""

    first_200: float
    first_200_cpu: float
    first_stored: float


def main() -> int:
    """Measure starts, an idle process, and starts after a kill."""
    rounds, bodies = (2, 40) if "--short" in sys.argv else (7, 300)
    with tempfile.TemporaryDirectory() as temporary:
        _fresh(Path(temporary) / "first.duckdb")  # not counted: the first run writes missing bytecode
        floor = [_floor() for _ in range(rounds)]
        fresh = [_fresh(Path(temporary) / f"{number}.duckdb") for number in range(rounds)]
        idle = _idle(Path(temporary) / "idle.duckdb")
        restarts, log_mb = _killed(Path(temporary) / "killed.duckdb", rounds=rounds, bodies=bodies)
    wall, cpu = (median(column) for column in zip(*floor, strict=True))
    print(f"floor, importing duckdb, uvicorn and starlette: {wall:.2f} s, {cpu:.2f} CPU-s")
    _print("a fresh file", fresh, wall, cpu)
    print(f"  idle: RSS {idle['VmRSS']:.0f} MB, of which {idle['RssAnon']:.0f} MB its own memory and "
          f"{idle['RssFile']:.0f} MB code of libraries")  # fmt: skip
    _print(f"after kill -9 with {log_mb:.0f} MB in the log", restarts, wall, cpu)
    return 0


def _print(state: str, starts: Sequence[Start], wall: float, cpu: float) -> None:
    first, first_cpu, stored = (median(column) for column in zip(*starts, strict=True))
    print(f"{state}: first 200 after {first:.2f} s (worst {max(start.first_200 for start in starts):.2f}), "
          f"{first_cpu:.2f} CPU-s, {first / wall:.2f} and {first_cpu / cpu:.2f} of the floor; "
          f"first body stored after {stored:.2f} s")  # fmt: skip


def _floor() -> tuple[float, float]:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", "import duckdb, uvicorn, starlette"], check=True, env=AS_INSTALLED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _fresh(db: Path) -> Start:
    server, start = _started(db)
    server.stop()
    return start


def _started(db: Path) -> tuple[Server, Start]:
    begun = time.perf_counter()
    server = Server(db)
    first_cpu = server.cpu_s()
    _send(server, 0)
    return server, Start(server.first_200_s, first_cpu, time.perf_counter() - begun)


def _idle(db: Path) -> dict[str, float]:
    server = Server(db)
    time.sleep(IDLE_AFTER_S)
    memory_mb = {name: server.memory_mb(name) for name in ("VmRSS", "RssAnon", "RssFile")}
    server.stop()
    return memory_mb


def _killed(db: Path, *, rounds: int, bodies: int) -> tuple[list[Start], float]:
    starts, log_mb = [], 0.0
    server = Server(db)
    for number in range(rounds):
        for seed in range(bodies):
            _send(server, 1 + number * bodies + seed)
        server.kill()
        log_mb = max(log_mb, log_bytes(db) / 2**20)
        server, start = _started(db)
        starts.append(start)
    server.stop()
    return starts, log_mb


def _send(server: Server, seed: int) -> None:
    with closing(server.connection()) as connection:
        content = gzip.compress(body(SPANS, seed=seed, start_ns=time.time_ns() - 10**9), 1)
        status = post_traces(connection, content).status
    if status != 200:
        raise SystemExit(f"a body was answered {status}")


if __name__ == "__main__":
    sys.exit(main())
