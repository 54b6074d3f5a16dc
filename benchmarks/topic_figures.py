"""Figures by topic: do intervals hold, is a topic called worse by chance, how long does the answer take?

    python benchmarks/topic_figures.py [--short] [--ingest]

1. Coverage of the 95 % intervals of share and unanswered, topic by topic: 12 topics, 100 users of unequal weight (3 to
   40 questions) who prefer topics and are failed to a different degree; every topic has the same true rate of failure.
   Beside it intervals that take questions as independent (Wilson).
2. In the same data no topic is worse: the share of runs in which any is called worse. The goal is at most 5 %.
3. `GET topics` over 100,000 traces of 60 topics with scores, and the assignment of new questions.

`--ingest` alone: two collectors receive the same traces, one of them with topics; acknowledgements, and CPU until all
are decided.
"""

from __future__ import annotations

import gzip
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from _payload import body
from _sending import CONNECTIONS, Load
from _served import Server, get_json, sql

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.topics import shares, topic_report, unanswered
from ragpulse_collector.records import Batch
from ragpulse_collector.settings import TopicSettings
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.topics.refitting import Refits
from ragpulse_evaluators.statistics import wilson

TOPICS, USERS, FAILING = 12, 100, 0.15
START = datetime(2026, 11, 20)
LARGE, LARGE_TOPICS = 100_000, 60
GOAL_S = 1.0
_FACTS = """
    INSERT INTO raw.trace_facts BY NAME
    SELECT uuid() AS trace_id, 0 AS revision, true AS latest, $at::TIMESTAMP AS start_time, user_id, topic, answer,
           'q' AS query, 1.0 AS upstream_pi
    FROM (SELECT unnest($users::VARCHAR[]) AS user_id, unnest($topics::VARCHAR[]) AS topic,
                 unnest($answers::VARCHAR[]) AS answer)"""


def main() -> int:
    """Print all three, or `--ingest`; returns 1 where a promise is broken."""
    if "--ingest" in sys.argv:
        return beside_ingest()
    runs = 60 if "--short" in sys.argv else 400
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "t.duckdb", decode=lambda _: Batch())
        broken = simulate(store, runs) + large(store)
        store.close()
    return int(broken)


def simulate(store: EmbeddedStore, runs: int) -> bool:
    """Print coverage and false alarms; returns whether they are worse than promised."""
    counts: Counter[str] = Counter()
    window = Window(START - timedelta(days=1), START + timedelta(days=1), 0)
    popularity = [1.0 / (rank + 1) for rank in range(TOPICS)]
    for seed in range(runs):
        rng = random.Random(seed)
        made = questions(rng, popularity)
        fill(store, made)
        check_run(store, window, made, popularity, counts)
        found = topic_report(store, Query(window=window, now=window.last), "none", limit=TOPICS)
        counts["worse"] += any(topic.worse for topic in found.topics)
    covered = {
        name: counts[name] / counts[f"{name} all"] for name in ("share", "share alone", "failing", "failing alone")
    }
    print(
        f"{runs} runs, {TOPICS} topics, {USERS} users; coverage of 95 % intervals (intervals of independent questions)"
    )
    print(f"share of a topic      {covered['share']:.3f} ({covered['share alone']:.3f})")
    print(f"unanswered of a topic {covered['failing']:.3f} ({covered['failing alone']:.3f})")
    print(f"runs with a topic that is called worse, where none is: {counts['worse'] / runs:.3f}")
    return (
        min(covered["share"], covered["failing"]) < 0.93 or counts["worse"] / runs > 0.05 + 2.0 * (0.05 / runs) ** 0.5
    )


def questions(rng: random.Random, popularity: list[float]) -> list[tuple[str, str, bool]]:
    """Return (user, topic, failed): users prefer some topics, and are failed to a different degree."""
    made = []
    for user in range(USERS):
        liked = [weight * rng.gammavariate(1.0, 1.0) for weight in popularity]
        failed = rng.betavariate(FAILING * 4, (1 - FAILING) * 4)
        for _ in range(min(40, 3 + int(rng.expovariate(1 / 8)))):
            made.append((f"u{user}", f"t{rng.choices(range(TOPICS), liked)[0]}", rng.random() < failed))
    return made


