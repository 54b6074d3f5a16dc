"""1,000 stored traces through `POST /api/v1/replays` of a real collector: a loopback judge, a cap, offline checks.

    python benchmarks/replay_speed.py [--short]

Collector, judge and client are three processes. Prints the seconds until the last verdict and the CPU seconds of
collector and judge, storing included. Floors in the same run: as many bare questions to the same judge by the same HTTP
client at the same concurrency; latency x cases / concurrency where the judge thinks; for checks without a judge, the
evaluators alone. A few cases run first, so that imports do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from _judge import JudgeServer, bare_questions
from _payload import body
from _served import Server

from ragpulse_collector.client import Client
from ragpulse_evaluators import Case, evaluate

CONCURRENCY = 64
CONFIG = """
offline = false
[judge]
model = "{base}#tiny"
concurrency = {concurrency}
[[rule]]
name = "none"
evaluators = ["refusal"]
rate = 0.0
"""
CHEAP = ("is_json", "latency", "citation_check")


class Collector:
    """A collector with stored traces that measures its replays."""

    def __init__(self, folder: Path, judge: JudgeServer, traces: int) -> None:
        config = folder / "ragpulse.toml"
        config.write_text(CONFIG.format(base=judge.base, concurrency=CONCURRENCY))
        self._server = Server(folder / "speed.duckdb", "--config", str(config))
        self._client = Client(f"http://127.0.0.1:{self._server.port}")
        self.traces = traces
        self._fill()

    def _fill(self) -> None:
        """Send the traces as OTLP and wait until they are decided."""
        connection = self._server.connection()
        for first in range(0, self.traces, 100):
            spans = body(4 * min(100, self.traces - first), seed=first, start_ns=time.time_ns() - 10**12)
            connection.request("POST", "/v1/traces", spans, {"Content-Type": "application/x-protobuf"})
            assert connection.getresponse().read() is not None
        connection.close()
        while self.count("SELECT count(DISTINCT trace_id) FROM decisions") < self.traces:
            time.sleep(0.1)

    def count(self, sql: str) -> int:
        """The number that a query returns."""
        return int(next(iter(self._client.sql(sql).rows()[0].values())))

    def replay(self, evaluators: Sequence[str], **options: Any) -> tuple[float, float]:
        """Run replays to their end; (seconds from the request to the last verdict, CPU seconds of the collector)."""
        cpu, begun = self._server.cpu_s(), time.perf_counter()
        runs = self._client.call("POST replays", {"evaluators": list(evaluators), "since": "1d", **options})["replays"]
        seconds = time.perf_counter() - begun
        for run in runs:
            # Frequent polling would cost more than the replay; the state has the exact times.
            while (state := self._client.call(f"GET replays/{run['run_id']}", {}))["status"] == "running":
                time.sleep(0.25)
            assert (state["status"], state["done"]) == ("done", state["total"]), state
            times = [datetime.fromisoformat(state[name]) for name in ("created_at", "finished_at")]
            seconds = max(seconds, (times[1] - times[0]).total_seconds())
        return seconds, self._server.cpu_s() - cpu

    def stop(self) -> None:
        """End the collector."""
        self._server.stop()


@contextlib.contextmanager
def serving(traces: int, think_s: float) -> Iterator[tuple[Collector, JudgeServer]]:
    """A collector with stored traces beside its judge."""
    with tempfile.TemporaryDirectory() as folder, JudgeServer(think_s) as judge:
        collector = Collector(Path(folder), judge, traces)
        try:
            yield collector, judge
        finally:
            collector.stop()


def judged(collector: Collector, server: JudgeServer, label: str, evaluator: str, **options: Any) -> None:
    """Print the cost of a judged replay and its floors."""
    before = server.cpu_s()
    seconds, cpu = collector.replay([evaluator], **options)
    judge_cpu = server.cpu_s() - before
    begun = time.perf_counter()
    asyncio.run(bare_questions(server.base, ["word " * 700] * collector.traces, CONCURRENCY))
    floor = time.perf_counter() - begun
    ideal = server.think_s * collector.traces / CONCURRENCY
    print(
        f"{label:<32} {seconds:6.2f} s (collector {cpu:4.2f}, judge {judge_cpu:4.2f} CPU-s)"
        f"   bare questions {floor:5.2f} s x{seconds / floor:5.2f}"
        + (f"   latency x cases / concurrency {ideal:5.2f} s x{seconds / ideal:5.2f}" if ideal else "")
    )


def offline(collector: Collector) -> None:
    """Print the jobs of cheap checks a CPU second of the collector; the floor is the evaluators alone."""
    collector.replay(CHEAP, limit=10)
    seconds, cpu = collector.replay(CHEAP)
    case = Case(query="q" * 80, response="r " * 400, contexts=["c " * 250] * 5, latency_s=1.0)
    begun = time.process_time()
    asyncio.run(evaluate([case] * collector.traces, list(CHEAP)))
    floor = time.process_time() - begun
    jobs = collector.traces * len(CHEAP)
    print(
        f"{jobs} offline jobs ({', '.join(CHEAP)}): {seconds:.2f} s, {jobs / cpu:,.0f} a CPU-second;"
        f" evaluators alone {jobs / floor:,.0f} a CPU-second"
    )


def main() -> None:
    traces = 100 if "--short" in sys.argv else 1000
    with serving(traces, 0.0) as (collector, judge):
        offline(collector)
        collector.replay(["faithfulness", "relevancy"], limit=5)
        judged(collector, judge, "judge answers at once", "faithfulness")
        judged(collector, judge, "the same, calls under a cap", "relevancy", max_usd=10.0)
    with serving(traces, 0.05) as (collector, judge):
        collector.replay(["faithfulness"], limit=5)
        judged(collector, judge, "judge thinks 50 ms", "faithfulness")
        seconds, cpu = collector.replay(["faithfulness"])
        print(f"{'again: every verdict is reused':<32} {seconds:6.2f} s (collector {cpu:4.2f} CPU-s)")


if __name__ == "__main__":
    main()
