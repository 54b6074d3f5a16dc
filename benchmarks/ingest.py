"""Ingest over HTTP against its floor: four keep-alive connections, 512 spans a request, gzip, one collector process.

The floor is what any Python collector must do with the same bodies: inflate, parse, walk the attributes. Prints durable
spans a second, CPU seconds per 100,000 spans and the ratio to the floor, ack p50 and p99, memory, bytes a span on disk,
and how long after the last ack everything can be queried; with ingest alone and with all roles.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from _payload import body
from served import Served

from ragpulse_collector import otlp
from ragpulse_collector.records import RawBody

SPANS = 512
CONNECTIONS = 4
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make unique bodies, measure the floor on them, then send them to a fresh collector for each set of roles."""
    requests = 20 if "--short" in sys.argv else 200
    now = time.time_ns() - requests * SPANS * 250_000
    bodies = [gzip.compress(body(SPANS, seed=i, start_ns=now + i * SPANS * 250_000), 6) for i in range(requests)]
    floor = _floor(bodies[:20])
    print(f"{requests} requests of {SPANS} spans, {len(bodies[0]) / SPANS:.0f} B/span gzip, {CONNECTIONS} connections")
    print(f"floor (gunzip, parse, walk)  {floor:5.2f} CPU-s / 100k spans")
    for roles in ("ingest", "ingest,evaluate,maintain"):
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder) / "bench.duckdb", roles, bodies, floor)


def _floor(bodies: Sequence[bytes]) -> float:
    start = time.process_time()
    for zipped in bodies:
        raw = RawBody(signal="traces", content_type="application/x-protobuf", body=gzip.decompress(zipped))
        list(otlp.parse_spans(raw))
    return (time.process_time() - start) / (len(bodies) * SPANS) * 1e5


def _measure(db: Path, roles: str, bodies: Sequence[bytes], floor: float) -> None:
    spans = len(bodies) * SPANS
    with Served(db, "--roles", roles) as served:
        pid = served.process.pid
        idle, cpu = _status_mb(pid, "VmRSS"), _cpu_s(pid)
        start = time.perf_counter()
        acks = _send_all(served.url, bodies)
        elapsed = time.perf_counter() - start
        used = (_cpu_s(pid) - cpu) / spans * 1e5
        visible = _until_visible(served.url, spans)
        peak = _status_mb(pid, "VmHWM")
        served.terminate()
    size = sum(path.stat().st_size for path in db.parent.iterdir() if path.name.startswith(db.name))
    p99 = quantiles(acks, n=100)[98]
    print(
        f"{roles}\n  {spans / elapsed:8.0f} spans/s durable   {used:5.2f} CPU-s / 100k ({used / floor:.1f} x floor)   "
        f"ack p50 {median(acks) * 1e3:.0f} ms p99 {p99 * 1e3:.0f} ms\n  RSS {idle:.0f} MB idle, {peak:.0f} MB peak   "
        f"{size / spans:.0f} B/span on disk   visible {visible:.2f} s after the last ack"
    )


def _send_all(url: str, bodies: Sequence[bytes]) -> list[float]:
    acks: list[float] = []
    remaining = iter(bodies)
    lock = threading.Lock()

    def send() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        while True:
            with lock:
                payload = next(remaining, None)
            if payload is None:
                return connection.close()
            acks.append(_acked(connection, payload, headers))

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return acks


def _acked(connection: http.client.HTTPConnection, payload: bytes, headers: dict[str, str]) -> float:
    """Send until taken, as exporters do; returns the seconds of the attempt that was acknowledged."""
    while True:
        start = time.perf_counter()
        connection.request("POST", "/v1/traces", payload, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            return time.perf_counter() - start
        if answer.status != 503:
            raise RuntimeError(f"HTTP {answer.status}")
        time.sleep(int(answer.headers["Retry-After"]))


def _until_visible(url: str, spans: int) -> float:
    start = time.perf_counter()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    while True:
        question = json.dumps({"query": "SELECT count(*) FROM spans"})
        connection.request("POST", "/api/v1/sql", question, {"Content-Type": "application/json"})
        if json.loads(connection.getresponse().read())["rows"][0][0] >= spans:
            return time.perf_counter() - start


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _status_mb(pid: int, key: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


if __name__ == "__main__":
    main()