def fill(store: EmbeddedStore, made: list[tuple[str, str, bool]]) -> None:
    """Replace the traces of the store."""
    users, topics, failed = zip(*made, strict=True)
    answers = ["refused" if one else "answered" for one in failed]
    parameters = {"at": START, "users": list(users), "topics": list(topics), "answers": answers}
    store.write(lambda tx: tx.execute("DELETE FROM raw.trace_facts")).result()
    store.write(lambda tx: tx.execute(_FACTS, parameters)).result()


def check_run(
    store: EmbeddedStore,
    window: Window,
    made: list[tuple[str, str, bool]],
    popularity: list[float],
    counts: Counter[str],
) -> None:
    """Count the intervals that hold, and those of independent questions."""
    true = true_shares(popularity)
    own, failing = shares(store, window, Filter()), unanswered(store, window, Filter())
    asked = Counter(topic for _, topic, _ in made)
    failed = Counter(topic for _, topic, failed in made if failed)
    for number in range(TOPICS):
        name = f"t{number}"
        if name not in own or asked[name] < 30:
            continue
        cases = (("share", own[name], true[number], asked[name], len(made)),
                 ("failing", failing[name], FAILING, failed[name], asked[name]))  # fmt: skip
        for kind, mean, truth, k, n in cases:
            lo, hi = mean.moments.estimate() if mean.moments else (None, None)
            if lo is not None and hi is not None:
                counts[f"{kind} all"] += 1
                counts[kind] += lo <= truth <= hi
                alone = wilson(k, n)
                counts[f"{kind} alone all"] += 1
                counts[f"{kind} alone"] += alone is not None and alone[0] <= truth <= alone[1]


def true_shares(popularity: list[float]) -> list[float]:
    """Return the expected share of each topic: that of a user's preferences, by 200,000 users."""
    if popularity[0] not in _TRUE:
        rng, sums = random.Random(7), [0.0] * TOPICS
        for _ in range(200_000):
            liked = [weight * rng.gammavariate(1.0, 1.0) for weight in popularity]
            whole = sum(liked)
            sums = [one + weight / whole for one, weight in zip(sums, liked, strict=True)]
        _TRUE[popularity[0]] = [one / 200_000 for one in sums]
    return _TRUE[popularity[0]]


_TRUE: dict[float, list[float]] = {}


def large(store: EmbeddedStore) -> bool:
    """Print the seconds of the answer over 100,000 traces, and of assignment; returns whether it is too slow."""
    store.write(lambda tx: tx.execute("DELETE FROM raw.trace_facts")).result()
    store.write(lambda tx: tx.execute(f"""
        INSERT INTO raw.trace_facts BY NAME
        SELECT md5(i::VARCHAR)::UUID AS trace_id, 0 AS revision, true AS latest, 170::UBIGINT AS unit_span_id,
               TIMESTAMP '{START}' - to_seconds(i * 6) AS start_time, 'user ' || hash(i) % 5000 AS user_id,
               'topic ' || (hash(i, 1) % {LARGE_TOPICS}) AS topic, 500.0 + hash(i, 2) % 1000 AS latency_ms,
               0.001 AS cost_usd, 'search' AS retriever, 0.5 + (hash(i, 3) % 100) / 250 AS top_score,
               'How do I ' || (hash(i) % 997) || '?' AS query, repeat('An answer. ', 40) AS response,
               CASE WHEN hash(i, 4) % 20 = 0 THEN 'refused' ELSE 'answered' END AS answer, 1.0 AS upstream_pi,
               CASE WHEN hash(i, 5) % 10 = 0 THEN hash(i, 6) % 2 END::DOUBLE AS feedback
        FROM range({LARGE}) r(i) ORDER BY start_time""")).result()  # fmt: skip
    for table, columns in _SCORED.items():
        store.write(lambda tx, table=table, columns=columns: tx.execute(
            f"INSERT INTO raw.{table} BY NAME SELECT trace_id, unit_span_id AS span_id, start_time AS request_time,"
            f" 'groundedness' AS evaluator, {columns} FROM raw.trace_facts ORDER BY start_time")).result()  # type: ignore[misc]  # fmt: skip
    query = Query(window=Window(START - timedelta(days=7), START, 0), now=START)
    seconds, cpu = [], []
    for _ in range(5):
        began, began_cpu = time.perf_counter(), time.process_time()
        found = topic_report(store, query, "groundedness", limit=50)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    took = f"{median(cpu):.2f} s of CPU, {median(seconds):.2f} s elapsed (goal {GOAL_S:g} s)"
    print(f"GET topics over {found.n:,} traces of {LARGE_TOPICS} topics: {took}")
    assign(store)
    return median(cpu) > GOAL_S  # what else the machine does is not our promise


