"""Receiving over HTTP: gzip OTLP through four kept-alive connections into a real `ragpulse serve`, until it is on disk.

The same run measures two baselines over the same bodies: the floor (gunzip, protobuf parse, a walk over every
attribute) and the store alone (in process, no HTTP). Prints durable spans a second, CPU seconds of the server per
100,000 spans, ack p50 and p99 (checkpoints included), time until visible, memory, bytes a span on disk, time to the
first 200, and ratios; then the same for one to three connections, to show where more of them stop helping. `--dialect`
is one of own, openinference, genai and mixed; `--brief` runs floor, store and only the server with the role `ingest`.

`--scores` measures until the last score instead: receiving as fast as it goes, the time and the CPU seconds (those of
the server's processes, too) until nothing is pending, and how many of the requests were scored; then, at 750, 1,350 and
2,400 spans a second for 40 seconds, ack p99 and the age of the backlog at the end.

To compare with another checkout, put its packages first: `PYTHONPATH=OTHER/collector:OTHER/evaluators:OTHER/sdk`.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import duckdb
from _payload import body
from _sending import CONNECTIONS, Load
from _served import Server, get_json, post_traces, sql
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = 512
SATURATED = 0.9
IN_FLIGHT = 8
ROLES = (("ingest", ("--roles", "ingest")), ("ingest, evaluate", ()))


class Run(NamedTuple):
    """The figures of one server that received every body."""

    load: Load
    cpu_s: float
    visible_s: float
    idle_mb: float
    peak_mb: float
    file_bytes: int
    used_bytes: int
    stop_s: float


def main() -> None:
    """Make the bodies once; run floor, store and server over them; print figures and ratios."""
    if sys.argv[1:2] in (["floor"], ["store"]):
        print(json.dumps({"floor": floor, "store": store}[sys.argv[1]](Path(sys.argv[2]))))
        return
    short, brief = "--short" in sys.argv, "--brief" in sys.argv
    dialect = sys.argv[sys.argv.index("--dialect") + 1] if "--dialect" in sys.argv else "own"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bodies"
        folder.mkdir()
        now = time.time_ns() - 3600 * 10**9
        for seed in range(60 if short else 300):
            content = body(SPANS, seed=seed, start_ns=now + seed * 10**8, dialect=dialect)
            (folder / f"{seed:05}.gz").write_bytes(gzip.compress(content, 6))
        count = SPANS * len(list(folder.iterdir()))
        print(f"{count:,} spans of dialect {dialect} in gzip bodies of {SPANS}, {CONNECTIONS} connections")
        if "--scores" in sys.argv:
            _until_scored(folder, Path(temporary), count)
            return
        baseline = {name: _in_process(name, folder) for name in ("floor", "store")}
        print(f"floor (gunzip, parse, walk): {baseline['floor']['cpu_s'] / count * 1e5:.2f} CPU-s per 100,000 spans")
        print(f"store in process: {count / baseline['store']['wall_s']:,.0f} spans/s, "
              f"{baseline['store']['cpu_s'] / count * 1e5:.2f} CPU-s per 100,000 spans")  # fmt: skip
        if brief:
            _report(ROLES[0][0], serve(folder, Path(temporary) / "brief.duckdb", ROLES[0][1]), baseline, count)
            return
        starts = [_start_s(Path(temporary) / f"start{n}.duckdb") for n in range(3 if short else 7)]
        print(f"start to first 200: median {median(starts):.2f} s, best {min(starts):.2f} s")
        runs = [
            serve(folder, Path(temporary) / f"{number}.duckdb", arguments)
            for number, (_, arguments) in enumerate(ROLES)
        ]
        for (roles, _), run in zip(ROLES, runs, strict=True):
            _report(roles, run, baseline, count)
        fewer = [serve(folder, Path(temporary) / f"of{n}.duckdb", ROLES[0][1], n) for n in range(1, CONNECTIONS)]
        _report_saturation([*fewer, runs[0]], count)


def bodies_in(folder: Path) -> Iterator[bytes]:
    """Read the compressed bodies one after another."""
    for file in sorted(folder.glob("*.gz")):
        yield file.read_bytes()


def floor(folder: Path) -> dict[str, float]:
    """Inflate, parse and walk every body once."""
    begun = time.process_time()
    for gzipped in bodies_in(folder):
        request = ExportTraceServiceRequest.FromString(gzip.decompress(gzipped))
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    {pair.key: _value(pair.value) for pair in span.attributes}
    return {"cpu_s": time.process_time() - begun}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def store(folder: Path) -> dict[str, float]:
    """Push the bodies through the store alone, a fixed number in flight."""
    from ragpulse_collector.conventions import decode
    from ragpulse_collector.records import RawBody
    from ragpulse_collector.store import EmbeddedStore, Prices

    with tempfile.TemporaryDirectory() as temporary:
        embedded = EmbeddedStore(Path(temporary) / "t.duckdb", decode=decode, price=Prices())
        in_flight: deque[Future[Any]] = deque()
        cpu_s, begun = time.process_time(), time.perf_counter()
        for gzipped in bodies_in(folder):
            if len(in_flight) >= IN_FLIGHT:
                in_flight.popleft().result()
            raw = RawBody(signal="traces", content_type="application/x-protobuf", body=gzip.decompress(gzipped))
            in_flight.append(embedded.submit(raw))
        for future in in_flight:
            future.result()
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu_s
        embedded.close()
    return {"wall_s": wall_s, "cpu_s": cpu_s}


def serve(folder: Path, db: Path, arguments: tuple[str, ...], connections: int = CONNECTIONS) -> Run:
    """Send every body once through the connections, then measure the process and its file from outside."""
    server = Server(db, *arguments)
    time.sleep(1.0)  # what starts in the background counts as idle
    idle_mb = server.memory_mb("VmRSS")
    load = Load(bodies_in(folder))
    cpu_s = server.cpu_s()
    load.send_all([server.connection] * connections)
    cpu_s = server.cpu_s() - cpu_s
    begun = time.perf_counter()
    stored = sql(server, "select count(*) from raw.spans")[0][0]
    visible_s = time.perf_counter() - begun
    peak_mb = server.memory_mb("VmHWM")
    stop_s = server.stop()
    with duckdb.connect(str(db)) as file:  # applies the log that a stopping collector leaves
        file.execute("CHECKPOINT")
        used = file.sql("SELECT used_blocks * block_size FROM pragma_database_size()").fetchall()[0][0]
    assert stored == SPANS * len(load.acks), (stored, SPANS * len(load.acks))
    return Run(load, cpu_s, visible_s, idle_mb, peak_mb, db.stat().st_size, used, stop_s)


RATES = (750, 1350, 2400)
AT_RATE_S = 40.0


def _until_scored(folder: Path, temporary: Path, count: int) -> None:
    """Print what it takes until the last score, and how old the backlog is at fixed rates."""
    config = temporary / "ragpulse.toml"
    config.write_text("[topics]\nenabled = false\n", encoding="utf-8")  # a fit would count or not, by when it ends
    server = Server(temporary / "scored.duckdb", "--config", str(config))
    time.sleep(1.0)
    idle_mb, begun, load = server.memory_mb("VmRSS"), time.perf_counter(), Load(bodies_in(folder))
    load.send_all([server.connection] * CONNECTIONS)
    while not _is_done(server, count // 4):
        time.sleep(2.0)
    wall_s, cpu_s = time.perf_counter() - begun, server.cpu_s() + server.children_cpu_s()
    scored = sql(server, "select count(DISTINCT trace_id) from raw.scores")[0][0]
    beside_mb = sum(_rss_mb(pid) for pid in server.children())
    server.stop()
    print(f"received at {count / load.wall_s:,.0f} spans/s; last score after {wall_s:.1f} s, "
          f"{cpu_s / count * 1e5:.1f} CPU-s per 100,000 spans")  # fmt: skip
    print(f"  {scored / (count / 4):.0%} of the requests scored; {load.acks_text()}")
    print(f"  RSS {idle_mb:.0f} MB idle, {beside_mb:.0f} MB of its processes after")
    for rate in RATES:
        print(f"at {rate} spans/s for {AT_RATE_S:.0f} s: {_at_rate(temporary / f'{rate}.duckdb', rate)}")


def _is_done(server: Server, traces: int) -> bool:
    status = get_json(server, "/api/v1/status")  # the count alone reads the file anew in a process of its own
    if status["evaluations"]["pending"] or status["undecided"]["traces"]:
        return False
    return bool(sql(server, "select count(*) from raw.trace_facts where latest")[0][0] == traces)


def _at_rate(db: Path, rate: int) -> str:
    server = Server(db)
    acks, due, until = [], time.perf_counter(), time.perf_counter() + AT_RATE_S
    with closing(server.connection()) as connection:
        for seed in range(int(AT_RATE_S * rate / SPANS) + 1):
            time.sleep(max(0.0, due - time.perf_counter()))
            gzipped = gzip.compress(body(SPANS, seed=seed, start_ns=time.time_ns() - 10**9))
            begun = time.perf_counter()
            post_traces(connection, gzipped)
            acks.append(time.perf_counter() - begun)
            due += SPANS / rate
            if time.perf_counter() > until:
                break
    evaluations = get_json(server, "/api/v1/status")["evaluations"]
    server.stop()
    kept = min(evaluations.get("keeps_up", {}).values(), default=1.0)
    return (f"ack p50 {median(acks) * 1e3:.0f} ms, p99 {quantiles(acks, n=100)[98] * 1e3:.0f} ms; "
            f"{evaluations['pending']} pending, the oldest for {evaluations['oldest_s']:.0f} s; "
            f"{kept:.0%} selected at the end")  # fmt: skip


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def _start_s(db: Path) -> float:
    server = Server(db)
    server.stop()
    return server.first_200_s


def _in_process(name: str, folder: Path) -> dict[str, float]:
    """Run `floor` or `store` in a process of its own."""
    run = subprocess.run([sys.executable, __file__, name, str(folder)], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def _report(roles: str, run: Run, baseline: dict[str, dict[str, float]], count: int) -> None:
    wall_s = run.load.wall_s
    print(f"roles {roles}: {count / wall_s:,.0f} spans/s stored and queryable = "
          f"{baseline['store']['wall_s'] / wall_s:.2f} of in process")  # fmt: skip
    print(f"  {run.cpu_s / count * 1e5:.2f} CPU-s per 100,000 spans = "
          f"{run.cpu_s / baseline['floor']['cpu_s']:.1f} x floor")  # fmt: skip
    print(f"  {run.load.acks_text()}; "
          f"last spans visible {run.visible_s * 1e3:.0f} ms after their ack")  # fmt: skip
    print(f"  RSS {run.idle_mb:.0f} MB idle, {run.peak_mb:.0f} MB peak; {run.used_bytes / count:.0f} B/span on disk, "
          f"{run.file_bytes / count:.0f} with blocks of the file that are free again; "
          f"SIGTERM to end {run.stop_s:.2f} s")  # fmt: skip


def _report_saturation(runs: list[Run], count: int) -> None:
    """Print what each further connection adds: beyond saturation, only bodies that wait."""
    rates = [count / run.load.wall_s for run in runs]
    saturated = next(index for index, rate in enumerate(rates) if rate >= SATURATED * max(rates))
    for index, (rate, run) in enumerate(zip(rates, runs, strict=True)):
        note = f" <- saturated: {SATURATED} of the most" if index == saturated else ""
        print(f"connections that never pause: {index + 1}: {rate:,.0f} spans/s; {run.load.acks_text()}{note}")


if __name__ == "__main__":
    main()
