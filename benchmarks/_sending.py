"""Sends OTLP bodies to a collector: as fast as it takes them, or so many spans a second from another process."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import quantiles

from _payload import body
from _served import post_traces
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BODY = 512
CONNECTIONS = 4


class Load:
    """Gzip bodies to send once each over several connections, and the seconds until each was acknowledged."""

    def __init__(self, bodies: Iterable[bytes], *, retry_after_s: float = 1.0) -> None:
        """A refused body is sent again after its `Retry-After`, else after `retry_after_s`."""
        self._pending = deque(bodies)
        self._count, self._retry_after_s = len(self._pending), retry_after_s
        self.acks: list[float] = []
        self.wall_s = 0.0

    def send(self, connect: Callable[[], http.client.HTTPConnection]) -> None:
        """Send over one connection until no body is pending or the server is gone."""
        with closing(connect()) as connection:
            while True:
                try:
                    gzipped = self._pending.popleft()
                    begun = time.perf_counter()
                    while (response := post_traces(connection, gzipped)).status != 200:
                        time.sleep(float(response.headers.get("Retry-After") or self._retry_after_s))
                except (IndexError, OSError, http.client.HTTPException):
                    return
                self.acks.append(time.perf_counter() - begun)

    def send_all(self, connects: Sequence[Callable[[], http.client.HTTPConnection]]) -> None:
        """Send every body, one thread for each connection."""
        begun = time.perf_counter()
        with ThreadPoolExecutor(len(connects)) as pool:
            list(pool.map(self.send, connects))
        self.wall_s = time.perf_counter() - begun
        assert len(self.acks) == self._count, "the server went away"

    def acks_text(self) -> str:
        """Percentiles of the time until a body was acknowledged."""
        cuts = quantiles(self.acks, n=100)
        return f"ack p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms, max {max(self.acks) * 1e3:.0f} ms"


class Sending:
    """A process that sends spans at a rate until `stop`."""

    def __init__(self, port: int, rate: int) -> None:
        code = f"from _sending import send_at_rate; send_at_rate({port}, {rate})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
        )

    def stop(self) -> tuple[int, int]:
        """End the process; return the accepted spans a second and the number of refused bodies."""
        self._process.terminate()
        accepted, refused = self._process.communicate()[0].splitlines()[-1].split()
        return int(accepted), int(refused)


def send_at_rate(port: int, rate: int) -> None:
    """Send over four connections until ended; prints `<accepted spans a second> <refusals>` after each body.

    A refused body is sent again when the answer says so, as an exporter would.
    """
    begun, lock = time.perf_counter(), threading.Lock()
    sent = accepted = refused = 0

    def send() -> None:
        nonlocal sent, accepted, refused
        connection = http.client.HTTPConnection("127.0.0.1", port)
        request = ExportTraceServiceRequest.FromString(body(BODY))
        while True:
            with lock:
                sent += 1
                due = begun + sent * BODY / rate
            content = _with_new_ids(request)
            while (retry_after_s := _deliver(connection, content)) is not None:
                refused += 1
                time.sleep(retry_after_s)
            with lock:
                accepted += BODY
            print(f"{accepted / (time.perf_counter() - begun):.0f} {refused}", flush=True)
            time.sleep(max(0.0, due - time.perf_counter()))

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _deliver(connection: http.client.HTTPConnection, content: bytes) -> float | None:
    """Send one body; return None if it was accepted, else the seconds after which it may be sent again."""
    connection.request("POST", "/v1/traces", content, {"content-type": "application/x-protobuf"})
    response = connection.getresponse()
    response.read()
    if response.status in (429, 503):
        return float(response.headers.get("retry-after") or 1)
    if response.status != 200:
        raise SystemExit(f"a body was answered {response.status}")
    return None


def _with_new_ids(request: ExportTraceServiceRequest) -> bytes:
    """The same traces under new ids, a second old."""
    start = time.time_ns() - 10**9
    for number, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        if number % 4 == 0:
            trace_id = os.urandom(16)
        duration = span.end_time_unix_nano - span.start_time_unix_nano
        span.trace_id, span.start_time_unix_nano, span.end_time_unix_nano = trace_id, start, start + duration
    return bytes(request.SerializeToString())
