"""kill -9 during a replay: exactly one verdict for each unit, spend within the cap, identical after a repeat.

    python benchmarks/replay.py [--kills 20] [--units 400]

Floor in the same run: the same replay without a kill. The judge is scripted, its calls recorded in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.evaluation import RecordedCalls, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.evaluation.replay import ReplayRequest, Replays
from ragpulse_collector.records import Batch
from ragpulse_collector.store import EmbeddedStore
from ragpulse_evaluators import Case, Evaluator, JudgeCall
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge

CENT = 0.01
CONCURRENCY = 8
NOON = datetime(2026, 11, 20, 12)
LAST_WEEK = Query(window=Window(NOON - timedelta(days=7), NOON, 0), now=NOON)


class Coin:
    """A judge that passes two thirds of the answers, replies after 2 ms, and costs a cent."""

    id = "coin"

    async def ask(self, messages: Sequence[Any], **_: Any) -> list[JudgeCall]:
        """Reply by a hash of the prompt."""
        await asyncio.sleep(0.002)
        prompt = messages[0]["content"]
        passed = hashlib.sha256(prompt.encode()).digest()[0] % 3 > 0
        return [JudgeCall(prompt=prompt, completion=str(float(passed)), model="coin", cost_usd=CENT)]


class Judged(Evaluator):
    """Sends the response to its judge."""

    name = "judged"

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__()
        self.gate = Gate(CONCURRENCY)
        self.judge = self._recorded = CachedJudge(GatedJudge(Coin(), self.gate), RecordedCalls(store))

    def estimate(self, case: Case) -> Estimate:
        """One call of a thousand tokens."""
        return Estimate(calls=1, input_tokens=1000)

    async def run(self, case: Case) -> float:
        """Not reached: `_attempt` is overridden."""
        raise AssertionError(case)

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        calls += await self._recorded.ask([{"role": "user", "content": case.response or ""}])
        return float(calls[0].completion)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[EmbeddedStore, Worker, Replays]]:
    """A store with a worker and its replays."""

    def price(_model: str, tokens_in: int, _out: int) -> float:
        return tokens_in * CENT / 1000

    store = EmbeddedStore(folder / "replay.duckdb", decode=lambda _: Batch())
    judged = Judged(store)
    worker = Worker(store, lambda _name, **_: judged, Ledger(store, Caps(), price=price), gate=judged.gate)
    replays = Replays(store, lambda _name, **_: judged, price=price, wake=worker.wake, clock=lambda: NOON)
    worker.start()
    try:
        yield store, worker, replays
    finally:
        worker.stop()
        store.close()


def seed(store: EmbeddedStore, units: int) -> None:
    """Store decided traces of one span each."""

    def work(tx: Any) -> None:
        ids = f"(SELECT range AS i, md5(range::VARCHAR)::UUID AS trace_id FROM range({units}))"
        start = {"start": NOON - timedelta(hours=1)}
        tx.execute(
            "INSERT INTO raw.spans BY NAME SELECT trace_id, 1::UBIGINT AS span_id, $start::TIMESTAMP AS start_time,"
            f" $start::TIMESTAMP AS received_at, 1000 AS duration_us, 'rag' AS kind, 'x' AS \"name\" FROM {ids}",
            start,
        )
        tx.execute(
            "INSERT INTO raw.contents BY NAME SELECT trace_id, 1::UBIGINT AS span_id, $start::TIMESTAMP AS start_time,"
            f" 'q' AS query, 'answer ' || i AS response FROM {ids}",
            start,
        )
        tx.execute(
            "INSERT INTO raw.trace_facts BY NAME SELECT trace_id, 0 AS revision, true AS latest, 1::UBIGINT AS"
            f" unit_span_id, $start::TIMESTAMP AS start_time, $start::TIMESTAMP AS decided_at FROM {ids}",
            start,
        )

    store.write(work).result()


def child(folder: Path, units: int, cap: float) -> None:
    """Start or continue the replay; print the number of stored verdicts until it is done."""
    with running(folder) as (store, worker, replays):
        if not store.read("SELECT 1 FROM raw.runs").rows:
            seed(store, units)
            replays.start(ReplayRequest(query=LAST_WEEK, evaluators=["judged"], max_usd=cap))
        worker.wake()
        done = "SELECT count(*) FROM raw.runs WHERE status = 'done'"
        while not store.read(done).rows[0][0]:
            print(store.read("SELECT count(*) FROM raw.scores").rows[0][0], flush=True)
            time.sleep(0.002)
        print("done", flush=True)


def run_child(folder: Path, units: int, cap: float, *, kill_at: int | None) -> None:
    """Run the child; kill -9 once so many verdicts are stored."""
    arguments = [sys.executable, __file__, "--child", str(folder), "--units", str(units), "--cap", str(cap)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if kill_at is not None and line.strip().isdigit() and int(line) >= kill_at:
                process.send_signal(signal.SIGKILL)
                break


def verdicts(store: EmbeddedStore) -> str:
    """A digest of all results, without times, run and cost."""
    rows = store.read(
        "SELECT score_key, trace_id, span_id, evaluator, version, judge, status, score, normalized, passing FROM scores"
        " ORDER BY score_key"
    ).rows
    return hashlib.sha256(json.dumps(rows, default=str).encode()).hexdigest()


def killed_replay(folder: Path, *, kills: int, units: int) -> dict[str, Any]:
    """Kill the replay at evenly spread points, let it end, repeat it; report what is stored."""
    # Each kill may leave the reservations of all running cases, which stay counted; the cap must hold even so.
    cap = CENT * (units + kills * 3 * CONCURRENCY) * 1.001
    for number in range(kills):
        run_child(folder, units, cap, kill_at=1 + number * units // (kills + 1))
    run_child(folder, units, cap, kill_at=None)
    with running(folder) as (store, worker, replays):
        before = verdicts(store)
        first = replays.list().replays[0]
        repeat = replays.start(ReplayRequest(query=LAST_WEEK, evaluators=["judged"])).replays[0]
        worker.wait_idle(60.0)
        rows, distinct, booked = store.read(
            "SELECT count(*), count(DISTINCT (trace_id, span_id)), (SELECT sum(usd) FROM raw.ledger) FROM raw.scores"
        ).rows[0]
        return {
            "status": first.status,
            "done": first.done,
            "rows": rows,
            "units": distinct,
            "booked_usd": booked,
            "cap_usd": cap,
            "identical": before == verdicts(store),
            "digest": before,
            "repeat": replays.get(repeat.run_id).done,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--cap", type=float, default=0.0)
    parser.add_argument("--short", action="store_true", help="3 kills over 100 units")
    options = parser.parse_args()
    if options.short:
        options.kills, options.units = 3, 100
    if options.child:
        child(options.child, options.units, options.cap)
        return
    reports = {}
    for kills in (0, options.kills):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            reports[kills] = killed_replay(Path(folder), kills=kills, units=options.units)
            print(f"{kills} kills: {time.perf_counter() - started:.1f} s  {reports[kills]}")
    plain, killed = reports[0], reports[options.kills]
    assert killed["rows"] == killed["units"] == options.units, "a verdict was lost or doubled"
    assert killed["booked_usd"] <= killed["cap_usd"], "the cap was exceeded"
    assert killed["identical"], "a repeat changed something"
    assert killed["digest"] == plain["digest"], "the verdicts differ from those of a run without kills"
    print(f"{options.kills} kills: {options.units} of {options.units} verdicts, each once, equal to the run without")


if __name__ == "__main__":
    main()
