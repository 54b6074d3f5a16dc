"""CPU of the overview's data over a large store, beside a bare scan of the columns of its charts.

    python benchmarks/series.py [--short]

Builds the data itself: a million spans (--short 100,000), four to a trace, over seven days, every trace scored by four
evaluators. Prints CPU milliseconds (this process, all threads) of the first view, of one ten seconds later, and of one
while 5,000 spans a second arrive; for a day, with a filter, and for the week.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import queries
from queries import END

from ragpulse_collector.analysis.cache import Snapshot, Snapshots
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.series import series
from ragpulse_collector.api.models import Buckets
from ragpulse_collector.store import EmbeddedStore

EVALUATORS = ("groundedness", "context_utilization", "citation_check", "refusal")
TRAFFIC = (
    "requests", "errors", "latency_p50", "latency_p95", "latency_p99", "cost_usd", "input_tokens", "output_tokens",
)  # fmt: skip
QUALITY = tuple(f"quality:{name}" for name in EVALUATORS)
GOAL_MS = 100

SCORED = f"""
    INSERT INTO raw.{{table}} BY NAME
    SELECT trace_id, unit_span_id AS span_id, start_time AS request_time, evaluator, {{columns}}
    FROM raw.trace_facts, (SELECT unnest({list(EVALUATORS)}) AS evaluator) ORDER BY start_time"""
JOB = "md5(evaluator || trace_id::VARCHAR)::UUID AS job_id"
FILL = {
    "eval_jobs": f"{JOB}, 'online' AS source, 0.5 AS u, start_time AS created_at",
    "decisions": "'offline' AS rule, 'p' AS policy, 1.0 AS pi, 0.5 AS u, true AS sampled, 'sampled' AS reason,"
    " start_time AS decided_at, 0 AS revision, true AS latest",
    "scores": f"{JOB}, evaluator || start_time::VARCHAR AS score_key, '1' AS version, 'online' AS source,"
    " 'ok' AS status, 1 AS attempt, hash(trace_id, evaluator) % 100 >= 10 AS passing, start_time AS created_at,"
    " CASE WHEN hash(trace_id, evaluator) % 100 >= 10 THEN 1.0 ELSE (hash(trace_id) % 10) / 10.0 END AS normalized",
}
FLOOR = (
    "SELECT count(*), sum(latency_ms), sum(cost_usd), sum(input_tokens), sum(output_tokens) FROM raw.trace_facts"
    " WHERE latest AND start_time >= $first",
    "SELECT evaluator, count(*), sum(normalized) FROM raw.scores WHERE status = 'ok' AND request_time >= $first"
    " GROUP BY evaluator",
    "SELECT evaluator, count(*), sum(1 / pi) FROM raw.decisions WHERE latest AND sampled AND request_time >= $first"
    " GROUP BY evaluator",
)
"""Each column of the charts read once, without joins and buckets."""


def main() -> None:
    """Fill a store and print one row for each range."""
    spans = 100_000 if "--short" in sys.argv else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "t.duckdb", decode=lambda body: pickle.loads(body.body))
        fill(store, spans)
        print(f"{spans:,} spans, {spans // 4:,} traces, {spans:,} scores over seven days; CPU ms (x floor)")
        print(f"{'range':26} {'floor':>7} {'first':>15} {'again':>15} {'ingesting':>15} {'one metric':>14}")
        for label, params in (
            ("24 h", {"from": "-24h"}),
            ("24 h, one prompt version", {"from": "-24h", "prompt_version": "v1"}),
            ("7 d", {"from": "-7d"}),
        ):
            print_row(store, label, params)
        store.close()
    print(f"goal: 24 h viewed again within {GOAL_MS} ms")


def fill(store: EmbeddedStore, spans: int) -> None:
    """Write spans and facts as `queries.py` does, then a decision and a score for each trace and evaluator."""
    tables = [statement for table, statement in queries.FILL.items() if table not in ("decisions", "scores")]
    queries.fill(store, spans, tables=tables)
    for table, columns in FILL.items():
        statement = SCORED.format(table=table, columns=columns)
        store.write(lambda t, statement=statement: t.execute(statement)).result()
    store.read("CHECKPOINT")


class Viewer:
    """Views the page again and again, ten seconds apart by its own clock, so that every snapshot is too old."""

    def __init__(self, store: EmbeddedStore, params: dict[str, Any]) -> None:
        self._store, self._params, self._now = store, Buckets.parse(params), END
        self._snapshots = Snapshots(store, timer=lambda: self._now.timestamp())

    def view(self) -> None:
        """Request what the overview page requests: the headline, then the charts in parallel."""
        self._now += timedelta(seconds=10)
        overview(self._shared())
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: series(self._shared(), name), (*TRAFFIC, *QUALITY)))

    def _shared(self) -> Snapshot:
        return self._snapshots.of(self._params.query(self._now))

    def metric(self, name: str) -> None:
        """Request one metric by itself."""
        series(Snapshot(self._store, self._params.query(self._now)), name)


def print_row(store: EmbeddedStore, label: str, params: dict[str, Any]) -> None:
    """Measure one range: the floor, the first view, a later one, one during ingest."""
    first = END - timedelta(hours=24 if params["from"] == "-24h" else 168)
    viewer = Viewer(store, params)
    floor = median(cpu_ms(lambda: [store.read(sql, {"first": first}) for sql in FLOOR]) for _ in range(5))
    first_ms = median(cpu_ms(Viewer(store, params).view) for _ in range(3))
    viewer.view()
    again_ms = median(cpu_ms(viewer.view) for _ in range(5))
    metric_ms = median(cpu_ms(lambda: viewer.metric(QUALITY[0])) for _ in range(3))
    views = (first_ms, again_ms, during_ingest_ms(store, viewer.view))
    cells = "".join(f" {value:8.0f} ({value / floor:4.1f})" for value in views)
    print(f"{label:26} {floor:7.0f}{cells} {metric_ms:14.0f}")


def during_ingest_ms(store: EmbeddedStore, view: Callable[[], None]) -> float:
    """CPU of a view while spans arrive, less the CPU of the writer alone in as long a time."""
    stop = threading.Event()
    writer = threading.Thread(target=queries.ingest, args=(store, stop))
    writer.start()
    differences = []
    for _ in range(5):
        begun, spent = time.perf_counter(), cpu_ms(view)
        pause = partial(time.sleep, time.perf_counter() - begun)
        differences.append(spent - cpu_ms(pause))
    stop.set()
    writer.join()
    return max(0.0, median(differences))


def cpu_ms(run: Callable[[], object]) -> float:
    """CPU milliseconds of the process during a call."""
    begun = time.process_time()
    run()
    return (time.process_time() - begun) * 1e3


if __name__ == "__main__":
    main()
