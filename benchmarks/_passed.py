"""Which modules of the collector are entered on three ways through a running collector; prints JSON.

Started by `house.py` with the PYTHONPATH of the tree to look at. A module counts when a function of it is called in
any thread while the way is recorded; each way is gone once before, so that imports do not count.
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
"""Work in the background that happens to fall into one recording is not in all of them."""
RULE = """
[[rule]]
name = "house"
evaluators = ["groundedness"]
rate = 1.0
"""


class Recorder:
    """Collects the modules whose functions are called while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self._seen: set[str] = set()
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def record(self, way: Callable[[int], object]) -> list[str]:
        """Go a way several times and return the modules that were entered each time, without the package's name."""
        entered = []
        for number in range(2, 2 + TIMES):
            self._seen = set()
            self.is_on = True
            way(number)
            self.is_on = False
            entered.append(self._seen)
        return sorted(name.removeprefix(f"{PACKAGE}.") for name in set.intersection(*entered))

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if self.is_on and event == "call" and name.startswith(PACKAGE):
            self._seen.add(name)


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


def eventually(holds: Callable[[], bool]) -> None:
    """Look until something holds."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("it did not happen in time")
        time.sleep(0.02)


def main() -> None:
    """Record the three ways."""
    recorder = Recorder()
    from ragpulse_collector.app import Collector
    from ragpulse_collector.configuration import load_settings

    def sent_and_listed(url: str, number: int) -> None:
        post(url, number)
        eventually(lambda: f"{number:032x}" in get(url, "traces"))

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ragpulse.toml"
        config.write_text(RULE, encoding="utf-8")
        given = {"port": 0, "settle_s": 0.0, "quiet_s": 0.2}
        plain = load_settings(config).with_options("collector", given | {"db": f"{folder}/plain.duckdb"})
        plain = plain.with_options("collector", {"roles": ["ingest"]})
        running = Collector(plain)
        running.start()
        url = running.url
        sent_and_listed(url, 1)
        body = recorder.record(lambda number: sent_and_listed(url, number))
        get(url, "traces?service=house")
        parameter = recorder.record(lambda _: get(url, "traces?service=house"))
        running.stop()

        ruled = load_settings(config).with_options("collector", given | {"db": f"{folder}/ruled.duckdb"})
        running = Collector(ruled)
        running.start()
        ruled_url = running.url

        def scored(number: int) -> bool:
            sql = f"SELECT 1 FROM scores WHERE trace_id = '{number:032x}'"
            return bool(running.store.read(sql).rows)

        def sent_and_scored(number: int) -> None:
            post(ruled_url, number)
            eventually(lambda: scored(number))

        sent_and_scored(1)
        rule = recorder.record(lambda number: (load_settings(config), sent_and_scored(number)))
        running.stop()
    print(json.dumps({"body": body, "rule": [name for name in rule if name not in body], "parameter": parameter}))
