"""The queries of the pages over a large store, quiet and during ingest, beside a bare scan of the same columns.

Builds the data itself (four spans a trace over seven days): `queries.py` 10 million spans, `--short` 200,000. Prints
milliseconds (median of seven) and the ratio to the floor: a count over the same day's rows.

`--api` asks a real `ragpulse serve` over HTTP instead, at 200,000 spans (`--spans N`), on one connection: quiet, then
beside a process that sends 2,000 and 5,000 spans a second, once as a receiver alone and once with all roles; `--runs N`
requests of each kind (60). The floor is `/healthz`. The last column is the CPU of the collector for one answer, quiet.

`--documents` asks for the documents of 102,000 traces that retrieved 400,000 different ones, in each order, and for
their page; the goal of the page is 1.5 s.

`--explain` asks why answers are bad, and requests slow, expensive or failed, and what changed since the middle, over a
week of 102,000 traces with 2,000 documents, tags and 10,000 metadata keys: the answer and its page; the goal is 2 s.

`--lists` makes and encodes `GET traces` over 100,000 traces in process: CPU of an answer with 50 and 1,000 rows.
With `--against FOLDER`, another checkout, the two take turns.

`--tags` asks for the trace list of two stores in turn: one plain, one whose traces carry tags, a release and metadata
with 10,000 different keys; the goal is 1.1 times the plain list. It also times the list with each filter.
"""

from __future__ import annotations

import argparse
import http.client
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from _sending import Sending
from _served import Server, elapsed_s, get

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.records import Batch, Constant, RawBody, SpanBatch
from ragpulse_collector.store import EmbeddedStore

END = datetime(2026, 3, 8)
DAY = END - timedelta(days=1)
WEEK = timedelta(days=7)
RATE = 5_000

_IDS = "md5((i // 4)::VARCHAR)::UUID"
_AT = "TIMESTAMP '{begin}' + to_microseconds(((i // 4) * {step})::BIGINT)"

FILL = {
    "spans": f"""
        INSERT INTO raw.spans BY NAME
        SELECT {_IDS} AS trace_id, i::UBIGINT AS span_id, CASE WHEN i % 4 > 0 THEN i - i % 4 END::UBIGINT
               AS parent_span_id, {_AT} AS start_time, {_AT} AS received_at, (hash(i) % 2000000)::BIGINT AS duration_us,
               ['answer', 'search', 'embed', 'chat'][i % 4 + 1] AS name,
               ['rag', 'retriever', 'embedding', 'llm'][i % 4 + 1] AS kind, 'helpdesk' AS service, 'unset' AS status,
               CASE WHEN i % 4 = 3 THEN 'gpt-5-mini' END AS model, CASE WHEN i % 4 = 3 THEN 700 END AS input_tokens,
               CASE WHEN i % 4 = 3 THEN 0.001 END AS cost_usd, 'v' || (i // 4 % 3) AS prompt_version,
               1.0 AS upstream_pi, '{{{{}}}}' AS attributes, '{{{{}}}}' AS resource, '{{{{}}}}' AS mapped_from
        FROM range({{lo}}, {{hi}}) t(i)""",
    "contents": f"""
        INSERT INTO raw.contents BY NAME
        SELECT {_IDS} AS trace_id, i::UBIGINT AS span_id, {_AT} AS start_time, 'how do I return item ' || i AS query,
               repeat('within thirty days of delivery ' || i || ' ', 20) AS response
        FROM range({{lo}}, {{hi}}) t(i) WHERE i % 4 = 0""",
    "trace_facts": f"""
        INSERT INTO raw.trace_facts BY NAME
        SELECT {_IDS} AS trace_id, 0 AS revision, true AS latest, {_AT} AS decided_at, i::UBIGINT AS unit_span_id,
               {_AT} AS start_time, (hash(i) % 2000000) / 1000.0 AS latency_ms, 'helpdesk' AS service, 'answer' AS name,
               'v' || (i // 4 % 3) AS prompt_version, 'gpt-5-mini' AS model, 700 AS input_tokens, 0.001 AS cost_usd,
               false AS error, 4 AS n_spans, 1 AS n_units, 0 AS late_spans, 1.0 AS upstream_pi,
               'how do I return item ' || i AS query, repeat('within thirty days of delivery ', 20) AS response
        FROM range({{lo}}, {{hi}}) t(i) WHERE i % 4 = 0""",
    "decisions": f"""
        INSERT INTO raw.decisions BY NAME
        SELECT {_IDS} AS trace_id, i::UBIGINT AS span_id, {_AT} AS request_time, 'groundedness' AS evaluator,
               'offline' AS rule, 1.0 AS pi, 0.5 AS u, true AS sampled, 'sampled' AS reason, 0 AS revision,
               true AS latest
        FROM range({{lo}}, {{hi}}) t(i) WHERE i % 4 = 0""",
    "scores": f"""
        INSERT INTO raw.scores BY NAME
        SELECT i::VARCHAR AS score_key, {_IDS} AS trace_id, i::UBIGINT AS span_id, {_AT} AS request_time,
               'groundedness' AS evaluator, '1' AS version, 'online' AS source, 'ok' AS status,
               (hash(i) % 100) / 100.0 AS score, (hash(i) % 100) / 100.0 AS normalized
        FROM range({{lo}}, {{hi}}) t(i) WHERE i % 4 = 0""",
}
_DOC = "(i + rank) % 400000"
_USES = {"'groundedness'": "'context_utilization'", "i::VARCHAR": "'u' || i"}


