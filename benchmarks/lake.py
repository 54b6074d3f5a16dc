"""The lake under load: ingesting processes over PostgreSQL and S3, and the one leased process that decides.

Runs one and two ingesting processes behind a round-robin client; beside them, in the same run and over the same bodies,
one process over the embedded file (the ratio). Prints stored spans a second, CPU by process, acks, commits, files, rows
a file, bytes a span, the catalog's growth, and questions before and after merging. Everything shares this machine:
client, collectors, PostgreSQL and the S3 server. `--short` sends a quarter.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

from _payload import body
from _served import TICKS_PER_S, Server
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from lake_servers import BUCKET, SOURCES, LakeCollector, Postgres, SeaweedFS, lake_python  # noqa: E402

SPANS = 2_048
CONNECTIONS = 4
"""To each ingesting process."""
RULE = '[[rule]]\nname = "sampled"\nevaluators = ["groundedness"]\nrate = 0.01\n'
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
TABLES = ("spans", "contents", "contexts")


class Collector(Protocol):
    """What is sent to and asked: a process over a file or over the lake."""

    def connection(self) -> HTTPConnection: ...


@dataclass
class Load:
    """What sending every body once came to."""

    wall_s: float
    acks: list[float]
    cpu_s: dict[str, float] = field(default_factory=dict)

    def told(self, spans: int) -> str:
        cuts = quantiles(self.acks, n=100)
        shares = ", ".join(f"{name} {used / spans * 1e5:.1f}" for name, used in self.cpu_s.items())
        return (
            f"{spans / self.wall_s:>7,.0f} spans/s; CPU-s per 100,000 spans: {shares}\n"
            f"    ack p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms, max {max(self.acks) * 1e3:.0f} ms"
        )


class Figures(NamedTuple):
    """What PostgreSQL knows of a lake; files, bytes and rows are those of spans and texts."""

    commits: int
    catalog: int
    files: int
    size: int
    rows: int

    def told(self, before: Figures, load: Load) -> str:
        """What one load added."""
        commits, files = self.commits - before.commits, self.files - before.files
        return (
            f"{commits / load.wall_s:.1f} commits/s,"
            f" {(self.catalog - before.catalog) / commits / 1024:.1f} KiB of catalog each;"
            f" {files} files of spans and texts, {(self.rows - before.rows) / files:,.0f} rows and"
            f" {(self.size - before.size) / files / 1024:,.0f} KiB each"
        )


def main() -> None:
    """Make the bodies once, run the embedded file, then lakes with one and two ingesting processes."""
    if len(sys.argv) == 3 and sys.argv[1] == "maintain":
        maintain(sys.argv[2])
        return
    count = 24 if "--short" in sys.argv else 96
    requests = [ExportTraceServiceRequest.FromString(body(SPANS, seed=seed)) for seed in range(count)]
    spans = SPANS * count
    python = lake_python()
    with tempfile.TemporaryDirectory() as place, Postgres() as catalog, SeaweedFS(python) as files:
        folder = Path(place)
        (folder / "rule.toml").write_text(RULE)
        print(f"{spans:,} spans in gzip bodies of {SPANS:,}, {CONNECTIONS} connections to each ingesting process")
        base = embedded(folder, requests, spans)
        for processes in (1, 2):
            run = Lake(f"n{processes}", python, catalog, files, folder)
            run.measure(processes, requests, spans, base)


def embedded(folder: Path, requests: list[ExportTraceServiceRequest], spans: int) -> Load:
    """One process over one file with every role."""
    server = Server(folder / "t.duckdb", "--config", str(folder / "rule.toml"))
    cpu = server.cpu_s()
    load = send([server], bodies(requests))
    load.cpu_s = {"collector": server.cpu_s() - cpu}
    _check(server, spans)
    print(f"embedded, all roles:\n  {load.told(spans)}")
    print(f"    questions, ms: {_times(server)}")
    server.stop()
    return load


class Lake:
    """One lake, with a database and a prefix of its own."""

    def __init__(self, name: str, python: Path, catalog: Postgres, files: SeaweedFS, folder: Path) -> None:
        self._python, self._catalog, self._files, self._folder = python, catalog, files, folder
        self._name = name
        self._db = f"ducklake:postgres:{catalog.database(name)} data_path=s3://{BUCKET}/{name}/"

    def measure(self, processes: int, requests: list[ExportTraceServiceRequest], spans: int, base: Load) -> None:
        """Send everything twice, merge between; print figures and ratios."""
        with ExitStack() as running:
            leader = self._serve(running, "evaluate,maintain")
            ingest = [self._serve(running, "ingest") for _ in range(processes)]
            print(f"lake, {processes} ingesting and one that decides:")
            for number in (1, 2):
                before, deciding = self._figures(), _cpu_s(leader.process.pid)
                load = self._load(ingest, requests)
                _check(ingest[0], spans * number)
                after = self._figures()
                print(
                    f"  {load.told(spans)}\n    {base.wall_s / load.wall_s:.2f} of embedded; {after.told(before, load)}"
                )
                _until_decided(ingest[0], spans * number // 4)
                deciding = _cpu_s(leader.process.pid) - deciding
                print(f"    decided with {deciding / spans * 1e5:.1f} CPU-s per 100,000 spans")
                print(f"    questions, ms: {_times(ingest[0])}")
                begun = time.perf_counter()
                self._maintain()
                took, merged = time.perf_counter() - begun, self._figures()
                shrunk = f"{after.files} -> {merged.files} files, {merged.size / spans / number:.0f} B/span"
                print(f"    merged in {took:.1f} s: {shrunk}")
                print(f"    questions, ms: {_times(ingest[0])}")

    def _serve(self, running: ExitStack, roles: str) -> LakeCollector:
        options = ("--roles", roles, "--config", str(self._folder / "rule.toml"))
        started = LakeCollector(self._python, self._db, self._files, *options, folder=self._folder)
        running.callback(started.stop)
        return started

    def _load(self, ingest: list[LakeCollector], requests: Any) -> Load:
        used: dict[str, Callable[[], float]] = {
            "ingest": lambda: sum(_cpu_s(one.process.pid) for one in ingest),
            "PostgreSQL": lambda: _cpu_s(self._catalog.pid),
            "S3 server": lambda: _cpu_s(self._files.pid),
        }
        made = bodies(requests)
        before = {name: read() for name, read in used.items()}
        load = send(ingest, made)
        load.cpu_s = {name: read() - before[name] for name, read in used.items()}
        return load

    def _figures(self) -> Figures:
        found = self._catalog.ask(
            self._name,
            f"""SELECT (SELECT count(*) FROM ducklake_snapshot), pg_database_size('{self._name}'), count(*),
                       coalesce(sum(f.file_size_bytes), 0), coalesce(sum(f.record_count), 0)
                FROM ducklake_data_file f JOIN ducklake_table t USING (table_id)
                WHERE t.table_name IN {TABLES} AND f.end_snapshot IS NULL AND t.end_snapshot IS NULL""",
        )[0]
        return Figures(*map(int, found))

    def _maintain(self) -> None:
        environ = os.environ | self._files.environ | {"PYTHONPATH": SOURCES}
        subprocess.run([str(self._python), __file__, "maintain", self._db], check=True, env=environ)


def maintain(db: str) -> None:
    """In the lake's environment: what the leased process does every five minutes."""
    from ragpulse_collector.records import Batch
    from ragpulse_collector.store import open_store
    from ragpulse_collector.store.lake.store import LakeStore

    store = open_store(db, decode=lambda _: Batch())
    assert isinstance(store, LakeStore)
    store.maintain(keep_s=0)
    store.close()


