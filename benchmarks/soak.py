"""Thirty minutes of steady traffic, evaluation and looking on: memory and open files must stay flat.

`--minutes N` sets the length, `--short` a half minute, `--verbose` prints every look, `--faster N` sends N times as
much. Prints for each half the slope, by least squares, of the memory and of the part that is the process's own; CPU
and what was stored.

A full run exits 1 where the memory grows by more than 20 MB an hour in its second half, all of the slope's 95 %
interval above that. DuckDB's account climbs to its limit and falls by 60 MB with each checkpoint, so half an hour tells
the slope to some tens of MB an hour; take `--minutes 60` for a closer look. In the first third many look at the pages,
so that what has a bound is at it when the second half begins.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, pvariance
from typing import NamedTuple

from _payload import body
from _served import Server

SPANS = 160
REQUESTS_PER_S = 2
LOOKS = ("/api/v1/traces?limit=50", "/api/v1/overview?from=-1h", "/api/v1/metrics?name=latency_p95", "/metrics", "/")
LOOK_EVERY_S = 1.0
FURTHER_LOOKERS, FURTHER_EVERY_S = 3, 0.2
MAX_MB_PER_HOUR = 20


def main() -> int:
    """Send, look and measure until the time is over."""
    minutes = 0.5 if "--short" in sys.argv else 30.0
    if "--minutes" in sys.argv:
        minutes = float(sys.argv[sys.argv.index("--minutes") + 1])
    faster = int(sys.argv[sys.argv.index("--faster") + 1]) if "--faster" in sys.argv else 1
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "ragpulse.duckdb"
        server, stop, enough = Server(db), threading.Event(), threading.Event()
        workers = [
            threading.Thread(target=_send, args=(server, stop, REQUESTS_PER_S * faster)),
            threading.Thread(target=_look, args=(server, stop, LOOK_EVERY_S)),
            *(threading.Thread(target=_look, args=(server, enough, FURTHER_EVERY_S)) for _ in range(FURTHER_LOOKERS)),
        ]
        for worker in workers:
            worker.start()
        threading.Timer(minutes * 20, enough.set).start()
        samples = _watch(server, minutes * 60)
        stop.set()
        for worker in workers:
            worker.join()
        ended = server.stop()
        size = sum(file.stat().st_size for file in Path(place).iterdir()) / 2**20
    half = [sample for sample in samples if sample.at_s >= minutes * 30]
    first, last = half[0], half[-1]
    cores = (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
    print(f"{minutes:g} minutes, {REQUESTS_PER_S * SPANS * faster} spans/s, every trace evaluated, "
          f"{size:.0f} MB stored, {cores:.2f} of a core in the second half; "
          f"SIGTERM to end {ended:.1f} s")  # fmt: skip
    _tell("first half", [sample for sample in samples if sample.at_s < minutes * 30])
    _tell("second half", half)
    slope, margin = _slope(half, "rss_mb")
    return int(minutes >= 30 and slope - margin > MAX_MB_PER_HOUR)


class Sample(NamedTuple):
    """One look from outside."""

    at_s: float
    rss_mb: float
    own_mb: float
    files: int
    cpu_s: float


def _tell(name: str, samples: Sequence[Sample]) -> None:
    first, last = samples[0], samples[-1]
    slopes = [_slope(samples, what) for what in ("rss_mb", "own_mb")]
    rss, own = (f"{slope:+.1f} ± {margin:.1f}" for slope, margin in slopes)
    print(f"  {name}: RSS {first.rss_mb:.0f} -> {last.rss_mb:.0f} MB, at most "
          f"{max(sample.rss_mb for sample in samples):.0f}, {rss} MB/h "
          f"(own {own}); open files {first.files} -> {last.files}")  # fmt: skip


def _slope(samples: Sequence[Sample], what: str) -> tuple[float, float]:
    """MB an hour, and half its 95 % interval: neighbours are alike, so that so many samples say less than as many."""
    hours = [sample.at_s / 3600 for sample in samples]
    values = [getattr(sample, what) for sample in samples]
    slope, start = linear_regression(hours, values)
    left = [value - start - slope * hour for hour, value in zip(hours, values, strict=True)]
    squares = sum(each * each for each in left) or 1e-9
    alike = min(0.99, max(0.0, sum(a * b for a, b in pairwise(left)) / squares))
    error = math.sqrt(squares / (len(left) - 2) / (pvariance(hours) * len(hours)) * (1 + alike) / (1 - alike))
    return slope, 1.96 * error


def _watch(server: Server, seconds: float) -> list[Sample]:
    """Look until the time is over."""
    begun, samples = time.monotonic(), []
    while (at := time.monotonic() - begun) < seconds:
        rss, own = server.memory_mb("VmRSS"), server.memory_mb("RssAnon")
        samples.append(Sample(at, rss, own, server.open_files(), server.cpu_s()))
        if "--verbose" in sys.argv:
            print(*(f"{value:.1f}" for value in samples[-1]), flush=True)
        time.sleep(min(5.0, seconds / 20))
    return samples


def _send(server: Server, stop: threading.Event, a_second: int) -> None:
    number, begun = 0, time.monotonic()
    with closing(server.connection()) as connection:
        while not stop.wait(begun + number / a_second - time.monotonic()):
            number += 1
            made = gzip.compress(body(SPANS, seed=number, start_ns=time.time_ns() - 10**9), 1)
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
            connection.request("POST", "/v1/traces", made, headers)
            connection.getresponse().read()


def _look(server: Server, stop: threading.Event, every_s: float) -> None:
    turn = 0
    with closing(server.connection()) as connection:
        while not stop.wait(every_s):
            turn += 1
            connection.request("GET", LOOKS[turn % len(LOOKS)])
            connection.getresponse().read()
            query = json.dumps({"query": "select service, count(*) from traces group by 1"})
            connection.request("POST", "/api/v1/sql", query, {"Content-Type": "application/json"})
            connection.getresponse().read()


if __name__ == "__main__":
    sys.exit(main())