def _of_uses(statement: str) -> str:
    """The statement for scores of `context_utilization`."""
    for before, after in _USES.items():
        statement = statement.replace(before, after)
    return statement.replace("'ok' AS status", "'ok' AS status, '{{\"used\": [' || (1 + i // 4 % 4) || ']}}' AS parts")


FILL_DOCUMENTS = {
    "contexts": f"""
        INSERT INTO raw.contexts BY NAME
        SELECT {_IDS} AS trace_id, (i + 1)::UBIGINT AS span_id, {_AT} AS start_time, rank::INTEGER AS rank,
               'doc-' || {_DOC} AS id, 'chunk ' || {_DOC} || repeat(' within thirty days of delivery', 12) AS text,
               md5('chunk ' || {_DOC}) AS hash
        FROM range({{lo}}, {{hi}}) t(i), range(4) r(rank) WHERE i % 4 = 0""",
    "decisions": _of_uses(FILL["decisions"]),
    "scores": _of_uses(FILL["scores"]),
}
"""Four documents a trace, each retrieved once or twice, and which of them the answer used."""

LABELS = """
        UPDATE raw.trace_facts SET release = '1.4.' || (unit_span_id // 4 % 3),
               tags = ['beta', 'team-' || (unit_span_id // 4 % 20)],
               metadata = MAP {'tenant': 'tenant-' || (unit_span_id // 4 % 50),
                               'key-' || (unit_span_id // 4 % 10000): 'value'}"""
FILTERS = ("", "tag=team-7", "metadata.tenant=tenant-7", "metadata.key-77=value", "release=1.4.1")

LIST = "trace list, newest 50, with scores"
QUERIES: dict[str, tuple[str, int]] = {
    "floor: count of the last day's rows": (
        "SELECT count(*), sum(duration_us) FROM raw.spans WHERE start_time >= $day", 0),
    LIST: ("GET traces", 40),
    "the whole view ordered": ("SELECT * FROM traces ORDER BY start_time DESC LIMIT 50", 0),
    "24 h per minute, exact p50 p95 p99": (
        "SELECT time_bucket(INTERVAL 1 MINUTE, start_time), count(*), quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
        " FROM raw.trace_facts WHERE latest AND start_time >= $day GROUP BY 1", 100),
    "the same over all spans": (
        "SELECT time_bucket(INTERVAL 1 MINUTE, start_time), count(*), quantile_cont(duration_us, [0.5, 0.95, 0.99])"
        " FROM raw.spans WHERE start_time >= $day GROUP BY 1", 100),
    "7 d per hour, exact p50 p95 p99": (
        "SELECT time_bucket(INTERVAL 1 HOUR, start_time), count(*), quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
        " FROM raw.trace_facts WHERE latest GROUP BY 1", 0),
    "a trace by id with its time": (
        "SELECT * FROM raw.spans WHERE trace_id = $trace::UUID AND start_time BETWEEN $at - INTERVAL 1 HOUR"
        " AND $at + INTERVAL 1 HOUR", 20),
    "a trace by id": ("SELECT * FROM trace($trace)", 150),
    "quality of the last day": ("FROM quality('groundedness', $day, $day + INTERVAL 1 DAY)", 0),
    "text search, last day": ("SELECT trace_id FROM raw.contents WHERE start_time >= $day AND query ILIKE '%m 99%'", 0),
}  # fmt: skip
"""Name → a query, or an operation, and the goal in milliseconds at ten million spans (0: no goal)."""
REQUESTS = {
    "floor: /healthz": ("/healthz", 0),
    "trace list, newest 50": ("/api/v1/traces?limit=50", 20),
    "hourly p50 p95 p99, 7 d": (
        "/api/v1/metrics?name=latency_p50&name=latency_p95&name=latency_p99&from=-7d&step=1h", 25),
    "hourly p50 p95 p99, 24 h": (
        "/api/v1/metrics?name=latency_p50&name=latency_p95&name=latency_p99&from=-24h&step=1h", 25),
}  # fmt: skip
"""Name → a path, and the goal in milliseconds at 200,000 spans during ingest (0: no goal)."""
RATES = (0, 2_000, 5_000)
DOCUMENTS = {
    **{
        f"GET documents, {sort}": f"/api/v1/documents?sort={sort}"
        for sort in ("retrieved", "worst", "best", "unused", "stale")
    },
    "page /documents, 7 d": "/documents?from=-7d",
}
EXPLAIN = {
    f"{name} of {metric}": f"{path}?from=-7d&metric={metric}&bad=true"
    for metric in ("quality:groundedness", "latency_p95", "cost_usd", "errors")
    for name, path in (("GET explain", "/api/v1/explain"), ("page /explain", "/explain"))
} | {
    f"{name} of {metric} since half of it": f"{path}?from=-7d&metric={metric}&at=-84h"
    for metric in ("quality:groundedness", "latency_p95", "latency_p50", "cost_usd", "error_rate")
    for name, path in (("GET explain", "/api/v1/explain"), ("page /explain", "/explain"))
}


