"""`ragpulse demo`: the main job on one screen, offline.

Application (decorated), six hours of traffic ──OTLP over a socket──▶ collector ─▶ store ─▶ decide ─▶ evaluate ─▶ table
"""

from __future__ import annotations

import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragpulse_collector.client import Client, connect
from ragpulse_collector.settings import Settings

__all__ = ["run"]

DEADLINE_S = 45.0
Say = Callable[[str], object]


def run(*, stay: bool, model: str | None, judge: str | None, port: int, say: Say) -> int:
    """Answer the questions under both prompts, wait for the evaluations, print the table; 0 when all went well."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.demo.report import print_report

    with tempfile.TemporaryDirectory(prefix="ragpulse-demo-") as folder:
        options = {"db": str(Path(folder) / "demo.duckdb"), "port": port, "settle_s": 0.5}
        settings = Settings().with_options("collector", options).with_options("judge", {"model": judge})
        collector = Collector(settings)
        collector.start()
        try:
            client = connect(collector.url)
            started = time.monotonic()
            asked = _ask_everything(collector.url, model, say)
            done = _wait_for_evaluations(client, asked)
            say(f"answered {asked} questions, {done} results, {time.monotonic() - started:.1f} s\n")
            print_report(client, say)
            say(
                f"\npage: {collector.url}/"
                + ("   (Ctrl-C ends)" if stay else "   (stays up with: ragpulse demo --serve)")
            )
            if stay:
                _until_interrupted()
        finally:
            collector.stop()
    return 0


def _ask_everything(url: str, model: str | None, say: Say) -> int:
    from ragpulse_collector.demo.application import model_generator
    from ragpulse_collector.demo.corpus import QUESTIONS
    from ragpulse_collector.demo.traffic import HOURS, VERSIONS, traffic, visits

    # A model is asked once a question and version: it may cost money.
    planned = visits(rounds=1) if model else visits()
    say(f"collector at {url}")
    say(f"{len(planned)} visits with {len(QUESTIONS)} questions, spread over the last {HOURS:g} hours")
    say(f"half way the prompt {VERSIONS[0]} is replaced by {VERSIONS[1]}")
    here = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this computer's: no proxy knows the way
    for body in traffic(planned, generate=model_generator(model, _complete) if model else None):
        request = urllib.request.Request(f"{url}/v1/{body.signal}", body.body, {"Content-Type": body.content_type})
        with here.open(request, timeout=DEADLINE_S):
            pass
    return len(planned)


def _complete(model: str, prompt: str) -> Any:
    import asyncio

    from ragpulse_evaluators.judges.names import as_judge

    judge = as_judge(model)
    assert judge is not None, "a model was named"
    return asyncio.run(judge.ask([{"role": "user", "content": prompt}]))[0]


def _wait_for_evaluations(client: Client, traces: int) -> int:
    """Return how many results there are once no job is pending; raises TimeoutError after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        decided = client.sql("select count(distinct trace_id) as n from decisions").rows()[0]["n"]
        state = client.call("GET status")["evaluations"]
        if decided >= traces and state["pending"] == 0:
            return int(client.sql("select count(*) as n from scores").rows()[0]["n"])
        time.sleep(0.1)
    raise TimeoutError(f"evaluations did not finish within {DEADLINE_S:.0f} s: {state}")


def _until_interrupted() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
