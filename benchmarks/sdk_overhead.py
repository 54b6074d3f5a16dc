"""What a decorated call costs its caller, as a ratio to the same three spans written by hand in raw OpenTelemetry.

Both run interleaved in one process; the figure is the caller thread's CPU less that of the bare application, the median
over rounds. A stream has two floors: `stream` leaves the span current in the consumer between two chunks, as
`with start_as_current_span` around a `yield` does; `steps` does what ragpulse does (see `sdk_workload.Stepwise`).
Run: `python benchmarks/sdk_overhead.py [--traces 300] [--rounds 15]`. Another SDK in our place, in an
environment of its own: `PYTHONPATH=sdk THAT/bin/python benchmarks/sdk_overhead.py --peer traceloop` (needs `httpx`).
Also: import time and disabled cost. The goals are those of the SDK's issue and are printed beside the figures.
"""

import argparse
import asyncio
import contextlib
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
from sdk_workload import QUERY, Bare, Raw, Spans, Stepwise, decorated, peered, sink

import ragpulse

RAW_IMPORT = "import opentelemetry.sdk.trace.export, opentelemetry.exporter.otlp.proto.http.trace_exporter"
MODES = ("sync", "async", "stream")
GOALS = {"own": (0.25, 0.30, 0.60, 0.60), "foreign": (1.0, 1.0, 1.0, 1.0)}
ONLY_IN = {"spans": "sync", "steps": "stream"}
"""Applications that are measured in one mode."""


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


Figures = dict[str, tuple[float, float, float]]
"""For each mode, and for streams against `steps`: floor and ours, in us a trace above the bare one, and their ratio."""


def compare(ours: Any, deliver: Callable[[], object], url: str, traces: int, rounds: int) -> Figures:
    """Applications take turns; the ratio is the median of each round's own, so that a slower spell harms none."""
    provider = raw_provider(url)
    tracer = provider.get_tracer("raw")
    applications = {"bare": Bare(), "raw": Raw(tracer), "spans": Spans(tracer), "steps": Stepwise(tracer), "ours": ours}
    taken: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for _ in range(rounds + 1):
        for mode in MODES:
            costs = {}
            for who, application in applications.items():
                if ONLY_IN.get(who, mode) == mode:
                    costs[who] = measure(application, mode, traces)
                    deliver()
                    provider.force_flush()
            taken[mode].append({who: cost - costs["bare"] for who, cost in costs.items()})
    provider.shutdown()
    warm = {mode: found[1:] for mode, found in taken.items()}
    print(
        f"{'three empty SDK spans':22} sync    {statistics.median([found['spans'] for found in warm['sync']]):.1f} us"
    )
    figures = {mode: _figures(costs, "raw") for mode, costs in warm.items()}
    return figures | {"steps": _figures(warm["stream"], "steps")}


def _figures(costs: list[dict[str, float]], floor: str) -> tuple[float, float, float]:
    return (
        statistics.median([found[floor] for found in costs]),
        statistics.median([found["ours"] for found in costs]),
        statistics.median([found["ours"] / found[floor] for found in costs]),
    )


def report(title: str, figures: Figures, goals: tuple[float, ...]) -> None:
    for (mode, (floor, ours, ratio)), goal in zip(figures.items(), goals, strict=True):
        print(f"{title:22} {mode:7} floor {floor:7.1f} us  this {ours:7.1f} us  ratio {ratio:5.2f}  goal {goal}")


def nested_error_ms(make: Callable[[Callable[[], None]], Callable[[], None]]) -> float:
    """An exception through 200 nested functions, each with a span of its own."""

    def raising() -> None:
        raise ValueError("no")

    function = raising
    for _ in range(200):
        function = make(function)
    started = time.thread_time_ns()
    with contextlib.suppress(ValueError):
        function()
    return (time.thread_time_ns() - started) / 1e6


def nested_errors(url: str) -> None:
    provider = raw_provider(url)
    tracer = provider.get_tracer("raw")
    ragpulse.configure("bench", endpoint=url, isolated=True)
    ours = statistics.median([nested_error_ms(lambda inner: ragpulse.span(lambda: inner())) for _ in range(7)])
    raw = statistics.median([nested_error_ms(tracer.start_as_current_span("raw")) for _ in range(7)])
    ragpulse.shutdown(5)
    provider.shutdown()
    print(f"exception through 200 spans: floor {raw:.0f} ms  this {ours:.0f} ms  ratio {ours / raw:.2f}  goal 1.5")


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
        decorate, _, deliver = ADAPTERS[options.peer](url)
        figures = compare(peered(decorate), deliver, url, options.traces, options.rounds)
        report(options.peer, figures, GOALS["own"])
        server.terminate()
        return

    def measured(title: str, goals: str, **provider: Any) -> None:
        ragpulse.configure("bench", endpoint=url, **provider)
        figures = compare(decorated(), lambda: ragpulse.flush(10), url, options.traces, options.rounds)
        ragpulse.shutdown(5)
        report(title, figures, GOALS[goals])

    measured("own provider", "own", isolated=True)
    measured("provider given", "foreign", tracer_provider=TracerProvider())
    trace.set_tracer_provider(TracerProvider())
    measured("global provider found", "foreign")
    nested_errors(url)
    ragpulse.configure("bench", enabled=False)
    application, bare = decorated(), Bare()
    costs = [measure(application, "sync", 5000) - measure(bare, "sync", 5000) for _ in range(7)]
    print(f"disabled: {statistics.median(costs):.2f} us a trace  goal 2")
    print(f"import ragpulse: {import_ms('import ragpulse'):.0f} ms  goal 120")
    print(f"import raw OpenTelemetry: {import_ms(RAW_IMPORT):.0f} ms")
    server.terminate()


if __name__ == "__main__":
    main()