_SCORED = {
    "decisions": "'r' AS rule, 'p' AS policy, 1.0 AS pi, 0.5 AS u, true AS sampled, 'sampled' AS reason,"
    " start_time AS decided_at, 0 AS revision, true AS latest",
    "scores": "md5(trace_id::VARCHAR)::UUID AS job_id, trace_id::VARCHAR AS score_key, '1' AS version,"
    " 'online' AS source, 'ok' AS status, 1 AS attempt, hash(trace_id, 7) % 10 > 0 AS passing,"
    " start_time AS created_at, (hash(trace_id, 7) % 10 > 0)::INTEGER::DOUBLE AS normalized",
}


def assign(store: EmbeddedStore) -> None:
    """Print what an assignment costs in this process, and the memory that the vectors take."""
    words = ["password", "parcel", "invoice", "vacation", "refund", "webhook", "printer", "account"]
    texts = [f"How do I change my {words[number % 8]} number {number}?" for number in range(4000)]
    store.write(
        lambda tx: tx.execute(
            "UPDATE raw.trace_facts SET query = $texts[1 + (hash(trace_id) % 4000)::INTEGER]", {"texts": texts}
        )
    ).result()
    refits = Refits(store, TopicSettings(), clock=lambda: START)
    began, before = time.perf_counter(), resident_mb()
    refits.fit()
    print(f"a fit of 20,000 questions in its process: {time.perf_counter() - began:.1f} s")
    find = refits.assigner()
    assert find is not None, "there was a fit"
    for size in (1, 1000):
        began = time.perf_counter()
        for _ in range(1000 // size):
            find(texts[:size])
        print(f"assignment, {size} at once: {1000 * (time.perf_counter() - began) / 1000:.3f} ms a question")
    print(f"memory that assignment adds: {resident_mb() - before:.0f} MB")


def beside_ingest() -> int:
    """Print what topics cost while traces arrive: without and with a fit, twice in turn."""
    now = time.time_ns() - 3600 * 10**9
    bodies = [gzip.compress(body(512, seed=n, start_ns=now + n * 10**8), 6) for n in range(120)]
    for _ in range(2):
        for fitted in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                print(f"{'with' if fitted else 'without'} topics: {_received(Path(folder), bodies, fitted=fitted)}")
    return 0


def _received(folder: Path, bodies: list[bytes], *, fitted: bool) -> str:
    server = Server(folder / "t.duckdb")
    try:
        _decided(server, bodies[:20])
        if fitted:
            with closing(server.connection()) as connection:
                connection.request("POST", "/api/v1/topics/fit", "{}", {"Content-Type": "application/json"})
                assert connection.getresponse().status == 200
            while get_json(server, "/api/v1/topics")["unassigned"]:
                time.sleep(0.2)
        before = server.cpu_s()
        load = _decided(server, bodies[20:])
        return f"{load.acks_text()}; {server.cpu_s() - before:.1f} CPU-s until all are decided"
    finally:
        server.stop()


def _decided(server: Server, bodies: list[bytes]) -> Load:
    """Send bodies over connections that never pause, and wait until their traces are decided."""
    load, wanted = Load(bodies), sql(server, "SELECT count(*) FROM traces")[0][0] + 128 * len(bodies)
    load.send_all([server.connection] * CONNECTIONS)
    while sql(server, "SELECT count(*) FROM traces WHERE decided")[0][0] < wanted:
        time.sleep(0.2)
    return load


def resident_mb() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    sys.exit(main())