def main() -> None:
    """Measure in process, or over HTTP with an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--api", action="store_true")
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--tags", action="store_true")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--against", type=Path, help="with --lists")
    parser.add_argument("--spans", type=int, default=200_000, help="with --api")
    parser.add_argument("--runs", type=int, default=60, help="with --api")
    options = parser.parse_args()
    if options.documents:
        return over_documents(400_000, DOCUMENTS, 7)
    if options.explain:
        return over_documents(2_000, EXPLAIN, 7, labels=True)
    if options.lists:
        return lists(options.against)
    if options.tags:
        return tags(options.spans, options.runs)
    if not options.api:
        return in_process(200_000 if options.short else 10_000_000)
    for roles in ((), ("--roles", "ingest")):
        with tempfile.TemporaryDirectory() as folder:
            over_http(Path(folder) / "t.duckdb", options.spans, 10 if options.short else options.runs, roles)
    return None


def in_process(spans: int) -> None:
    """Fill a store; time the queries quiet and during ingest at 5,000 spans a second."""
    with tempfile.TemporaryDirectory() as folder:
        store = _open(Path(folder) / "t.duckdb")
        fill(store, spans)
        size = store.size_bytes()
        middle = spans // 8 * 4
        parameters = {"day": DAY, "at": _start_of(middle // 4, spans), "trace": _trace_id(store, middle)}
        print(f"{spans:,} spans, {size / 2**20:,.0f} MB ({size / spans:.0f} B/span)")
        quiet = query_ms(store, parameters)
        stop = threading.Event()
        writer = threading.Thread(target=ingest, args=(store, stop))
        writer.start()
        time.sleep(2)
        busy = query_ms(store, parameters)
        stop.set()
        writer.join()
        store.close()
    floor = quiet["floor: count of the last day's rows"]
    print(f"{'':38} {'quiet ms':>9} {'x floor':>8} {'ingest ms':>10}  goal at 10 M")
    for name, (_, goal) in QUERIES.items():
        print(f"{name:38} {quiet[name]:9.1f} {quiet[name] / floor:8.1f} {busy[name]:10.1f}  {goal or '':>5}")


def over_http(db: Path, spans: int, runs: int, roles: tuple[str, ...]) -> None:
    """Serve so many spans; time the requests quiet and while more arrive."""
    store = _open(db)
    fill(store, spans, end=_now())
    store.close()
    server = Server(db, *roles)
    with closing(server.connection()) as connection:
        cpu = {name: _cpu_ms(server, connection, path) for name, (path, _) in REQUESTS.items()}
        results = [_at_rate(server, connection, rate, runs) for rate in RATES]
    server.stop()
    print(f"{spans:,} spans stored, {roles[-1] if roles else 'all'} roles; median and p95 in ms by accepted spans/s")
    rates = [f"{accepted:,}" if accepted else "quiet" for accepted, _ in results]
    print(f"{'':26}" + "".join(f"{rate:>16}" for rate in rates) + f"{'goal':>6}{'CPU ms':>8}")
    for name, (_, goal) in REQUESTS.items():
        cells = "".join(f"{median(ms[name]):>9.1f}{quantiles(ms[name], n=20)[-1]:>7.1f}" for _, ms in results)
        print(f"{name:26}{cells}{goal or '':>6}{cpu[name]:>8.1f}")


def over_documents(different: int, paths: dict[str, str], runs: int, *, labels: bool = False) -> None:
    """Serve 102,000 traces that retrieved so many different documents; time each request in turn."""
    contexts = FILL_DOCUMENTS | {"contexts": FILL_DOCUMENTS["contexts"].replace("400000", str(different))}
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "t.duckdb"
        store = _open(db)
        fill(store, 408_000, end=_now(), tables=(*FILL.values(), *contexts.values()))
        if labels:
            store.write(lambda t: t.execute(LABELS)).result()
        counts = store.read("SELECT count(DISTINCT trace_id), count(DISTINCT id) FROM raw.contexts").rows[0]
        store.close()
        server = Server(db)
        with closing(server.connection()) as connection:
            times = {
                name: [elapsed_s(partial(get, connection, path)) * 1e3 for _ in range(runs)]
                for name, path in paths.items()
            }
        server.stop()
    print(f"{counts[0]:,} traces, {counts[1]:,} documents; ms of {runs} answers")
    print(f"{'':38}{'median':>8}{'best':>8}{'worst':>8}")
    for name, ms in times.items():
        print(f"{name:38}{median(ms):8.0f}{min(ms):8.0f}{max(ms):8.0f}")


LISTS = (50, 1_000)
_LISTS = """
import gc, sys, tempfile, time
from pathlib import Path
from statistics import median
sys.path.insert(0, "benchmarks")
from queries import TraceList, _open, fill, trace_list
from ragpulse_collector.api.http import json_response
gc.set_threshold(50_000, 10, 10)  # as the collector does
with tempfile.TemporaryDirectory() as folder:
    store = _open(Path(folder) / "t.duckdb")
    fill(store, 400_000)
    for limit in map(int, sys.argv[1:]):
        params, times = TraceList.parse({"limit": limit}), []
        for _ in range(60):
            begun = time.process_time()
            answer = json_response(trace_list(store, str, params))
            times.append(time.process_time() - begun)
        print(median(times) * 1e3, len(answer.body))
    store.close()
