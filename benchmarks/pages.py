"""From navigation to painted: the overview over a million spans while 5,000 a second arrive, a trace of 1,000 spans.

    python benchmarks/pages.py [--short] [--spans 400000] [--runs 7] [--roles all] [--open 60] [--matrix]

A real `ragpulse serve` answers; its file holds 1,000,000 spans of the last 24 hours and one trace of 1,000 spans. Each
visit has a window of its own and so an empty cache; "again" is a second visit of the same window. Runs are interleaved
with two floors of the same browser: a static HTML file and the emptiest page (sign-in). They run once quietly and once
while a process sends 5,000 spans a second. "painted" is the second frame after `load`, with the charts in the window.
The overview may show cached figures with their age; "never asked before" is a range without a cache: it is painted with
its traffic, and "whole" when the scores are there as well. --roles are roles of the collector, each value measured in
turn. --open keeps the overview open for so many seconds while spans arrive, and prints how often its facts were
refreshed and the longest time between. --short takes 100,000 spans and three runs. --matrix opens every page at four
sizes, in both themes, with data, empty and hostile, and counts complaints of axe-core, the policy and the console.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from _sending import Sending
from _served import Server
from queries import fill

from ragpulse_collector.store import EmbeddedStore
from ragpulse_dashboards.mount import load_assets

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
CONFTEST = importlib.import_module("dashboards.conftest")
TRAFFIC = importlib.import_module("traffic")
RATE = 5_000
WIDTHS = (2560, 1440, 1024, 390)
WATCH = """addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => {
  window.painted = performance.now(); })))"""
PAINTED = """() => new Promise((done) => {
const look = () => window.painted && !document.querySelector("[data-renew=rest]") ? done({
  painted: window.painted,
  whole: Math.max(window.painted, performance.now()),
  server: performance.getEntriesByType("navigation")[0].responseEnd,
  charts: document.querySelectorAll("canvas").length,
  requests: performance.getEntriesByType("resource").length }) : setTimeout(look, 5); look(); })"""
RENEWED = """() => { window.renewed = [performance.now()];
addEventListener("loaded", () => window.renewed.push(performance.now())); }"""
OTHERS = ("traces", "sessions", "documents", "explain", "topics", "evaluators")
LONG_TRACE = f"{1000 + 1:032x}"
STATIC = "<!doctype html><html lang=en><title>Nothing</title><h1>Nothing</h1><p>A file of 90 bytes."


def main() -> int:
    """Print the weight of the pages, measure them quietly and while spans arrive, and check them with --matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--spans", type=int, default=1_000_000, help="four a trace")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--roles", action="append", help="roles of the collector: all, or for example `ingest`")
    parser.add_argument("--open", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--matrix", action="store_true")
    options = parser.parse_args()
    weigh()
    browser = CONFTEST.Browser()
    try:
        for roles in options.roles or ["all"]:
            with tempfile.TemporaryDirectory() as folder:
                measure(browser, Path(folder), options, roles)
        return 1 if options.matrix and matrix(browser) else 0
    finally:
        browser.close()


def measure(browser: Any, folder: Path, options: argparse.Namespace, roles: str) -> None:
    """Fill a file, serve it, visit each page in turn: quietly, then while spans arrive."""
    spans, runs = (100_000, 3) if options.short else (options.spans, options.runs)
    store = EmbeddedStore(folder / "pages.duckdb", decode=lambda raw: pickle.loads(raw.body))
    fill(store, spans, end=datetime.now(UTC).replace(tzinfo=None), long=timedelta(days=1))
    store.close()
    (folder / "nothing.html").write_text(STATIC)
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    server = Server(folder / "pages.duckdb", *(() if roles == "all" else ("--roles", roles)))
    base = f"http://127.0.0.1:{server.port}"
    link = one_trace(base, 1000)
    pages = {
        "static file": itertools.repeat(f"http://127.0.0.1:{files.server_port}/nothing.html"),
        "emptiest page": itertools.repeat(f"{base}/login"),
        f"overview, {spans:,} spans": itertools.repeat(f"{base}/"),
        "overview, never asked before": fresh_ranges(f"{base}/"),
        **{f"/{path}": fresh_ranges(f"{base}/{path}") for path in OTHERS},
        "trace of 1,000 spans": itertools.repeat(base + link),
    }
    try:
        report(f"quiet, roles: {roles}", visits(browser, pages, runs))
        sending = Sending(server.port, RATE)
        time.sleep(3)
        report(f"{RATE:,} spans/s, roles: {roles}", visits(browser, pages, runs))
        if options.open:
            measure_refresh(browser, base, options.open)
        accepted, refused = sending.stop()
        print(f"{accepted:,} of {RATE:,} spans a second were accepted, {refused} bodies sent again")
    finally:
        server.stop()
        files.shutdown()


def fresh_ranges(url: str) -> Iterator[str]:
    """Yield the URL with a longer range each time, so that no figure of it is in a cache."""
    return (f"{url}?from=-{minutes}m" for minutes in itertools.count(1441))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def one_trace(base: str, spans: int) -> str:
    """Send one trace of so many spans and return its URL as the list of traces links to it."""
    start = time.time() - 90
    root, search, chat = TRAFFIC.rag_trace(1000, start_ns=int(start * 1e9))
    more = [{**chat, "spanId": f"{number + 10**6:016x}"} for number in range(spans - 3)]
    TRAFFIC.send(base, [root, search, chat, *more])
    return f"/traces/{LONG_TRACE}?{urlencode({'at': datetime.fromtimestamp(start, UTC).isoformat()})}"


def visits(browser: Any, pages: dict[str, Iterator[str]], runs: int) -> dict[str, list[dict[str, float]]]:
    """Visit the pages in turn, so that a busy minute affects all alike; the first round only warms up."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in pages}
    for number in range(runs + 1):
        for name, urls in pages.items():
            result = browser.visit("http://127.0.0.1", partial(_twice, url=next(urls)), fresh=True)
            if number:
                results[name].append(result)
    return results


def _twice(visit: Any, url: str) -> dict[str, float]:
    visit.page.add_init_script(WATCH)
    measured: list[dict[str, float]] = []
    for _ in range(2):
        visit.page.goto(url, wait_until="commit")
        measured.append(visit.page.evaluate(PAINTED))
    visit.problems.clear()  # the static file has no icon
    return {**measured[0], "again": measured[1]["painted"]}


def measure_refresh(browser: Any, base: str, seconds: int) -> None:
    """Keep the overview open and print how often it was refreshed, and the longest time between."""

    def steps(visit: Any) -> list[float]:
        visit.open("/")
        visit.page.evaluate(RENEWED)
        visit.page.wait_for_timeout(seconds * 1000)
        times: list[float] = visit.page.evaluate("() => [...window.renewed, performance.now()]")
        return times

    times = browser.visit(base, steps, fresh=True)
    gaps = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
    print(f"overview open for {seconds} s: refreshed {len(gaps) - 1} times, at most {max(gaps):.1f} s apart")


def report(title: str, results: dict[str, list[dict[str, float]]]) -> None:
    """Print medians in milliseconds, and each page's ratio to the emptiest one."""
    floor = median(run["painted"] for run in results["emptiest page"])
    heads = ("painted", "best", "worst", "x empty", "server", "whole", "again", "files", "charts")
    print(f"{title:<36}" + "".join(f"{head:>9}" for head in heads))
    for name, runs in results.items():
        painted = [run["painted"] for run in runs]
        middle = {key: median(run[key] for run in runs) for key in runs[0]}
        figures = (middle["painted"], min(painted), max(painted), middle["server"], middle["whole"], middle["again"])
        cells = [f"{figure:>9.0f}" for figure in (*figures, middle["requests"], middle["charts"])]
        cells.insert(3, f"{middle['painted'] / floor:>9.1f}")
        print(f"{name:<36}" + "".join(cells))


def weigh() -> None:
    """Print the size of scripts and styles as they are sent."""
    content = load_assets().content
    scripts = [path for path in content if path.endswith(".js")]
    for kind, names in (("scripts", scripts), ("styles", ["style.css"])):
        packed = sum(len(gzip.compress(content[name], 9)) for name in names)
        print(f"{kind}: {len(names)} files, {packed / 1000:.1f} kB gzipped")


def matrix(browser: Any) -> int:
    """Open every page in every state; print each complaint and return their number."""
    pages = importlib.import_module("dashboards.test_browser").PAGES
    fake = importlib.import_module("dashboards.fake_api")
    complaints = 0
    for kind in ("data", "empty", "hostile"):
        with CONFTEST.serve(fake.FakeApi(empty=kind == "empty", hostile=kind == "hostile")) as base:
            for width in WIDTHS:
                for theme in ("light", "dark"):
                    for path in pages:
                        problems = check(browser, base, path, width, theme)
                        complaints += len(problems)
                        for problem in problems:
                            print(kind, width, theme, path, problem)
        print(f"{kind}: {len(pages)} pages x {len(WIDTHS)} sizes x 2 themes checked")
    return complaints


def check(browser: Any, base: str, path: str, width: int, theme: str) -> list[str]:
    """Return the complaints about one page; a page of an empty store may be a 404."""

    def steps(visit: Any) -> list[str]:
        visit.open(path)
        missing = [text for text in visit.problems if "404" in text]
        complaints = [text for text in visit.problems if text not in missing] + visit.axe()
        complaints += ["wider than the window"] if visit.overflow() > 0 else []
        complaints += ["a script ran"] if visit.page.evaluate("window.__pwned") is not None else []
        visit.problems.clear()
        return complaints

    problems: list[str] = browser.visit(base, steps, width=width, theme=theme)
    return problems


if __name__ == "__main__":
    raise SystemExit(main())
