"""Figures and lists by a label beside the same by an attribute: 100,000 traces, each labelled by five evaluators.

    python benchmarks/labels.py [--short]

Builds the data itself: seven days, a label and an attribute (`model`) that are equal, and a judge that labels a tenth.
Prints CPU milliseconds (this process, all threads), the least of five.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.failures import what_went_wrong
from ragpulse_collector.analysis.series import series
from ragpulse_collector.api.models import Buckets, TraceList
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.records import Batch
from ragpulse_collector.store import EmbeddedStore

NOW = datetime(2026, 11, 21)
RANGE = {"from": "2026-11-14T00:00Z", "to": "2026-11-21T00:00Z"}
GOAL_MS = 500
LINE = "{:<34} {:>12} {:>9} {:>9}"
EVERYTHING = ("language", "groundedness", "context_utilization", "refusal", "intent")
FILL = (
    """CREATE TEMP TABLE n AS SELECT i, md5('t' || i)::UUID AS trace_id, 170::UBIGINT AS span_id,
           TIMESTAMP '2026-11-14' + to_microseconds((i * 604800000000 // $traces)::BIGINT) AS t,
           (hash(i) % 1000000) / 1e6 AS u, (hash(i, 'value') % 1000000) / 1e6 AS value,
           ['en', 'de', 'fr', 'es', 'it'][(hash(i, 'label') % 5 + 1)::BIGINT] AS label FROM range($traces) r(i)""",
    """INSERT INTO raw.spans BY NAME SELECT trace_id, span_id, t AS start_time, t AS received_at, 0 AS duration_us,
           'answer' AS name, 'rag' AS kind, 'ok' AS status, 1.0 AS upstream_pi FROM n""",
    """INSERT INTO raw.trace_facts BY NAME SELECT trace_id, 0 AS revision, true AS latest, t AS decided_at,
           span_id AS unit_span_id, t AS start_time, 'answer' AS name, 'Why ' || i || '?' AS query, 'So.' AS response,
           1 AS n_spans, 1 AS n_units, 0 AS late_spans, 'user ' || i % 3000 AS user_id, 1000 * value AS latency_ms,
           false AS error, 1.0 AS upstream_pi, 'answered' AS answer, label AS model FROM n""",
    "INSERT INTO raw.meta (key, value) VALUES ('low_water', '2026-11-21 00:00:00')",
)
OF_EVALUATOR = (
    """INSERT INTO raw.decisions BY NAME SELECT trace_id, span_id, t AS request_time, $name AS evaluator, 'r' AS rule,
           'p' AS policy, $pi AS pi, u, u < $pi AS sampled, 'sampled' AS reason, t AS decided_at, 0 AS revision,
           true AS latest FROM n""",
    """INSERT INTO raw.scores BY NAME SELECT $name || i AS score_key, md5($name || i)::UUID AS job_id, trace_id,
           span_id, t AS request_time, $name AS evaluator, 'v1' AS version, 'online' AS source, 'ok' AS status,
           value AS score, value AS normalized, value >= 0.1 AS passing, label, t AS created_at, 1 AS attempt
       FROM n WHERE u < $pi""",
)


def main() -> int:
    """Print a row for each question; exit 1 where a group by a label takes longer than its goal."""
    traces = 10_000 if "--short" in sys.argv else 100_000
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "t.duckdb", decode=lambda _: Batch())
        with closing(store):
            fill(store, traces)
            print(f"{traces:,} traces over seven days; CPU ms, the least of five")
            print(LINE.format("", "attribute", "label", "ratio"))
            slowest = max([*by_group(store), *filtered(store)])
    print(f"goal: a group by a label within {GOAL_MS} ms: {'met' if slowest <= GOAL_MS else 'missed'}")
    return int(slowest > GOAL_MS)


def fill(store: EmbeddedStore, traces: int) -> None:
    """Write the traces, then the decisions and the labels of each evaluator."""

    def work(transaction: Any) -> None:
        for sql in FILL:
            transaction.execute(sql, {"traces": traces} if "$traces" in sql else {})
        for name, pi in (*((name, 1.0) for name in EVERYTHING), ("judge", 0.1)):
            for sql in OF_EVALUATOR:
                transaction.execute(sql, {"name": name, "pi": pi})

    store.write(work).result()
    store.read("CHECKPOINT")


def by_group(store: EmbeddedStore) -> list[float]:
    """Print the cost of a metric in groups; return that by labels."""

    def ask(metric: str, group: str) -> float:
        query = Buckets.parse(RANGE).query(NOW, [group])
        return least_ms(lambda: series(Snapshot(store, query), metric))

    found = []
    for metric in ("requests", "quality:groundedness"):
        plain = ask(metric, "model")
        for group in ("label:language", "label:judge", "label:failure"):
            found.append(ask(metric, group))
            print_row(f"{metric.partition(':')[0]} by {group}", plain, found[-1])
    return found


def filtered(store: EmbeddedStore) -> list[float]:
    """Print the cost of what a filter keeps; return that by labels."""

    def listed(**chosen: str) -> float:
        params = TraceList.parse(RANGE | chosen)
        return least_ms(lambda: trace_list(store, lambda: "groundedness", params))

    def figure(metric: str, **chosen: str) -> float:
        query = Buckets.parse(RANGE | chosen).query(NOW)
        return least_ms(lambda: series(Snapshot(store, query), metric))

    label = {"label.language": "de"}
    rows = [("list of a label", listed(model="de"), listed(**label))]
    rows += [
        (f"{metric.partition(':')[0]} of a label", figure(metric, model="de"), figure(metric, **label))
        for metric in ("requests", "quality:groundedness")
    ]
    for row in rows:
        print_row(*row)
    week = Buckets.parse(RANGE).query(NOW)
    print(LINE.format("what went wrong", "", f"{least_ms(lambda: what_went_wrong(store, week)):.0f}", ""))
    return [of_label for _, _, of_label in rows]


def print_row(name: str, plain: float, of_label: float) -> None:
    """Print both, and how much longer a label takes."""
    print(LINE.format(name, f"{plain:.0f}", f"{of_label:.0f}", f"{of_label / plain:.1f}x"))


def least_ms(work: Callable[[], object]) -> float:
    """CPU of the quickest of five calls."""

    def once() -> float:
        started = time.process_time()
        work()
        return (time.process_time() - started) * 1000

    return min(once() for _ in range(5))


if __name__ == "__main__":
    raise SystemExit(main())
