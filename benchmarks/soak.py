"""Thirty minutes of steady traffic, evaluation and page views: memory and open files must stay flat.

`--minutes N` sets the length, `--short` a half minute, `--verbose` prints every sample, `--faster N` sends N times as
much. Prints for each half the slope, by least squares, of the memory and of the process's own part of it; CPU and what
was stored.

A full run exits 1 if the memory grows by more than 20 MB an hour in its second half, with the whole 95 % interval of
the slope above that. DuckDB's memory climbs to its limit and falls by 60 MB with each checkpoint, so half an hour gives
the slope to some tens of MB an hour; use `--minutes 60` for a closer look. In the first third several viewers open the
pages, so that bounded caches are full when the second half begins.
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
from itertools import cycle, pairwise
from pathlib import Path
from statistics import linear_regression, pvariance
from typing import NamedTuple

from _payload import body
from _served import Server, post_traces

SPANS = 160
REQUESTS_PER_S = 2
PATHS = ("/api/v1/traces?limit=50", "/api/v1/overview?from=-1h", "/api/v1/metrics?name=latency_p95", "/metrics", "/")
VIEW_EVERY_S = 1.0
MORE_VIEWERS, MORE_EVERY_S = 3, 0.2
MAX_MB_PER_HOUR = 20


def main() -> int:
    """Send, view pages and measure until the time is over."""
    minutes = 0.5 if "--short" in sys.argv else 30.0
    if "--minutes" in sys.argv:
        minutes = float(sys.argv[sys.argv.index("--minutes") + 1])
    faster = int(sys.argv[sys.argv.index("--faster") + 1]) if "--faster" in sys.argv else 1
    with tempfile.TemporaryDirectory() as temporary:
        db = Path(temporary) / "ragpulse.duckdb"
        server, stop, first_third = Server(db), threading.Event(), threading.Event()
        workers = [
            threading.Thread(target=_send, args=(server, stop, REQUESTS_PER_S * faster)),
            threading.Thread(target=_view, args=(server, stop, VIEW_EVERY_S)),
            *(threading.Thread(target=_view, args=(server, first_third, MORE_EVERY_S)) for _ in range(MORE_VIEWERS)),
        ]
        for worker in workers:
            worker.start()
        threading.Timer(minutes * 20, first_third.set).start()
        samples = _sample(server, minutes * 60)
        stop.set()
        for worker in workers:
            worker.join()
        stop_s = server.stop()
        size = sum(file.stat().st_size for file in Path(temporary).iterdir()) / 2**20
    half = [sample for sample in samples if sample.time_s >= minutes * 30]
    first, last = half[0], half[-1]
    cores = (last.cpu_s - first.cpu_s) / (last.time_s - first.time_s)
    print(f"{minutes:g} minutes, {REQUESTS_PER_S * SPANS * faster} spans/s, every trace evaluated, "
          f"{size:.0f} MB stored, {cores:.2f} of a core in the second half; "
          f"SIGTERM to end {stop_s:.1f} s")  # fmt: skip
    _report("first half", [sample for sample in samples if sample.time_s < minutes * 30])
    _report("second half", half)
    slope, margin = _slope(half, "rss_mb")
    return int(minutes >= 30 and slope - margin > MAX_MB_PER_HOUR)


class Sample(NamedTuple):
    """Measures of the process at one time."""

    time_s: float
    rss_mb: float
    own_mb: float
    files: int
    cpu_s: float


def _report(name: str, samples: Sequence[Sample]) -> None:
    first, last = samples[0], samples[-1]
    slopes = [_slope(samples, field) for field in ("rss_mb", "own_mb")]
    rss, own = (f"{slope:+.1f} ± {margin:.1f}" for slope, margin in slopes)
    print(f"  {name}: RSS {first.rss_mb:.0f} -> {last.rss_mb:.0f} MB, at most "
          f"{max(sample.rss_mb for sample in samples):.0f}, {rss} MB/h "
          f"(own {own}); open files {first.files} -> {last.files}")  # fmt: skip


def _slope(samples: Sequence[Sample], field: str) -> tuple[float, float]:
    """MB an hour, and half its 95 % interval, which allows for the correlation of neighbouring samples."""
    hours = [sample.time_s / 3600 for sample in samples]
    values = [getattr(sample, field) for sample in samples]
    slope, start = linear_regression(hours, values)
    residuals = [value - start - slope * hour for hour, value in zip(hours, values, strict=True)]
    squares = sum(residual * residual for residual in residuals) or 1e-9
    correlation = min(0.99, max(0.0, sum(a * b for a, b in pairwise(residuals)) / squares))
    variance = squares / (len(residuals) - 2) / (pvariance(hours) * len(hours))
    error = math.sqrt(variance * (1 + correlation) / (1 - correlation))
    return slope, 1.96 * error


def _sample(server: Server, seconds: float) -> list[Sample]:
    """Measure until the time is over."""
    begun, samples = time.monotonic(), []
    while (time_s := time.monotonic() - begun) < seconds:
        rss, own = server.memory_mb("VmRSS"), server.memory_mb("RssAnon")
        samples.append(Sample(time_s, rss, own, server.open_files(), server.cpu_s()))
        if "--verbose" in sys.argv:
            print(*(f"{value:.1f}" for value in samples[-1]), flush=True)
        time.sleep(min(5.0, seconds / 20))
    return samples


def _send(server: Server, stop: threading.Event, per_second: int) -> None:
    number, begun = 0, time.monotonic()
    with closing(server.connection()) as connection:
        while not stop.wait(begun + number / per_second - time.monotonic()):
            number += 1
            post_traces(connection, gzip.compress(body(SPANS, seed=number, start_ns=time.time_ns() - 10**9), 1))


def _view(server: Server, stop: threading.Event, every_s: float) -> None:
    paths = cycle(PATHS)
    with closing(server.connection()) as connection:
        while not stop.wait(every_s):
            connection.request("GET", next(paths))
            connection.getresponse().read()
            query = json.dumps({"query": "select service, count(*) from traces group by 1"})
            connection.request("POST", "/api/v1/sql", query, {"Content-Type": "application/json"})
            connection.getresponse().read()


if __name__ == "__main__":
    sys.exit(main())