"""


def lists(other: Path | None) -> None:
    """Print the CPU of a list, and the ratio to another checkout, each in processes of its own that take turns."""
    here = Path(__file__).parents[1]
    runs: dict[Path, list[list[tuple[float, int]]]] = {root: [] for root in (here, other) if root}
    for _ in range(3):
        for root in runs:
            runs[root].append(_lists(root))
    print(f"{'rows':>6}" + "".join(f"{root.name:>24}" for root in runs) + "   CPU ms, bytes of the answer")
    for place, limit in enumerate(LISTS):
        ms = [median(run[place][0] for run in runs[root]) for root in runs]
        cells = "".join(f"{own:>12.2f}{runs[root][0][place][1]:>12,}" for own, root in zip(ms, runs, strict=True))
        print(f"{limit:>6}{cells}   {ms[0] / ms[-1]:.2f}")


def _lists(root: Path) -> list[tuple[float, int]]:
    packages = os.pathsep.join(str(root / name) for name in ("sdk", "collector", "evaluators", "dashboards"))
    command = [sys.executable, "-c", _LISTS, *map(str, LISTS)]
    out = subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": packages}, check=True, capture_output=True)
    return [(float(ms), int(size)) for ms, size in (line.split() for line in out.stdout.decode().splitlines())]


def tags(spans: int, runs: int) -> None:
    """Time the trace lists of a plain and of a labelled store in turn."""
    lists = [("plain", ""), *(("labelled", query) for query in FILTERS)]
    times: dict[tuple[str, str], list[float]] = {each: [] for each in lists}
    with tempfile.TemporaryDirectory() as folder:
        servers = {name: _serve(Path(folder) / f"{name}.duckdb", spans) for name in ("plain", "labelled")}
        connections = {name: server.connection() for name, server in servers.items()}
        for _ in range(runs):
            for name, query in lists:
                path = f"/api/v1/traces?limit=50&{query}"
                times[name, query].append(elapsed_s(partial(get, connections[name], path)) * 1e3)
        for name, server in servers.items():
            connections[name].close()
            server.stop()
    floor = median(times["plain", ""])
    print(f"{spans:,} spans; median ms of {runs} lists, ratio to the plain store's list")
    for (store, query), ms in times.items():
        print(f"{store:10} {query or 'newest 50':26}{median(ms):8.1f}{median(ms) / floor:8.2f}")


def _serve(path: Path, spans: int) -> Server:
    """Serve a filled store; the traces of `labelled` have tags, a release and metadata."""
    store = _open(path)
    fill(store, spans, end=_now())
    if path.stem == "labelled":
        store.write(lambda t: t.execute(LABELS)).result()
        store.read("CHECKPOINT")
    store.close()
    return Server(path)


def _at_rate(
    server: Server, connection: http.client.HTTPConnection, rate: int, runs: int
) -> tuple[int, dict[str, list[float]]]:
    """Send each request in turn while `rate` spans a second arrive; return accepted spans a second, milliseconds."""
    sending = Sending(server.port, rate) if rate else None
    time.sleep(3 if rate else 0)
    rng = random.Random(7)
    times: dict[str, list[float]] = {name: [] for name in REQUESTS}
    for _ in range(runs):
        for name, (path, _) in REQUESTS.items():
            time.sleep(rng.uniform(0.01, 0.05))
            times[name].append(elapsed_s(partial(get, connection, path)) * 1e3)
    return sending.stop()[0] if sending else 0, times


def _cpu_ms(server: Server, connection: http.client.HTTPConnection, path: str) -> float:
    """The collector's CPU for one answer, over fifty of them."""
    for _ in range(5):
        get(connection, path)
    before = server.cpu_s()
    for _ in range(50):
        get(connection, path)
    return (server.cpu_s() - before) / 50 * 1e3


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _open(path: Path) -> EmbeddedStore:
    return EmbeddedStore(path, decode=lambda body: pickle.loads(body.body))


