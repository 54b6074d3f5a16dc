"""What delivery costs and whether it is complete, beside the stock SDK in the same run.

Run: `python benchmarks/sdk_delivery.py [--traces 8000] [--outage 10]`. Three parts, each in a process of its own:
CPU per 100,000 spans delivered; 4,000 traces a second from one process (the workload of three spans each), in
five runs, beside the same application undecorated; an outage of the collector at 100 traces a second, with the slowest
call and the growth of memory.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sdk_workload import QUERY, Bare, Raw, decorated, free_port, sink

import ragpulse


def application(who: str, url: str) -> tuple[Any, Any]:
    """The application and a function that delivers what is left."""
    if who == "bare":
        return Bare(), lambda: None
    if who == "ours":
        ragpulse.configure("bench", endpoint=url, isolated=True)
        return decorated(), lambda: ragpulse.flush(30)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    return Raw(provider.get_tracer("raw")), provider.force_flush


def cpu(who: str, url: str, traces: int) -> dict[str, float]:
    """CPU seconds of the whole process per 100,000 spans, at a pace that loses nothing."""
    app, deliver = application(who, url)
    app.answer(QUERY)
    deliver()
    started = time.process_time()
    for number in range(traces):
        app.answer(QUERY)
        if number % 500 == 499:
            deliver()
    deliver()
    return {"cpu_s_per_100k_spans": (time.process_time() - started) / (3 * traces) * 100_000}


def pace(who: str, url: str, traces: int, per_second: int = 4000) -> dict[str, float]:
    """A steady rate from one process: the share delivered, and the cores it took until the last was delivered."""
    app, deliver = application(who, url)
    app.answer(QUERY)
    deliver()
    started, busy = time.perf_counter(), time.process_time()
    for number in range(traces):
        app.answer(QUERY)
        ahead = started + number / per_second - time.perf_counter()
        if ahead > 0.002:
            time.sleep(ahead)
    sent = time.perf_counter() - started
    deliver()
    took, used = time.perf_counter() - started, time.process_time() - busy
    told = ragpulse.stats()
    return {"traces_per_s": traces / sent, "cores": used / took, "delivered": told.exported / (3 * (traces + 1))}


class _Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    spans = 0

    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            _Counting.spans += sum(len(scope.spans) for scope in part.scope_spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def peak_mb() -> float:
    """The most memory this program has held; `getrusage` would also tell of the one that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def outage(who: str, seconds: float) -> dict[str, float]:
    """100 traces a second; the collector comes only after `seconds`."""
    port = free_port()
    app, deliver = application(who, f"http://127.0.0.1:{port}")
    app.answer(QUERY)
    before = peak_mb()
    traces, slowest = int(seconds * 100), 0.0
    started = time.perf_counter()
    for number in range(traces):
        began = time.perf_counter()
        app.answer(QUERY)
        slowest = max(slowest, time.perf_counter() - began)
        time.sleep(max(started + number / 100 - time.perf_counter(), 0))
    grown = peak_mb() - before
    server = ThreadingHTTPServer(("127.0.0.1", port), _Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    deliver()
    deadline = time.monotonic() + 20
    while _Counting.spans < 3 * (traces + 1) and time.monotonic() < deadline:
        time.sleep(0.1)
    return {"delivered": _Counting.spans / (3 * (traces + 1)), "slowest_call_ms": slowest * 1000, "grown_mb": grown}


def in_process(*arguments: object) -> dict[str, float]:
    """One part in a fresh interpreter."""
    command = [sys.executable, __file__, "--part", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=8000)
    parser.add_argument("--outage", type=float, default=10.0)
    parser.add_argument("--part", nargs="*")
    options = parser.parse_args()
    if options.part:
        name, who, url, number = options.part
        found = {
            "cpu": lambda: cpu(who, url, int(number)),
            "pace": lambda: pace(who, url, int(number)),
            "outage": lambda: outage(who, float(number)),
        }
        print(json.dumps(found[name]()))
        return
    url, server = sink()
    taken: dict[str, list[float]] = {"raw": [], "ours": []}
    for _ in range(3):
        for who in taken:
            taken[who].append(in_process("cpu", who, url, options.traces // 2)["cpu_s_per_100k_spans"])
    raw, ours = min(taken["raw"]), min(taken["ours"])
    print(f"CPU-s per 100,000 spans delivered: stock {raw:.1f}, ours {ours:.1f}, ratio {ours / raw:.2f}  goal 5")
    bare = in_process("pace", "bare", url, options.traces)["cores"]
    paced = [in_process("pace", "ours", url, 3 * options.traces) for _ in range(5)]
    slowest, least = (min(told[figure] for told in paced) for figure in ("traces_per_s", "delivered"))
    cores = " ".join(f"{told['cores']:.2f}" for told in paced)
    print(
        f"at {slowest:.0f} traces/s: {least:.0%} delivered, {cores} cores, undecorated {bare:.2f}"
        "  goal 4000/s, 100%, 0.5"
    )
    for who in taken:
        told = in_process("outage", who, "-", options.outage)
        print(
            f"outage of {options.outage:.0f} s, {who:5}: {told['delivered']:.0%} delivered, slowest call "
            f"{told['slowest_call_ms']:.1f} ms, memory grew {told['grown_mb']:.1f} MB  goal 100%, 50 ms, 20 MB"
        )
    server.terminate()


if __name__ == "__main__":
    main()
