"""Cost of the default rule for a trace: its decision, and its four judge-free jobs from the table to committed scores.

    python benchmarks/offline_jobs.py [--short]

CPU seconds of one process without HTTP, 5,000 spans for each second of its clock. The floor of the jobs is the
evaluators alone on the same cases.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from _payload import body

from ragpulse_collector.conventions import decode
from ragpulse_collector.evaluation import Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import OFFLINE, Sampler
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_evaluators import Case, get_evaluator

TRACES_A_SECOND = 1250


class Clock:
    """The store's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 9)

    def __call__(self) -> datetime:
        return self.now


def main() -> None:
    """Store and decide second by second, then run the jobs."""
    seconds = 4 if "--short" in sys.argv else 12
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder)) as (store, clock):
        traces, cpu_s, decisions = decide(store, clock, seconds)
        print(
            f"deciding: {cpu_s / traces * 1e6:,.0f} us a trace, {cpu_s / decisions * 1e3:,.0f} ms a decision,"
            f" {cpu_s / seconds:.1%} of a core at {4 * TRACES_A_SECOND:,} spans/s"
        )
        jobs, cpu_s = run_jobs(store, clock)
        floor = evaluators_alone(first_cases(store, 500)) * traces
        print(
            f"evaluating: {jobs:,} jobs, {jobs / cpu_s:,.0f} a CPU-second, {cpu_s / traces * 1e6:,.0f} us a trace;"
            f" the evaluators alone {floor / traces * 1e6:,.0f} us, ratio {cpu_s / floor:.2f}"
        )


@contextmanager
def open_store(folder: Path) -> Iterator[tuple[EmbeddedStore, Clock]]:
    """An empty store and its clock."""
    clock = Clock()
    with closing(EmbeddedStore(folder / "t.duckdb", decode=decode, clock=clock)) as store:
        yield store, clock


def decide(store: EmbeddedStore, clock: Clock, seconds: int) -> tuple[int, float, int]:
    """Store traces and decide four times a second of the clock; (decided traces, CPU seconds, decisions)."""
    sampler = Sampler(store)
    decided, cpu_s, decisions = 0, 0.0, 0
    for quarter in range(4 * (seconds + 4)):
        if quarter < 4 * seconds:
            start_ns = int(clock.now.timestamp() * 1e9)
            spans = body(TRACES_A_SECOND, seed=quarter, start_ns=start_ns)
            store.submit(RawBody(signal="traces", content_type="application/x-protobuf", body=spans)).result()
        clock.now += timedelta(seconds=0.25)
        begun = time.process_time()
        count = sampler.decide(clock.now)
        cpu_s += time.process_time() - begun
        decided, decisions = decided + count, decisions + (count > 0)
    return decided, cpu_s, decisions


def run_jobs(store: EmbeddedStore, clock: Clock) -> tuple[int, float]:
    """Let a worker score every job; (jobs, CPU seconds)."""
    jobs = int(store.read("SELECT count(*) FROM raw.eval_jobs").rows[0][0])
    worker = Worker(store, lambda name, **_: get_evaluator(name), Ledger(store, Caps()), clock=clock)
    begun = time.process_time()
    worker.start()
    assert worker.wait_idle(600)
    cpu_s = time.process_time() - begun
    worker.stop()
    scored = store.read("SELECT count(*), count(DISTINCT job_id) FROM raw.scores").rows[0]
    assert scored == (jobs, jobs), (scored, jobs, worker.counts)
    return jobs, cpu_s


def first_cases(store: EmbeddedStore, limit: int) -> list[Case]:
    """The first stored cases."""
    rows = store.read(
        f"SELECT trace_id, unit_span_id, start_time FROM raw.trace_facts ORDER BY trace_id LIMIT {limit}"
    ).rows
    return list(cases_of(store, [Unit(trace.hex, f"{span:016x}", start) for trace, span, start in rows]).values())


def evaluators_alone(cases: Sequence[Case]) -> float:
    """CPU seconds a case of the default rule's evaluators, one call after another."""
    evaluators = [get_evaluator(name) for name in OFFLINE.evaluators]

    async def run() -> None:
        for case in cases:
            for evaluator in evaluators:
                await evaluator(case)

    begun = time.process_time()
    asyncio.run(run())
    return (time.process_time() - begun) / len(cases)


if __name__ == "__main__":
    main()