def fill(
    store: EmbeddedStore,
    spans: int,
    *,
    end: datetime = END,
    long: timedelta = WEEK,
    tables: Collection[str] = tuple(FILL.values()),
) -> None:
    """Write the rows with SQL, a million at a time, in order of time; all traces are decided."""
    step = int(long.total_seconds()) * 1_000_000 // (spans // 4)
    for lo in range(0, spans, 1_000_000):
        for table in tables:
            statement = table.format(lo=lo, hi=min(lo + 1_000_000, spans), step=step, begin=end - long)
            store.write(lambda t, statement=statement: t.execute(statement)).result()
    low = end.isoformat(sep=" ")
    store.write(lambda t: t.execute("INSERT INTO raw.meta VALUES ('low_water', $low)", {"low": low})).result()
    store.read("CHECKPOINT")


def query_ms(store: EmbeddedStore, parameters: dict[str, object]) -> dict[str, float]:
    """Time each query."""
    times: dict[str, float] = {}
    for name, (query, _) in QUERIES.items():
        used = {key: value for key, value in parameters.items() if f"${key}" in query}
        run = partial(trace_list, store, TraceList()) if name == LIST else partial(store.read, query, used)
        times[name] = median(elapsed_s(run) for _ in range(7)) * 1e3
    return times


def ingest(store: EmbeddedStore, stop: threading.Event) -> None:
    """Store 5,000 spans a second, 500 a body."""
    number = 0
    while not stop.wait(500 / RATE):
        number += 1
        start_ns = int(END.timestamp() * 1e9) + number * 10**8
        rows, is_root = range(500), [n % 4 == 0 for n in range(500)]
        spans = SpanBatch(
            trace_ids=[bytes.fromhex(f"{number:016x}{n // 4:016x}") for n in rows],
            span_ids=[(n + 1).to_bytes(8) for n in rows],
            parent_span_ids=[None if n % 4 == 0 else (n - n % 4 + 1).to_bytes(8) for n in rows],
            columns={
                "name": Constant("n", 500), "start_ns": [start_ns] * 500, "end_ns": [start_ns + 10**8] * 500,
                "kind": ["rag" if root else "other" for root in is_root],
                "query": ["q" * 80 if root else None for root in is_root],
                "response": ["r" * 800 if root else None for root in is_root],
            },
        )  # fmt: skip
        body = RawBody(signal="traces", content_type="application/json", body=pickle.dumps(Batch(spans=[spans])))
        store.submit(body).result()


def _trace_id(store: EmbeddedStore, span: int) -> str:
    rows = store.read("SELECT replace(trace_id::VARCHAR, '-', '') FROM raw.spans WHERE span_id = ?", [span]).rows
    return str(rows[0][0])


def _start_of(trace: int, spans: int) -> datetime:
    return END - WEEK + trace * (WEEK // (spans // 4))


if __name__ == "__main__":
    main()