def bodies(requests: list[ExportTraceServiceRequest]) -> deque[bytes]:
    """The same spans with the time of this run, as live traffic has, and ids of their own."""
    made: deque[bytes] = deque()
    now = time.time_ns() + 5 * 10**9
    for number, request in enumerate(requests):
        for span in (s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans):
            took = span.end_time_unix_nano - span.start_time_unix_nano
            span.start_time_unix_nano = now + number * 10**7
            span.end_time_unix_nano = span.start_time_unix_nano + took
            span.trace_id = (now % 2**32).to_bytes(4, "big") + span.trace_id[4:]
        made.append(gzip.compress(request.SerializeToString(), 1))
    return made


def send(collectors: list[Any], waiting: deque[bytes]) -> Load:
    """Send every body once, round robin, through connections that are kept; what is refused is sent again."""
    acks: list[float] = []
    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS * len(collectors)) as pool:
        for number in range(CONNECTIONS * len(collectors)):
            pool.submit(_send, collectors[number % len(collectors)], waiting, acks)
    return Load(time.perf_counter() - begun, acks)


def _send(collector: Collector, waiting: deque[bytes], acks: list[float]) -> None:
    with closing(collector.connection()) as connection:
        while waiting:
            try:
                made = waiting.popleft()
            except IndexError:
                return
            begun = time.perf_counter()
            while _post(connection, made) != 200:
                time.sleep(1)
            acks.append(time.perf_counter() - begun)


