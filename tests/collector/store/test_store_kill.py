"""kill -9 during ingest, checkpoints and decisions: what was acknowledged is there, whole and once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.sampling import Sampler

ROUNDS = int(os.environ.get("RAGPULSE_KILL_ROUNDS", "3"))
BATCH = 20

_WRITER = """
__file__ = "-c"  # without it a slow statement prints its progress among the answers, as in a notebook
import pickle, sys, threading
from datetime import datetime, timedelta
from ragpulse_collector.records import Batch, RawBody, SpanBatch
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.store import EmbeddedStore
path, first = sys.argv[1], int(sys.argv[2])
store = EmbeddedStore(path, decode=lambda body: pickle.loads(body.body), wal_limit="1MB", memory_limit="100MB")
sampler = Sampler(store, lambda: [Rule(name="r", evaluators=("e",), rate=0.5)], settle_s=0, every_s=0)
def decide():
    while True:
        sampler.decide(datetime.utcnow() if False else datetime(2100, 1, 1))
threading.Thread(target=decide, daemon=True).start()
def body(number):
    start = 10**18 + number * 10**9
    columns = dict(name=["n"] * BATCH, start_ns=[start] * BATCH, end_ns=[start] * BATCH,
                   kind=["rag"] + ["other"] * (BATCH - 1), query=[f"{number} {i} " * 50 for i in range(BATCH)])
    ids = [(i + 1).to_bytes(8) for i in range(BATCH)]
    spans = SpanBatch(trace_ids=[(number + 1).to_bytes(16)] * BATCH, span_ids=ids,
                      parent_span_ids=[None] + ids[:1] * (BATCH - 1), columns=columns)
    return RawBody(signal="traces", content_type="application/json", body=pickle.dumps(Batch(spans=[spans])))
number = first
print("ready", flush=True)
while True:
    waiting = [(n, store.submit(body(n))) for n in range(number, number + 8)]
    for n, future in waiting:
        future.result()
        print(n, flush=True)
    number += 8
""".replace("BATCH", str(BATCH)).replace("datetime.utcnow() if False else ", "")


def test_nothing_acknowledged_is_lost_or_doubled(kit: Any, tmp_path: Path) -> None:
    """After each kill the file opens, every acknowledged body is whole, and re-sending adds nothing."""
    random_ = random.Random(os.environ.get("RAGPULSE_KILL_SEED", "1"))
    acknowledged: set[int] = set()
    for _ in range(ROUNDS):
        first = max(acknowledged, default=-1) + 100
        acknowledged |= _run_and_kill(kit.path, first, random_.uniform(0.05, 0.8))
        store = kit.store()
        sizes = dict(store.read("SELECT trace_id, count(*) FROM spans GROUP BY 1").rows)
        assert {f"{number + 1:032x}" for number in acknowledged} <= sizes.keys()
        assert set(sizes.values()) == {BATCH}
        assert store.read("SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans").rows[0] == (
            len(sizes) * BATCH,
            len(sizes) * BATCH,
        )
        store.close()
    assert acknowledged


def test_no_decision_is_lost_or_doubled(kit: Any) -> None:
    """After a kill every trace is decided exactly once, its facts, draw and job together."""
    _run_and_kill(kit.path, 0, 0.6)
    store = kit.store()
    Sampler(store, lambda: []).decide(kit.later(10**9))
    traces = store.read("SELECT count(DISTINCT trace_id) FROM raw.spans").rows[0][0]
    facts = store.read("SELECT count(*), count(DISTINCT trace_id) FROM raw.trace_facts").rows[0]
    assert facts == (traces, traces)
    decided = store.read("SELECT count(*), count(DISTINCT trace_id), count(*) FILTER (sampled) FROM raw.decisions").rows
    jobs = store.read("SELECT count(*), count(DISTINCT job_id) FROM raw.eval_jobs").rows[0]
    assert decided[0][0] == decided[0][1]
    assert jobs == (decided[0][2], decided[0][2])


def _run_and_kill(path: Path, first: int, after_s: float) -> set[int]:
    """Let a process ingest, kill it at a moment of its work, return what it had acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), str(first)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.stdout.readline()
        time.sleep(after_s)
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0]
    return {first} | {int(line) for line in rest.splitlines() if line.isdigit()}


pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a POSIX system")
