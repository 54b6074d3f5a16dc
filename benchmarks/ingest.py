"""Receiving over HTTP: gzip OTLP through four kept-alive connections into a real `ragpulse serve`, until it is on disk.

Beside it, in the same run and over the same bodies: the floor (gunzip, protobuf parse, a walk over every attribute) and
the store alone (in process, no HTTP). Prints durable spans a second, CPU seconds of the server per 100,000 spans, ack
p50 and p99 (checkpoints included), time until visible, memory, bytes a span on disk, time to the first 200, and ratios;
then the same for one to three connections, up to how many more of them bring more. `--dialect` is one of own,
openinference, genai and mixed; `--brief` leaves out all but the server that receives only.

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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import duckdb
from _payload import body
from _served import Server
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = 512
CONNECTIONS = 4
SATURATED = 0.9
IN_FLIGHT = 8
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
ROLES = (("ingest", ("--roles", "ingest")), ("ingest, evaluate", ()))


def main() -> None:
    """Make the bodies once; run floor, store and server over them; print figures and ratios."""
    if sys.argv[1:2] in (["floor"], ["store"]):
        print(json.dumps({"floor": floor, "store": store}[sys.argv[1]](Path(sys.argv[2]))))
        return
    short, brief = "--short" in sys.argv, "--brief" in sys.argv
    dialect = sys.argv[sys.argv.index("--dialect") + 1] if "--dialect" in sys.argv else "own"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "bodies"
        folder.mkdir()
        now = time.time_ns() - 3600 * 10**9
        for seed in range(60 if short else 300):
            made = body(SPANS, seed=seed, start_ns=now + seed * 10**8, dialect=dialect)
            (folder / f"{seed:05}.gz").write_bytes(gzip.compress(made, 6))
        count = SPANS * len(list(folder.iterdir()))
        print(f"{count:,} spans of dialect {dialect} in gzip bodies of {SPANS}, {CONNECTIONS} connections")
        base = {name: _alone(name, folder) for name in ("floor", "store")}
        print(f"floor (gunzip, parse, walk): {base['floor']['cpu_s'] / count * 1e5:.2f} CPU-s per 100,000 spans")
        print(f"store in process: {count / base['store']['wall_s']:,.0f} spans/s, "
              f"{base['store']['cpu_s'] / count * 1e5:.2f} CPU-s per 100,000 spans")  # fmt: skip
        if brief:
            _report(ROLES[0][0], serve(folder, Path(place) / "brief.duckdb", ROLES[0][1]), base, count)
            return
        starts = [_start_s(Path(place) / f"start{n}.duckdb") for n in range(3 if short else 7)]
        print(f"start to first 200: median {median(starts):.2f} s, best {min(starts):.2f} s")
        runs = [serve(folder, Path(place) / f"{number}.duckdb", roles) for number, (_, roles) in enumerate(ROLES)]
        for (told, _), run in zip(ROLES, runs, strict=True):
            _report(told, run, base, count)
        fewer = [serve(folder, Path(place) / f"of{n}.duckdb", ROLES[0][1], n) for n in range(1, CONNECTIONS)]
        _tell_saturation([count / run["wall_s"] for run in (*fewer, runs[0])], [*fewer, runs[0]])


def bodies_in(folder: Path) -> Iterator[bytes]:
    """Read the compressed bodies one after another."""
    for file in sorted(folder.glob("*.gz")):
        yield file.read_bytes()


def floor(folder: Path) -> dict[str, float]:
    """Inflate, parse and walk every body once."""
    begun = time.process_time()
    for compressed in bodies_in(folder):
        request = ExportTraceServiceRequest.FromString(gzip.decompress(compressed))
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

    with tempfile.TemporaryDirectory() as place:
        kept = EmbeddedStore(Path(place) / "t.duckdb", decode=decode, price=Prices())
        flying: deque[Future[Any]] = deque()
        cpu, begun = time.process_time(), time.perf_counter()
        for compressed in bodies_in(folder):
            if len(flying) >= IN_FLIGHT:
                flying.popleft().result()
            inflated = gzip.decompress(compressed)
            flying.append(kept.submit(RawBody(signal="traces", content_type="application/x-protobuf", body=inflated)))
        for future in flying:
            future.result()
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        kept.close()
    return {"wall_s": wall, "cpu_s": cpu}


def serve(folder: Path, db: Path, arguments: tuple[str, ...], connections: int = CONNECTIONS) -> dict[str, Any]:
    """Send every body once through the connections, then look from outside at what it took."""
    server = Server(db, *arguments)
    time.sleep(1.0)  # what starts in the background counts as idle
    idle = server.memory_mb("VmRSS")
    queue = deque(sorted(folder.glob("*.gz")))
    acks: list[float] = []
    cpu, begun = server.cpu_s(), time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        for sent in [pool.submit(_send, server, queue, acks) for _ in range(connections)]:
            sent.result()
    wall, cpu = time.perf_counter() - begun, server.cpu_s() - cpu
    seen = time.perf_counter()
    stored = _count(server)
    visible = time.perf_counter() - seen
    peak = server.memory_mb("VmHWM")
    ended = server.stop()
    with duckdb.connect(str(db)) as file:  # takes in the log that a stopping collector leaves
        file.execute("CHECKPOINT")
        used = file.sql("SELECT used_blocks * block_size FROM pragma_database_size()").fetchall()[0][0]
    assert stored == SPANS * len(acks), (stored, SPANS * len(acks))
    return {
        "wall_s": wall, "cpu_s": cpu, "acks": acks, "visible_s": visible, "idle": idle, "peak": peak,
        "bytes": db.stat().st_size, "used": used, "ended_s": ended,
    }  # fmt: skip


def _send(server: Server, queue: deque[Path], acks: list[float]) -> None:
    with closing(server.connection()) as connection:
        while queue:
            try:
                compressed = queue.popleft().read_bytes()
            except IndexError:
                return
            begun = time.perf_counter()
            while True:
                connection.request("POST", "/v1/traces", compressed, HEADERS)
                response = connection.getresponse()
                response.read()
                if response.status == 200:
                    break
                time.sleep(float(response.headers.get("Retry-After", "1")))
            acks.append(time.perf_counter() - begun)


def _count(server: Server) -> int:
    with closing(server.connection()) as connection:
        query = json.dumps({"query": "select count(*) from raw.spans"})
        connection.request("POST", "/api/v1/sql", query, {"Content-Type": "application/json"})
        return int(json.loads(connection.getresponse().read())["rows"][0][0])


def _start_s(db: Path) -> float:
    server = Server(db)
    server.stop()
    return server.first_200_s


def _alone(name: str, folder: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, name, str(folder)], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _report(told: str, run: dict[str, Any], base: dict[str, dict[str, float]], count: int) -> None:
    print(f"roles {told}: {count / run['wall_s']:,.0f} spans/s stored and queryable = "
          f"{base['store']['wall_s'] / run['wall_s']:.2f} of in process")  # fmt: skip
    print(f"  {run['cpu_s'] / count * 1e5:.2f} CPU-s per 100,000 spans = "
          f"{run['cpu_s'] / base['floor']['cpu_s']:.1f} x floor")  # fmt: skip
    print(f"  {_acks(run['acks'])}; "
          f"last spans visible {run['visible_s'] * 1e3:.0f} ms after their ack")  # fmt: skip
    print(f"  RSS {run['idle']:.0f} MB idle, {run['peak']:.0f} MB peak; {run['used'] / count:.0f} B/span on disk, "
          f"{run['bytes'] / count:.0f} with blocks of the file that are free again; "
          f"SIGTERM to end {run['ended_s']:.2f} s")  # fmt: skip


def _tell_saturation(rates: list[float], runs: list[dict[str, Any]]) -> None:
    """Tell what one connection more brings: beyond saturation only bodies that wait."""
    enough = next(place for place, rate in enumerate(rates) if rate >= SATURATED * max(rates))
    for place, (rate, run) in enumerate(zip(rates, runs, strict=True)):
        told = f" <- saturated: {SATURATED} of the most" if place == enough else ""
        print(f"connections that never pause: {place + 1}: {rate:,.0f} spans/s; {_acks(run['acks'])}{told}")


def _acks(seconds: list[float]) -> str:
    cuts = quantiles(seconds, n=100)
    return f"ack p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms, max {max(seconds) * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
