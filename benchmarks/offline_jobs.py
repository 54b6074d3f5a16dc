"""What the default rule costs a trace: deciding it, and its four judge-free jobs from the table to committed scores.

    python benchmarks/offline_jobs.py [--short]

CPU seconds of one process that does nothing else, 5,000 spans for each second of its clock. The floor of the jobs is
the evaluators alone on the same cases.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from _payload import body

from ragpulse_collector.analysis.cases import Unit, cases_of
from ragpulse_collector.conventions import decode
from ragpulse_collector.evaluation import Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import OFFLINE, Sampler
from ragpulse_collector.store import EmbeddedStore
from ragpulse_evaluators import Case, get_evaluator

TRACES_A_SECOND = 1250


class Clock:
    """The instant that the store believes in."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 9)

    def __call__(self) -> datetime:
        return self.now


def main() -> None:
    """Store and decide second by second, then work the jobs off."""
    seconds = 4 if "--short" in sys.argv else 12
    with tempfile.TemporaryDirectory() as folder, store(Path(folder)) as (kept, clock):
        traces, deciding, decisions = arrive(kept, clock, seconds)
        print(
            f"deciding: {deciding / traces * 1e6:,.0f} us a trace, {deciding / decisions * 1e3:,.0f} ms a decision,"
            f" {deciding / seconds:.1%} of a core at {4 * TRACES_A_SECOND:,} spans/s"
        )
        jobs, spent = work_off(kept, clock)
        floor = alone(some_cases(kept, 500)) * traces
        print(
            f"evaluating: {jobs:,} jobs, {jobs / spent:,.0f} a CPU-second, {spent / traces * 1e6:,.0f} us a trace;"
            f" the evaluators alone {floor / traces * 1e6:,.0f} us, ratio {spent / floor:.2f}"
        )


@contextmanager
def store(folder: Path) -> Iterator[tuple[EmbeddedStore, Clock]]:
    """An empty store and its clock."""
    clock = Clock()
    kept = EmbeddedStore(folder / "t.duckdb", decode=decode, clock=clock)
    try:
        yield kept, clock
    finally:
        kept.close()


def arrive(kept: EmbeddedStore, clock: Clock, seconds: int) -> tuple[int, float, int]:
    """Store traces and decide four times a second of the clock; (traces decided, CPU seconds, decisions)."""
    sampler = Sampler(kept)
    decided, spent, decisions = 0, 0.0, 0
    for quarter in range(4 * (seconds + 4)):
        if quarter < 4 * seconds:
            start_ns = int(clock.now.timestamp() * 1e9)
            spans = body(TRACES_A_SECOND, seed=quarter, start_ns=start_ns)
            kept.submit(RawBody(signal="traces", content_type="application/x-protobuf", body=spans)).result()
        clock.now += timedelta(seconds=0.25)
        begun = time.process_time()
        count = sampler.decide(clock.now)
        spent += time.process_time() - begun
        decided, decisions = decided + count, decisions + (count > 0)
    return decided, spent, decisions


def work_off(kept: EmbeddedStore, clock: Clock) -> tuple[int, float]:
    """Let a worker score every job; (jobs, CPU seconds)."""
    jobs = int(kept.read("SELECT count(*) FROM raw.eval_jobs").rows[0][0])
    worker = Worker(kept, lambda name, **_: get_evaluator(name), Ledger(kept, Caps()), clock=clock)
    begun = time.process_time()
    worker.start()
    assert worker.wait_idle(600)
    spent = time.process_time() - begun
    worker.stop()
    scored = kept.read("SELECT count(*), count(DISTINCT job_id) FROM raw.scores").rows[0]
    assert scored == (jobs, jobs), (scored, jobs, worker.counts)
    return jobs, spent


def some_cases(kept: EmbeddedStore, limit: int) -> list[Case]:
    """The first cases that are stored."""
    rows = kept.read(
        f"SELECT trace_id, unit_span_id, start_time FROM raw.trace_facts ORDER BY trace_id LIMIT {limit}"
    ).rows
    return list(cases_of(kept, [Unit(trace.hex, f"{span:016x}", start) for trace, span, start in rows]).values())


def alone(cases: Sequence[Case]) -> float:
    """CPU seconds a case of the default rule's evaluators, called one after the other."""
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
