"""The lake under load: ingesting processes over PostgreSQL and S3, and the one leased process that decides.

Measures one and two ingesting processes behind a round-robin client, and in the same run one process over the embedded
file (the ratio). Prints stored spans a second, CPU by process, acks, commits, files, rows a file, bytes a span, the
catalog's growth, and queries before and after merging. Client, collectors, PostgreSQL and the S3 server share this
machine. `--short` sends a quarter.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from _payload import body
from _sending import CONNECTIONS, Load
from _served import TICKS_PER_S, HasConnection, Server, elapsed_s, get_json, sql
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from environments import SOURCES  # noqa: E402
from lake_servers import BUCKET, LakeCollector, Postgres, SeaweedFS, lake_python  # noqa: E402

SPANS = 2_048
RULE = 'offline = false\n[[rule]]\nname = "sampled"\nevaluators = ["groundedness"]\nrate = 0.01\n'
TABLES = ("spans", "contents", "contexts")


class Catalog(NamedTuple):
    """The size of a lake, by its catalog; files, bytes and rows are those of spans and texts."""

    commits: int
    catalog: int
    files: int
    size: int
    rows: int

    def growth_text(self, before: Catalog, wall_s: float) -> str:
        """What one load added."""
        commits, files = self.commits - before.commits, self.files - before.files
        return (
            f"{commits / wall_s:.1f} commits/s,"
            f" {(self.catalog - before.catalog) / commits / 1024:.1f} KiB of catalog each;"
            f" {files} files of spans and texts, {(self.rows - before.rows) / files:,.0f} rows and"
            f" {(self.size - before.size) / files / 1024:,.0f} KiB each"
        )


def main() -> None:
    """Make the bodies once; measure the embedded file, then lakes with one and two ingesting processes."""
    if len(sys.argv) == 3 and sys.argv[1] == "maintain":
        maintain(sys.argv[2])
        return
    count = 24 if "--short" in sys.argv else 96
    requests = [ExportTraceServiceRequest.FromString(body(SPANS, seed=seed)) for seed in range(count)]
    spans = SPANS * count
    python = lake_python()
    with tempfile.TemporaryDirectory() as temporary, Postgres() as postgres, SeaweedFS(python) as s3:
        folder = Path(temporary)
        (folder / "rule.toml").write_text(RULE)
        print(f"{spans:,} spans in gzip bodies of {SPANS:,}, {CONNECTIONS} connections to each ingesting process")
        embedded_s = embedded(folder, requests, spans)
        for processes in (1, 2):
            lake = Lake(f"n{processes}", python, postgres, s3, folder)
            lake.measure(processes, requests, spans, embedded_s)


def embedded(folder: Path, requests: list[ExportTraceServiceRequest], spans: int) -> float:
    """Send to one process over one file with every role; return the wall seconds."""
    server = Server(folder / "t.duckdb", "--config", str(folder / "rule.toml"))
    cpu_s = server.cpu_s()
    load = send([server], bodies(requests))
    cpu = {"collector": server.cpu_s() - cpu_s}
    _check(server, spans)
    print(f"embedded, all roles:\n  {_load_text(load, cpu, spans)}")
    print(f"    queries, ms: {_query_times(server)}")
    server.stop()
    return load.wall_s


class Lake:
    """One lake, with a database and a prefix of its own."""

    def __init__(self, name: str, python: Path, postgres: Postgres, s3: SeaweedFS, folder: Path) -> None:
        self._python, self._postgres, self._s3, self._folder = python, postgres, s3, folder
        self._name = name
        self._db = f"ducklake:postgres:{postgres.database(name)} data_path=s3://{BUCKET}/{name}/"

    def measure(self, processes: int, requests: list[ExportTraceServiceRequest], spans: int, embedded_s: float) -> None:
        """Send everything twice, merge between; print figures and ratios."""
        with ExitStack() as stack:
            leader = self._serve(stack, "evaluate,maintain")
            ingest = [self._serve(stack, "ingest") for _ in range(processes)]
            print(f"lake, {processes} ingesting and one that decides:")
            for number in (1, 2):
                before, leader_cpu_s = self._catalog(), _cpu_s(leader.process.pid)
                load, cpu = self._load(ingest, requests)
                _check(ingest[0], spans * number)
                after = self._catalog()
                print(
                    f"  {_load_text(load, cpu, spans)}\n    {embedded_s / load.wall_s:.2f} of embedded;"
                    f" {after.growth_text(before, load.wall_s)}"
                )
                _wait_until_decided(ingest[0], spans * number // 4)
                leader_cpu_s = _cpu_s(leader.process.pid) - leader_cpu_s
                print(f"    decided with {leader_cpu_s / spans * 1e5:.1f} CPU-s per 100,000 spans")
                print(f"    queries, ms: {_query_times(ingest[0])}")
                merge_s = elapsed_s(self._maintain)
                merged = self._catalog()
                shrunk = f"{after.files} -> {merged.files} files, {merged.size / spans / number:.0f} B/span"
                print(f"    merged in {merge_s:.1f} s: {shrunk}")
                print(f"    queries, ms: {_query_times(ingest[0])}")

    def _serve(self, stack: ExitStack, roles: str) -> LakeCollector:
        options = ("--roles", roles, "--config", str(self._folder / "rule.toml"))
        collector = LakeCollector(self._python, self._db, self._s3, *options, folder=self._folder)
        stack.callback(collector.stop)
        return collector

    def _load(
        self, ingest: list[LakeCollector], requests: list[ExportTraceServiceRequest]
    ) -> tuple[Load, dict[str, float]]:
        """Send every body; return the load and the CPU seconds of each program."""
        cpu: dict[str, Callable[[], float]] = {
            "ingest": lambda: sum(_cpu_s(collector.process.pid) for collector in ingest),
            "PostgreSQL": lambda: _cpu_s(self._postgres.pid),
            "S3 server": lambda: _cpu_s(self._s3.pid),
        }
        content = bodies(requests)
        before = {name: read() for name, read in cpu.items()}
        load = send(ingest, content)
        return load, {name: read() - before[name] for name, read in cpu.items()}

    def _catalog(self) -> Catalog:
        row = self._postgres.ask(
            self._name,
            f"""SELECT (SELECT count(*) FROM ducklake_snapshot), pg_database_size('{self._name}'), count(*),
                       coalesce(sum(f.file_size_bytes), 0), coalesce(sum(f.record_count), 0)
                FROM ducklake_data_file f JOIN ducklake_table t USING (table_id)
                WHERE t.table_name IN {TABLES} AND f.end_snapshot IS NULL AND t.end_snapshot IS NULL""",
        )[0]
        return Catalog(*map(int, row))

    def _maintain(self) -> None:
        environ = os.environ | self._s3.environ | {"PYTHONPATH": SOURCES}
        subprocess.run([str(self._python), __file__, "maintain", self._db], check=True, env=environ)


def maintain(db: str) -> None:
    """Do what the leased process does every five minutes; runs in the lake's environment."""
    from ragpulse_collector.records import Batch
    from ragpulse_collector.store import open_store
    from ragpulse_collector.store.lake import LakeStore

    store = open_store(db, decode=lambda _: Batch())
    assert isinstance(store, LakeStore)
    store.maintain(keep_s=0)
    store.close()


