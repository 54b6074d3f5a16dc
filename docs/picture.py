"""Make the README's picture: a week of synthetic traffic with a regression in prompt v7, photographed in chromium.

Run: .venv/bin/python docs/picture.py   (needs chromium and the test group)
"""

from __future__ import annotations

import importlib
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from traffic import rag_trace, send  # noqa: E402 - after the path of tests/ is known

from ragpulse_collector.app import Collector  # noqa: E402
from ragpulse_collector.client import connect  # noqa: E402
from ragpulse_collector.settings import Settings, TargetSettings  # noqa: E402

DAY_NS = 86_400 * 10**9
BUCKET_NS = 7_200 * 10**9
"""What a week is drawn in: the last one is filled, or its point would stand on a handful of answers."""
TRACES = 12_000
GOOD = ("The Eiffel Tower is 330 metres tall [1].", "It is 330 metres tall [1], and the Seine flows through Paris [2].")
BAD = "The Eiffel Tower is 240 metres tall [2] and was moved to Berlin in 1997."


def week(url: str) -> None:
    """Send a week of traces that ends with a full bucket: busy days, quiet nights, a worse prompt on the last two."""
    chance, now = random.Random(7), time.time_ns()
    end = now - now % BUCKET_NS
    batch = []
    for number in range(TRACES):
        start = end - int(chance.random() * (7 * DAY_NS - 2 * BUCKET_NS)) - 1
        busy = 0.62 - 0.38 * math.cos(2 * math.pi * (start % DAY_NS / DAY_NS - 0.15))
        if chance.random() > busy:
            continue
        version = "v7" if end - start < 2.2 * DAY_NS else "v6"
        wrong = chance.random() < (0.28 if version == "v7" else 0.06)
        batch += rag_trace(
            number,
            session=f"session-{number // 4}",
            response=BAD if wrong else chance.choice(GOOD),
            prompt_version=version,
            start_ns=start,
            latency_ms=chance.lognormvariate(6.4 if version == "v6" else 6.7, 0.45),
            error=chance.random() < 0.015,
        )
        if len(batch) > 900:
            send(url, batch)
            batch = []
    send(url, batch)


def photograph(visit: Any) -> None:
    """Open the week and keep what is seen of it."""
    visit.page.set_viewport_size({"width": 1280, "height": 1325})
    visit.open("/?from=-7d")
    visit.page.wait_for_timeout(500)
    visit.page.wait_for_selector("text=towers.md", timeout=30_000)
    visit.page.screenshot(path=ROOT / "docs" / "images" / "overview.png")


def main() -> None:
    """Send, wait for the evaluations, photograph."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"db": f"{folder}/week.duckdb", "port": 0, "settle_s": 0.0}
        target = TargetSettings(metric="quality:groundedness", min=0.85)
        settings = Settings().with_options("collector", options).model_copy(update={"target": (target,)})
        collector = Collector(settings)
        collector.start()
        week(collector.url)
        client = connect(collector.url)
        while True:
            state = client.call("GET status")["evaluations"]
            decided = client.sql("select count(*) as n from traces where not decided").rows()[0]["n"]
            if decided == 0 and state["pending"] == 0 and state["done"]:
                break
            time.sleep(0.5)
        browser = importlib.import_module("dashboards.conftest").Browser()
        browser.visit(collector.url, photograph)
        browser.close()
        collector.stop()


if __name__ == "__main__":
    main()
