"""Thirty minutes of steady traffic, evaluation and looking on: memory and open files must stay flat.

`--minutes N` sets the length, `--short` a half minute. Prints memory at a quarter of the time and at the end, the slope
between by least squares, open files, and what was stored; exits 1 where a full run grows by more than 20 MB an hour.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import linear_regression

from _payload import body
from _served import Server

SPANS = 256
REQUESTS_PER_S = 2
LOOKS = ("/api/v1/traces?limit=50", "/api/v1/overview?from=-1h", "/api/v1/metrics?name=latency_p95", "/metrics", "/")
MAX_MB_PER_HOUR = 20


def main() -> int:
    """Send, look and measure until the time is over."""
    minutes = 0.5 if "--short" in sys.argv else 30.0
    if "--minutes" in sys.argv:
        minutes = float(sys.argv[sys.argv.index("--minutes") + 1])
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "ragpulse.duckdb"
        server, stop = Server(db), threading.Event()
        workers = [threading.Thread(target=work, args=(server, stop)) for work in (_send, _look)]
        for worker in workers:
            worker.start()
        samples = _watch(server, minutes * 60)
        stop.set()
        for worker in workers:
            worker.join()
        ended = server.stop()
        size = db.stat().st_size / 2**20
    settled = [sample for sample in samples if sample[0] >= minutes * 15]
    slope = linear_regression([at / 3600 for at, _, _ in settled], [memory for _, memory, _ in settled]).slope
    print(f"{minutes:g} minutes, {REQUESTS_PER_S * SPANS} spans/s, every trace evaluated, {size:.0f} MB stored")
    print(f"  RSS {settled[0][1]:.0f} MB after a quarter, {settled[-1][1]:.0f} MB at the end, {slope:+.1f} MB/h; "
          f"open files {settled[0][2]} -> {settled[-1][2]}; SIGTERM to end {ended:.1f} s")  # fmt: skip
    return int(minutes >= 30 and slope > MAX_MB_PER_HOUR)


def _watch(server: Server, seconds: float) -> list[tuple[float, float, int]]:
    begun, samples = time.monotonic(), []
    while (at := time.monotonic() - begun) < seconds:
        samples.append((at, server.memory_mb("VmRSS"), server.open_files()))
        time.sleep(min(5.0, seconds / 20))
    return samples


def _send(server: Server, stop: threading.Event) -> None:
    number = 0
    with closing(server.connection()) as connection:
        while not stop.wait(1 / REQUESTS_PER_S):
            number += 1
            made = gzip.compress(body(SPANS, seed=number, start_ns=time.time_ns() - 10**9), 1)
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
            connection.request("POST", "/v1/traces", made, headers)
            connection.getresponse().read()


def _look(server: Server, stop: threading.Event) -> None:
    turn = 0
    with closing(server.connection()) as connection:
        while not stop.wait(1.0):
            turn += 1
            connection.request("GET", LOOKS[turn % len(LOOKS)])
            connection.getresponse().read()
            query = json.dumps({"query": "select service, count(*) from traces group by 1"})
            connection.request("POST", "/api/v1/sql", query, {"Content-Type": "application/json"})
            connection.getresponse().read()


if __name__ == "__main__":
    sys.exit(main())
