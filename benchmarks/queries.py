"""The pages' questions over a large store, quiet and while spans keep coming, beside a bare scan of the same figures.

Builds the data itself (four spans a trace over seven days): `queries.py` 10 million spans, `--short` 200,000. Prints
milliseconds (median of seven) and the ratio to the floor: a count over the same day's rows.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from ragpulse_collector.records import Batch, RawBody, SpanRecord
from ragpulse_collector.store import EmbeddedStore

END = datetime(2026, 3, 8)
DAY = END - timedelta(days=1)
RATE = 5_000

_IDS = "md5((i // 4)::VARCHAR)::UUID"
_AT = "TIMESTAMP '2026-03-01' + to_microseconds(((i // 4) * {step})::BIGINT)"

FILL = {
    "spans": f"""
        INSERT INTO raw.spans BY NAME
        SELECT {_IDS} AS trace_id, i::UBIGINT AS span_id, CASE WHEN i % 4 > 0 THEN i - i % 4 END::UBIGINT
               AS parent_span_id, {_AT} AS start_time, {_AT} AS received_at, (hash(i) % 2000000)::BIGINT AS duration_us,
               ['answer', 'search', 'embed', 'chat'][i % 4 + 1] AS name,
               ['rag', 'retriever', 'embedding', 'llm'][i % 4 + 1] AS kind, 'helpdesk' AS service, 'unset' AS status,
               CASE WHEN i % 4 = 3 THEN 'gpt-5-mini' END AS model, CASE WHEN i % 4 = 3 THEN 700 END AS input_tokens,
               CASE WHEN i % 4 = 3 THEN 0.001 END AS cost_usd, 'v' || (i // 4 % 3) AS prompt_version,
               1.0 AS upstream_pi, 'null' AS attributes, 'null' AS resource, 'null' AS mapped_from
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

QUESTIONS: dict[str, tuple[str, int]] = {
    "floor: count of the last day's rows": (
        "SELECT count(*), sum(duration_us) FROM raw.spans WHERE start_time >= $day", 0),
    "trace list, newest 50, bounded": (
        "SELECT * FROM traces WHERE start_time >= (SELECT min(start_time) FROM (SELECT start_time FROM raw.trace_facts"
        " WHERE latest ORDER BY start_time DESC LIMIT 50)) ORDER BY start_time DESC LIMIT 50", 40),
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
"""What is asked, and the goal in milliseconds at ten million spans (0: none was set)."""


def main() -> None:
    """Fill, ask quietly, ask while spans come at 5,000 a second."""
    spans = 200_000 if "--short" in sys.argv else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "t.duckdb", decode=lambda body: pickle.loads(body.body))
        fill(store, spans)
        size = store.size_bytes()
        middle = spans // 8 * 4
        parameters = {"day": DAY, "at": _at(middle // 4, spans), "trace": _trace(store, middle)}
        print(f"{spans:,} spans, {size / 2**20:,.0f} MB ({size / spans:.0f} B/span)")
        quiet = ask(store, parameters)
        stop = threading.Event()
        writer = threading.Thread(target=keep_coming, args=(store, stop))
        writer.start()
        busy = ask(store, parameters)
        stop.set()
        writer.join()
        store.close()
    floor = quiet["floor: count of the last day's rows"]
    print(f"{'':38} {'quiet ms':>9} {'x floor':>8} {'ingest ms':>10}  goal at 10 M")
    for name, (_, goal) in QUESTIONS.items():
        print(f"{name:38} {quiet[name]:9.1f} {quiet[name] / floor:8.1f} {busy[name]:10.1f}  {goal or '':>5}")


def fill(store: EmbeddedStore, spans: int) -> None:
    """Make the rows with SQL, a million at a time, in order of time."""
    step = 7 * 24 * 3600 * 1_000_000 // (spans // 4)
    for lo in range(0, spans, 1_000_000):
        for sql in FILL.values():
            statement = sql.format(lo=lo, hi=min(lo + 1_000_000, spans), step=step)
            store.write(lambda t, statement=statement: t.execute(statement)).result()
    low = END.isoformat(sep=" ")
    store.write(lambda t: t.execute("INSERT INTO raw.meta VALUES ('low_water', $low)", {"low": low})).result()
    store.read("CHECKPOINT")


def ask(store: EmbeddedStore, parameters: dict[str, object]) -> dict[str, float]:
    """Time each question."""
    found: dict[str, float] = {}
    for name, (sql, _) in QUESTIONS.items():
        given = {key: value for key, value in parameters.items() if f"${key}" in sql}
        found[name] = median(_timed(lambda sql=sql, given=given: store.read(sql, given)) for _ in range(7)) * 1e3
    return found


def keep_coming(store: EmbeddedStore, stop: threading.Event) -> None:
    """Send 5,000 spans a second, 500 a body."""
    number = 0
    while not stop.wait(500 / RATE):
        number += 1
        at = int(END.timestamp() * 1e9) + number * 10**8
        spans = [
            SpanRecord(
                trace_id=f"{number:016x}{n // 4:016x}", span_id=f"{n + 1:016x}", start_ns=at, end_ns=at + 10**8,
                parent_span_id=None if n % 4 == 0 else f"{n - n % 4 + 1:016x}", name="n",
                kind="rag" if n % 4 == 0 else "other", query="q" * 80 if n % 4 == 0 else None,
                response="r" * 800 if n % 4 == 0 else None,
            )
            for n in range(500)
        ]  # fmt: skip
        body = RawBody(signal="traces", content_type="application/json", body=pickle.dumps(Batch(records=spans)))
        store.submit(body).result()


def _trace(store: EmbeddedStore, span: int) -> str:
    found = store.read("SELECT replace(trace_id::VARCHAR, '-', '') FROM raw.spans WHERE span_id = ?", [span]).rows
    return str(found[0][0])


def _at(trace: int, spans: int) -> datetime:
    return datetime(2026, 3, 1) + timedelta(microseconds=trace * (7 * 24 * 3600 * 1_000_000 // (spans // 4)))


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
