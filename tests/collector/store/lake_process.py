"""One collector process of the lake's tests, in its own environment; its role is the name of a function."""

from __future__ import annotations

import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import duckdb
from lake_servers import trust_extensions
from spans import Span, batch_of

from ragpulse_collector.records import RawBody
from ragpulse_collector.refusals import Busy
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.store import open_store
from ragpulse_collector.store.lake import LakeStore, Lease, lake_parts
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.queries.forgotten import forgotten_traces
from ragpulse_collector.store.retention import forget, prune

BATCH = 50
MARK = "zq7-confidential-marker"
HALF_A_DAY = 43_200 * 10**9


def ingest(store: LakeStore) -> None:
    """Store the numbered bodies named on stdin; answer each number once it is on disk."""
    print("ready", flush=True)
    for line in sys.stdin:
        number = int(line)
        spans = [
            Span(
                trace_id=f"{number + 1:032x}", span_id=f"{i + 1:016x}", parent_span_id=None if i == 0 else f"{1:016x}",
                start_ns=10**18 + number * HALF_A_DAY, end_ns=10**18 + number * HALF_A_DAY, name="n",
                kind="rag" if i == 0 else "other", query=f"question {number}" if i == 0 else None, input_tokens=1,
            )
            for i in range(BATCH)
        ]  # fmt: skip
        body = RawBody(signal="traces", content_type="application/json", body=pickle.dumps(batch_of(spans)))
        try:
            store.submit(body).result(100)
        except Busy:
            print(f"busy {number}", flush=True)
        else:
            print(number, flush=True)
    store.close()


def decide(store: LakeStore, dsn: str) -> None:
    """Be the one process that decides and maintains; print what happened."""
    lease, other = Lease(dsn), Lease(dsn)
    taken = [lease.take(), other.take(), lease.take()]
    sampler = Sampler(store, lambda: [Rule(name="r", evaluators=("e",), rate=0.5)])
    decided = [sampler.decide(datetime(2100, 1, 1)), sampler.decide(datetime(2100, 1, 2))]
    count = "SELECT count(*) FROM ducklake_list_files('lake', 'spans', schema => 'raw')"
    before = store.read(count).rows[0][0]
    store.maintain(keep_s=0)
    after = store.read(count).rows[0][0]
    lease.release()
    taken.append(other.take())
    other.release()
    sums = store.read(
        "SELECT count(*), count(DISTINCT (trace_id, span_id)), count(DISTINCT trace_id), coalesce(sum(input_tokens), 0)"
        " FROM raw.spans"
    ).rows[0]
    facts = store.read("SELECT count(*), sum(n_spans), count(query) FROM traces WHERE decided").rows[0]
    draws = store.read("SELECT count(*) FROM decisions").rows[0][0]
    pruned = prune(store, older_than=datetime(2001, 9, 12)).rows.get("spans", 0)
    in_part = "SELECT sum(delete_file_count)::BIGINT FROM ducklake_table_info('lake') WHERE table_name = 'spans'"
    found = {
        "pruned": [pruned, store.read(in_part).rows[0][0]],
        "taken": taken,
        "decided": decided,
        "files": [before, after],
        "facts": [int(v) for v in facts],
    }
    print(json.dumps(found | {"spans": [int(v) for v in sums], "decisions": draws}), flush=True)
    store.close()


def reopen(store: LakeStore) -> None:
    """Open the lake again beside a long question; print its answer and that of one which comes after."""
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.read, "SELECT count(*) FROM range(200000000) r(i) WHERE hash(i) = 1")
        while not slow.running():
            pass
        store._reopen()
        after = store.read("SELECT count(*) FROM raw.spans").rows
        print(json.dumps([slow.result().rows, after]), flush=True)
    store.close()


def maintain(store: LakeStore) -> None:
    """Write to a table and maintain the lake in turn; print how many rows there are in the end."""
    for _ in range(5):
        for _ in range(3):
            store.write(_small).result(60)
        store.maintain(keep_s=0)
    print(json.dumps(store.read("SELECT count(*) FROM raw.audit").rows), flush=True)
    store.close()


def flush(store: LakeStore) -> None:
    """Store rows that PostgreSQL keeps; once told so, maintain the lake and print whether that failed."""
    store.write(_small).result(60)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        store.maintain()
    except duckdb.Error:
        print("failed", flush=True)


def forgotten(store: LakeStore, folder: Path) -> None:
    """Store two people's texts in files without compression, forget one; print where the mark is after each step."""
    store.write(lambda t: t.execute("CALL ducklake_set_option('lake', 'parquet_compression', 'uncompressed')")).result()

    def fill(transaction: Transaction) -> None:
        at, ids = datetime(2026, 11, 20), [(f"{number:032x}", number) for number in (1, 2)]
        users = (("ann", MARK), ("bob", "nothing of Ann's"))
        columns = ("trace_id", "span_id", "start_time", "user_id", "metadata")
        rows = [(*one, at, user, '{"tenant": "acme"}') for one, (user, _) in zip(ids, users, strict=True)]
        transaction.append("spans", columns, rows)
        texts = [(*one, at, text) for one, (_, text) in zip(ids, users, strict=True)]
        transaction.append("contents", ("trace_id", "span_id", "start_time", "query"), texts)

    def held() -> int:
        return sum(MARK.encode() in path.read_bytes() for path in folder.rglob("*.parquet"))

    store.write(fill).result(60)
    store.maintain()
    found = [held(), forget(store, "user", "ann", also={}, actor="test")["contents"]]
    store.purge()
    store.maintain(keep_s=0)
    left = store.read("SELECT user_id, query FROM spans").rows
    late = store.write(lambda t: forgotten_traces(t, {f"{number:032x}" for number in (1, 2)})).result(60)
    print(json.dumps([*found, held(), [list(row) for row in left], list(late)]), flush=True)
    store.close()


def _small(transaction: Transaction) -> None:
    rows = [(transaction.at, "a", "n", str(number)) for number in range(5)]
    transaction.append("audit", ("created_at", "actor", "action", "detail"), rows)


if __name__ == "__main__":
    role, db = sys.argv[1:]
    trust_extensions()  # the collectors of the same tests verify them
    lake = open_store(db, decode=lambda body: pickle.loads(body.body))
    assert isinstance(lake, LakeStore)
    if role == "ingest":
        ingest(lake)
    elif role == "reopen":
        reopen(lake)
    elif role == "maintain":
        maintain(lake)
    elif role == "forgotten":
        forgotten(lake, Path(lake_parts(db)[1]))
    elif role == "flush":
        flush(lake)
    else:
        decide(lake, lake_parts(db)[0].removeprefix("ducklake:postgres:"))