def bodies(requests: list[ExportTraceServiceRequest]) -> list[bytes]:
    """Return the same spans with the time of this run, as live traffic has, and new trace ids."""
    content = []
    now = time.time_ns() + 5 * 10**9
    for number, request in enumerate(requests):
        for span in (s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans):
            duration = span.end_time_unix_nano - span.start_time_unix_nano
            span.start_time_unix_nano = now + number * 10**7
            span.end_time_unix_nano = span.start_time_unix_nano + duration
            span.trace_id = (now % 2**32).to_bytes(4, "big") + span.trace_id[4:]
        content.append(gzip.compress(request.SerializeToString(), 1))
    return content


def send(collectors: Sequence[HasConnection], content: list[bytes]) -> Load:
    """Send every body once, over connections to each collector; a refused body is sent again."""
    load = Load(content)
    load.send_all([collector.connection for collector in collectors] * CONNECTIONS)
    return load


def _load_text(load: Load, cpu: dict[str, float], spans: int) -> str:
    shares = ", ".join(f"{name} {cpu_s / spans * 1e5:.1f}" for name, cpu_s in cpu.items())
    return f"{spans / load.wall_s:>7,.0f} spans/s; CPU-s per 100,000 spans: {shares}\n    {load.acks_text()}"


def _check(collector: HasConnection, spans: int) -> None:
    counts = sql(collector, "SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans")
    assert counts == [[spans, spans]], (counts, spans)


def _wait_until_decided(collector: HasConnection, traces: int) -> None:
    deadline = time.monotonic() + 600
    while sql(collector, "SELECT count(*) FROM raw.trace_facts WHERE latest")[0][0] < traces:
        if time.monotonic() > deadline:
            raise SystemExit("the traces were not decided within ten minutes")
        time.sleep(0.5)


def _query_times(collector: HasConnection) -> str:
    """Median milliseconds of five answers to each query, over HTTP."""
    newest = get_json(collector, "/api/v1/traces?limit=1")["traces"][0]
    start_time = newest["start_time"]
    hourly = (
        "SELECT time_bucket(INTERVAL 1 HOUR, start_time), quantile_cont(duration_us, [0.5, 0.95, 0.99])"
        " FROM raw.spans GROUP BY 1"
    )
    queries: dict[str, Callable[[], object]] = {
        "trace list": lambda: get_json(collector, "/api/v1/traces?limit=50"),
        "hourly percentiles": lambda: sql(collector, hourly),
        "trace by id and time": lambda: get_json(collector, f"/api/v1/traces/{newest['trace_id']}?at={start_time}"),
    }
    return ", ".join(f"{name} {median(elapsed_s(run) for _ in range(5)) * 1e3:.0f}" for name, run in queries.items())


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and all that it started, ended ones included."""
    fields = dict(_process_stats())
    pids, size = {pid}, 0
    while len(pids) != size:
        size = len(pids)
        pids |= {child for child, stat in fields.items() if int(stat[1]) in pids}
    ticks = sum(int(value) for each in pids if each in fields for value in fields[each][11:13])
    return (ticks + sum(int(value) for value in fields[pid][13:15])) / TICKS_PER_S


def _process_stats() -> Iterator[tuple[int, list[str]]]:
    """Each running process with the fields of its `/proc/PID/stat`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield int(process.name), (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue


if __name__ == "__main__":
    main()
