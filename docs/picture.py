"""Make the README's picture: a week of synthetic traffic with a regression in prompt v7, photographed in chromium.

Run: .venv/bin/python docs/picture.py   (needs chromium and the test group)
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import sync_playwright  # noqa: E402 - after the path of tests/traffic.py is known
from traffic import rag_trace, send  # noqa: E402

from ragpulse_collector.app import Collector  # noqa: E402
from ragpulse_collector.client import connect  # noqa: E402
from ragpulse_collector.settings import Settings  # noqa: E402

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
DAY_NS = 86_400 * 10**9
TRACES = 8000
GOOD = ("The Eiffel Tower is 330 metres tall [1].", "It is 330 metres tall [1], and the Seine flows through Paris [2].")
BAD = "The Eiffel Tower is 240 metres tall [2] and was moved to Berlin in 1997."


def week(url: str) -> None:
    """Send a week of traces: busy days, quiet nights, a worse prompt from the fifth day on."""
    chance, now = random.Random(7), time.time_ns()
    batch = []
    for number in range(TRACES):
        age = chance.random() * 7
        busy = 0.55 + 0.45 * math.sin(2 * math.pi * (7 - age - 0.3))
        if chance.random() > busy:
            continue
        version = "v7" if age < 2.2 else "v6"
        wrong = chance.random() < (0.28 if version == "v7" else 0.06)
        batch += rag_trace(
            number,
            response=BAD if wrong else chance.choice(GOOD),
            prompt_version=version,
            start_ns=int(now - age * DAY_NS) - 60 * 10**9,
            latency_ms=chance.lognormvariate(6.4 if version == "v6" else 6.7, 0.45),
            error=chance.random() < 0.015,
        )
        if len(batch) > 900:
            send(url, batch)
            batch = []
    send(url, batch)


def main() -> None:
    """Send, wait for the evaluations, photograph."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"db": f"{folder}/week.duckdb", "port": 0, "settle_s": 0.0}
        collector = Collector(Settings().with_options("collector", options))
        collector.start()
        week(collector.url)
        client = connect(collector.url)
        while True:
            state = client.call("GET status")["evaluations"]
            decided = client.sql("select count(*) as n from traces where not decided").rows()[0]["n"]
            if decided == 0 and state["due"] == 0 and state["done"]:
                break
            time.sleep(0.5)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 1220})
            page.goto(f"{collector.url}/?from=-7d")
            page.wait_for_timeout(1500)
            page.screenshot(path=ROOT / "docs" / "images" / "overview.png")
            browser.close()
        collector.stop()


if __name__ == "__main__":
    main()
