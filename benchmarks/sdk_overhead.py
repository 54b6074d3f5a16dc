"""What a decorated call costs its caller, as a ratio to the same three spans written by hand in raw OpenTelemetry.

Both run interleaved in one process; the figure is the caller thread's CPU less that of the bare application, the median
over rounds. Run: `python benchmarks/sdk_overhead.py [--traces 300] [--rounds 15]`.
Also: import time and disabled cost. The goals are those of the SDK's issue and are printed beside the figures.
"""

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sdk_probes import ADAPTERS
from sdk_workload import QUERY, Bare, Raw, Spans, decorated, peered, sink

import ragpulse

RAW_IMPORT = "import opentelemetry.sdk.trace.export, opentelemetry.exporter.otlp.proto.http.trace_exporter"
MODES = ("sync", "async", "stream")
GOALS = {"own": (0.25, 0.30, 0.60), "foreign": (0.55, 0.85, 0.85)}


def measure(application: Any, mode: str, traces: int) -> float:
    """Caller-thread CPU in microseconds a trace."""

    async def whole() -> None:
        for _ in range(traces):
            await application.aanswer(QUERY)

    def run() -> None:
        if mode == "async":
            asyncio.run(whole())
            return
        for _ in range(traces):
            if mode == "sync":
                application.answer(QUERY)
            else:
                for _chunk in application.stream(QUERY):
                    pass

    gc.collect()
    started = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - started) / 1000 / traces


def raw_provider(url: str) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    return provider


def compare(make_ours: Callable[[], None], url: str, traces: int, rounds: int) -> dict[str, tuple[float, float]]:
    """For each mode: (floor, ours) in microseconds above the bare application."""
    floor = raw_provider(url)
    applications = {
        "bare": Bare(),
        "raw": Raw(floor.get_tracer("raw")),
        "spans": Spans(floor.get_tracer("raw")),
        "ours": decorated(),
    }
    taken: dict[tuple[str, str], list[float]] = {}
    make_ours()
    for turn in range(rounds + 1):
        for mode in MODES:
            for name, application in applications.items():
                if name == "spans" and mode != "sync":
                    continue
                cost = measure(application, mode, traces)
                if turn:
                    taken.setdefault((mode, name), []).append(cost)
                ragpulse.flush(10)
    ragpulse.shutdown(5)
    floor.shutdown()
    middle = {key: statistics.median(costs) for key, costs in taken.items()}
    print(f"{'three empty SDK spans':22} sync    {middle['sync', 'spans'] - middle['sync', 'bare']:.1f} us")
    return {
        mode: (middle[mode, "raw"] - middle[mode, "bare"], middle[mode, "ours"] - middle[mode, "bare"])
        for mode in MODES
    }


def compare_peer(name: str, url: str, traces: int, rounds: int) -> dict[str, tuple[float, float]]:
    """As `compare`, with another SDK's decorator in our place."""
    decorate, _, deliver = ADAPTERS[name](url)
    floor = raw_provider(url)
    applications = {"bare": Bare(), "raw": Raw(floor.get_tracer("raw")), "ours": peered(decorate)}
    taken: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for mode in MODES:
            for who, application in applications.items():
                cost = measure(application, mode, traces)
                if turn:
                    taken.setdefault((mode, who), []).append(cost)
                deliver()
    middle = {key: statistics.median(costs) for key, costs in taken.items()}
    return {
        mode: (middle[mode, "raw"] - middle[mode, "bare"], middle[mode, "ours"] - middle[mode, "bare"])
        for mode in MODES
    }


def report(title: str, figures: dict[str, tuple[float, float]], goals: tuple[float, ...]) -> None:
    for (mode, (floor, ours)), goal in zip(figures.items(), goals, strict=True):
        print(f"{title:22} {mode:7} floor {floor:7.1f} us  this {ours:7.1f} us  ratio {ours / floor:5.2f}  goal {goal}")


def import_ms(statement: str) -> float:
    code = f"import time; t = time.perf_counter(); {statement}; print((time.perf_counter() - t) * 1000)"
    taken = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7)]
    return statistics.median(taken)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--traces", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--peer", help="measure this SDK instead; in its own environment, with PYTHONPATH=sdk")
    options = arguments.parse_args()
    url, server = sink()
    if options.peer:
        report(options.peer, compare_peer(options.peer, url, options.traces, options.rounds), GOALS["own"])
        server.terminate()
        return
    own = compare(lambda: ragpulse.configure("bench", endpoint=url, isolated=True), url, options.traces, options.rounds)
    report("own provider", own, GOALS["own"])
    handed = TracerProvider()
    foreign = compare(
        lambda: ragpulse.configure("bench", endpoint=url, tracer_provider=handed), url, options.traces, options.rounds
    )
    report("provider handed in", foreign, GOALS["foreign"])
    trace.set_tracer_provider(TracerProvider())
    beside = compare(lambda: ragpulse.configure("bench", endpoint=url), url, options.traces, options.rounds)
    report("global provider found", beside, GOALS["foreign"])
    ragpulse.configure("bench", enabled=False)
    application, bare = decorated(), Bare()
    costs = [measure(application, "sync", 5000) - measure(bare, "sync", 5000) for _ in range(7)]
    print(f"disabled: {statistics.median(costs):.2f} us a trace  goal 2")
    print(f"import ragpulse: {import_ms('import ragpulse'):.0f} ms  goal 120")
    print(f"import raw OpenTelemetry: {import_ms(RAW_IMPORT):.0f} ms")
    server.terminate()


if __name__ == "__main__":
    main()