def _post(connection: HTTPConnection, made: bytes) -> int:
    connection.request("POST", "/v1/traces", made, HEADERS)
    response = connection.getresponse()
    response.read()
    return response.status


def _check(collector: Collector, spans: int) -> None:
    found = _sql(collector, "SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans")
    assert found == [[spans, spans]], (found, spans)


def _until_decided(collector: Collector, traces: int) -> None:
    until = time.monotonic() + 120
    while _sql(collector, "SELECT count(*) FROM raw.trace_facts WHERE latest")[0][0] < traces:
        if time.monotonic() > until:
            raise SystemExit("the traces were not decided within two minutes")
        time.sleep(0.5)


def _times(collector: Collector) -> str:
    """Median of five, over HTTP."""
    newest = _get(collector, "/api/v1/traces?limit=1")["traces"][0]
    at = newest["start_time"]
    hourly = (
        "SELECT time_bucket(INTERVAL 1 HOUR, start_time), quantile_cont(duration_us, [0.5, 0.95, 0.99])"
        " FROM raw.spans GROUP BY 1"
    )
    asked: dict[str, Callable[[], object]] = {
        "trace list": lambda: _get(collector, "/api/v1/traces?limit=50"),
        "hourly percentiles": lambda: _sql(collector, hourly),
        "trace by id and time": lambda: _get(collector, f"/api/v1/traces/{newest['trace_id']}?at={at}"),
    }
    return ", ".join(f"{name} {median(_timed(ask) for _ in range(5)) * 1e3:.0f}" for name, ask in asked.items())


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _get(collector: Collector, path: str) -> Any:
    with closing(collector.connection()) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read()
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status} {text.decode()}")
    return json.loads(text)


def _sql(collector: Collector, query: str) -> list[list[Any]]:
    with closing(collector.connection()) as connection:
        connection.request("POST", "/api/v1/sql", json.dumps({"query": query}), {"Content-Type": "application/json"})
        rows: list[list[Any]] = json.loads(connection.getresponse().read())["rows"]
    return rows


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and all that it started, ended ones included."""
    fields = dict(_stats())
    ours, size = {pid}, 0
    while len(ours) != size:
        size = len(ours)
        ours |= {child for child, stat in fields.items() if int(stat[1]) in ours}
    ticks = sum(int(value) for one in ours if one in fields for value in fields[one][11:13])
    return (ticks + sum(int(value) for value in fields[pid][13:15])) / TICKS_PER_S


def _stats() -> Iterator[tuple[int, list[str]]]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            yield int(place.name), (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue


if __name__ == "__main__":
    main()
