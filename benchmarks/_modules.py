"""The collector's modules that a span, a rule and a parameter pass in a running collector; prints JSON.

Started by `house.py` with the PYTHONPATH of a checkout. A module counts when one of its functions is called in any
thread during the recording. Each action runs once before its recording, so that imports do not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType

PACKAGE = "ragpulse_collector"
WITHIN_S = 60.0
TIMES = 5
"""Background work may fall into one recording, but not into all of them."""
METRIC = "metrics?name=quality:groundedness&group_by=model&from=-1d"
RULE = """
offline = false
[[rule]]
name = "house"
evaluators = ["groundedness"]
rate = 1.0
"""


class Recorder:
    """Collects the modules whose functions are called during a recording."""

    def __init__(self) -> None:
        self._active = False
        self._modules: set[str] = set()
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def record(self, action: Callable[[int], object]) -> list[str]:
        """Run an action several times; return the modules of every run, without the package's name."""
        runs = []
        for number in range(2, 2 + TIMES):
            self._modules = set()
            self._active = True
            action(number)
            self._active = False
            runs.append(self._modules)
        return sorted(name.removeprefix(f"{PACKAGE}.") for name in set.intersection(*runs))

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if self._active and event == "call" and name.startswith(PACKAGE):
            self._modules.add(name)


def attribute(key: str, value: str) -> dict[str, object]:
    return {"key": key, "value": {"stringValue": value}}


def post(url: str, number: int) -> None:
    """Send one RAG span as OTLP/JSON."""
    start = time.time_ns() - 10**10
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "answer",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "attributes": [
            attribute("ragpulse.span.kind", "rag"),
            attribute("input.value", "How tall is the Eiffel Tower?"),
            attribute("output.value", "330 metres."),
        ],
    }
    resource = {"attributes": [attribute("service.name", "house")]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}
    request = urllib.request.Request(
        f"{url}/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def get(url: str, path: str) -> str:
    with urllib.request.urlopen(f"{url}/api/v1/{path}") as answer:
        return str(answer.read().decode())


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("it did not happen in time")
        time.sleep(0.02)


def main() -> None:
    """Record the three paths."""
    recorder = Recorder()
    from ragpulse_collector.app import Collector
    from ragpulse_collector.configuration import load_settings

    def send_and_list(url: str, number: int) -> None:
        post(url, number)
        wait_until(lambda: f"{number:032x}" in get(url, "traces"))

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ragpulse.toml"
        config.write_text(RULE, encoding="utf-8")
        options = {"port": 0, "settle_s": 0.0, "quiet_s": 0.2}
        settings = load_settings(config).with_options("collector", options | {"db": f"{folder}/ingest.duckdb"})
        collector = Collector(settings.with_options("collector", {"roles": ["ingest"]}))
        collector.start()
        url = collector.url
        send_and_list(url, 1)
        body = recorder.record(lambda number: send_and_list(url, number))
        get(url, "traces?service=house")
        parameter = recorder.record(lambda _: get(url, "traces?service=house"))
        get(url, METRIC)
        question = recorder.record(lambda _: get(url, METRIC))
        collector.stop()

        settings = load_settings(config).with_options("collector", options | {"db": f"{folder}/evaluate.duckdb"})
        collector = Collector(settings)
        collector.start()

        def score(number: int) -> None:
            load_settings(config)
            sql = f"SELECT 1 FROM scores WHERE trace_id = '{number:032x}'"
            post(collector.url, number)
            wait_until(lambda: bool(collector.store.read(sql).rows))

        score(1)
        rule = recorder.record(score)
        collector.stop()
    passed = {"body": body, "parameter": parameter, "question": question}
    print(json.dumps(passed | {"rule": [name for name in rule if name not in body]}))
