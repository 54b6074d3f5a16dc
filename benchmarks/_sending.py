"""A process of its own that sends a collector so many spans a second, as far as they are taken."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from _payload import body
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BODY = 512
CONNECTIONS = 4


class Sending:
    """Starts the process; `stop` ends it and tells what was taken."""

    def __init__(self, port: int, rate: int) -> None:
        code = f"from _sending import keep_coming; keep_coming({port}, {rate})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
        )

    def stop(self) -> tuple[int, int]:
        """Return the spans taken a second and how many bodies were refused and sent again."""
        self._process.terminate()
        taken, refused = self._process.communicate()[0].splitlines()[-1].split()
        return int(taken), int(refused)


def keep_coming(port: int, rate: int) -> None:
    """Send over four connections until ended; prints `<taken a second> <refusals>` as it goes.

    A refused body is sent again when the answer says so, as an exporter would.
    """
    begun, lock = time.perf_counter(), threading.Lock()
    sent = taken = refused = 0

    def send() -> None:
        nonlocal sent, taken, refused
        connection = http.client.HTTPConnection("127.0.0.1", port)
        request = ExportTraceServiceRequest.FromString(body(BODY))
        while True:
            with lock:
                sent += 1
                due = begun + sent * BODY / rate
            content = _renewed(request)
            while (again := _deliver(connection, content)) is not None:
                refused += 1
                time.sleep(again)
            with lock:
                taken += BODY
            print(f"{taken / (time.perf_counter() - begun):.0f} {refused}", flush=True)
            time.sleep(max(0.0, due - time.perf_counter()))

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _deliver(connection: http.client.HTTPConnection, content: bytes) -> float | None:
    """Send one body; None where it was taken, or the seconds after which it may be sent again."""
    connection.request("POST", "/v1/traces", content, {"content-type": "application/x-protobuf"})
    answer = connection.getresponse()
    answer.read()
    if answer.status in (429, 503):
        return float(answer.headers.get("retry-after") or 1)
    if answer.status != 200:
        raise SystemExit(f"a body was answered {answer.status}")
    return None


def _renewed(request: ExportTraceServiceRequest) -> bytes:
    """The same traces under new ids, a second old."""
    start = time.time_ns() - 10**9
    for number, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        if number % 4 == 0:
            trace_id = os.urandom(16)
        took = span.end_time_unix_nano - span.start_time_unix_nano
        span.trace_id, span.start_time_unix_nano, span.end_time_unix_nano = trace_id, start, start + took
    return bytes(request.SerializeToString())
