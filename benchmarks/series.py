"""What the overview's data costs over a large store, in CPU, beside a bare scan of the columns it is drawn from.

    python benchmarks/series.py [--short]

Builds the data itself: a million spans (--short 100,000), four to a trace, over seven days, every trace scored by four
evaluators. Prints CPU milliseconds (this process, all threads) of the first look, of one ten seconds later, and of one
while 5,000 spans a second arrive; for a day, with a filter, and for the week.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.series import series
from ragpulse_collector.store import EmbeddedStore

sys.path.insert(0, str(Path(__file__).parent))
QUERIES = importlib.import_module("queries")
EVALUATORS = ("groundedness", "context_utilization", "citation_check", "refusal")
TRAFFIC = (
    "requests", "errors", "latency_p50", "latency_p95", "latency_p99", "cost_usd", "input_tokens", "output_tokens",
)  # fmt: skip
QUALITY = tuple(f"quality:{name}" for name in EVALUATORS)
END: datetime = QUERIES.END
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
"""Each column of the charts read once, nothing joined, nothing cut into buckets."""


def main() -> None:
    """Fill, look, look again, look while spans keep coming."""
    spans = 100_000 if "--short" in sys.argv else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "t.duckdb", decode=lambda body: pickle.loads(body.body))
        fill(store, spans)
        print(f"{spans:,} spans, {spans // 4:,} traces, {spans:,} scores over seven days; CPU ms (x floor)")
        print(f"{'range':26} {'floor':>7} {'first':>15} {'again':>15} {'ingesting':>15} {'one quality':>14}")
        for told, params in (
            ("24 h", {"from": "-24h"}),
            ("24 h, one prompt version", {"from": "-24h", "prompt_version": "v1"}),
            ("7 d", {"from": "-7d"}),
        ):
            row(store, told, params)
        store.close()
    print(f"goal: 24 h looked at again within {GOAL_MS} ms")


def fill(store: EmbeddedStore, spans: int) -> None:
    """Spans and facts as for `queries.py`, then a decision and a score per trace and evaluator."""
    for table in ("decisions", "scores"):
        QUERIES.FILL.pop(table)
    QUERIES.fill(store, spans)
    for table, columns in FILL.items():
        statement = SCORED.format(table=table, columns=columns)
        store.write(lambda t, statement=statement: t.execute(statement)).result()
    store.read("CHECKPOINT")


class Looks:
    """A page asked for again and again, ten seconds apart by its own clock: nothing of the last look is still fresh."""

    def __init__(self, store: EmbeddedStore, params: dict[str, Any]) -> None:
        self._store, self._params, self._now = store, params, END
        self._snapshots = Snapshots(store, clock=lambda: self._now, timer=lambda: self._now.timestamp())

    def look(self) -> None:
        """Everything the overview page asks for, as it asks: the headline, then the charts side by side."""
        self._now += timedelta(seconds=10)
        overview(self._store, self._params, snapshots=self._snapshots)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(self.chart, snapshots=self._snapshots), (*TRAFFIC, *QUALITY)))

    def chart(self, name: str, snapshots: Snapshots | None = None) -> None:
        """One metric as a chart asks for it; by itself without `snapshots`."""
        asked = {**self._params, "name": name, "step": "auto", "width": 120}
        series(self._store, asked, clock=lambda: self._now, snapshots=snapshots)


def row(store: EmbeddedStore, told: str, params: dict[str, Any]) -> None:
    """One range: the floor, the first look, a later one, one beside the writer."""
    first = END - timedelta(hours=24 if params["from"] == "-24h" else 168)
    looks = Looks(store, params)
    floor = median(cpu_ms(lambda: [store.read(sql, {"first": first}) for sql in FLOOR]) for _ in range(5))
    found = [median(cpu_ms(Looks(store, params).look) for _ in range(3)), cpu_ms(looks.look)]
    found[1] = median(cpu_ms(looks.look) for _ in range(5))
    alone = median(cpu_ms(lambda: looks.chart(QUALITY[0])) for _ in range(3))
    found.append(ingesting(store, looks.look))
    cells = "".join(f" {value:8.0f} ({value / floor:4.1f})" for value in found)
    print(f"{told:26} {floor:7.0f}{cells} {alone:14.0f}")


def ingesting(store: EmbeddedStore, look: Callable[[], None]) -> float:
    """CPU of a look while spans arrive, less what the writer takes in as long a time without one."""
    stop = threading.Event()
    writer = threading.Thread(target=QUERIES.keep_coming, args=(store, stop))
    writer.start()
    found = []
    for _ in range(5):
        begun, spent = time.perf_counter(), cpu_ms(look)
        took = time.perf_counter() - begun
        found.append(spent - cpu_ms(lambda took=took: time.sleep(took)))  # type: ignore[misc]
    stop.set()
    writer.join()
    return max(0.0, median(found))


def cpu_ms(run: Callable[[], object]) -> float:
    """CPU milliseconds of the process while it runs."""
    begun = time.process_time()
    run()
    return (time.process_time() - begun) * 1e3


if __name__ == "__main__":
    main()
