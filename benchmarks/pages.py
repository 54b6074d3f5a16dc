"""From navigation to painted: the overview over a million spans while 5,000 a second arrive, a trace of 1,000 spans.

    python benchmarks/pages.py [--short] [--runs 7] [--roles all] [--roles ingest] [--open 60] [--matrix]

A real `ragpulse serve` answers; its file holds 1,000,000 spans of the last 24 hours and one trace of 1,000 spans. Each
visit has a window of its own and so an empty cache; "again" is a second visit of the same window. Runs are interleaved
with two floors of the same browser: a static HTML file and the emptiest page (sign-in); once quietly, once beside a
process that sends 5,000 spans a second, as far as they are taken. Painted is the second frame after `load`, the charts
in the window drawn. The overview may show figures that it read a while before, and says so; "never asked before" is a
range that nobody asked for yet: it is painted with its traffic, and "whole" when the scores have come as well. --roles
is what the collector does, each value measured in turn. --open keeps the overview open for so many seconds while spans
arrive and prints how often its facts were renewed, and the longest time they stood still. --short takes 100,000 spans
and three runs. --matrix opens
every page at four sizes, in both themes, with data, empty and hostile, and counts what axe-core, the policy or the
console complain about.
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
from ragpulse_dashboards.assets import load_assets

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
LONG_TRACE = f"{1000 + 1:032x}"
STATIC = "<!doctype html><html lang=en><title>Nothing</title><h1>Nothing</h1><p>A file of 90 bytes."


def main() -> int:
    """Weigh, measure quietly and while spans arrive; look where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--roles", action="append", help="what the collector does: all, or such as `ingest`")
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
    spans, runs = (100_000, 3) if options.short else (1_000_000, options.runs)
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
        "overview, never asked before": (f"{base}/?from=-{minutes}m" for minutes in itertools.count(1441)),
        "trace list": itertools.repeat(f"{base}/traces"),
        "trace of 1,000 spans": itertools.repeat(base + link),
    }
    try:
        report(f"quiet, roles: {roles}", visits(browser, pages, runs))
        sending = Sending(server.port, RATE)
        time.sleep(3)
        report(f"{RATE:,} spans/s, roles: {roles}", visits(browser, pages, runs))
        if options.open:
            stood_still(browser, base, options.open)
        taken, refused = sending.stop()
        print(f"{taken:,} of {RATE:,} spans a second were taken meanwhile, {refused} bodies sent again")
    finally:
        server.stop()
        files.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def one_trace(base: str, spans: int) -> str:
    """Send one trace of so many spans, wait until it can be read, and return where the list of traces links to."""
    begun = time.time() - 90
    root, search, chat = TRAFFIC.rag_trace(1000, start_ns=int(begun * 1e9))
    more = [{**chat, "spanId": f"{number + 10**6:016x}"} for number in range(spans - 3)]
    TRAFFIC.send(base, [root, search, chat, *more])
    return f"/traces/{LONG_TRACE}?{urlencode({'at': datetime.fromtimestamp(begun, UTC).isoformat()})}"


def visits(browser: Any, pages: dict[str, Iterator[str]], runs: int) -> dict[str, list[dict[str, float]]]:
    """Runs interleaved, so that a busy minute hurts every page alike; the first round only warms up."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pages}
    for number in range(runs + 1):
        for name, urls in pages.items():
            result = browser.visit("http://127.0.0.1", partial(_twice, url=next(urls)), fresh=True)
            if number:
                found[name].append(result)
    return found


def _twice(visit: Any, url: str) -> dict[str, float]:
    visit.page.add_init_script(WATCH)
    measured: list[dict[str, float]] = []
    for _ in range(2):
        visit.page.goto(url, wait_until="commit")
        measured.append(visit.page.evaluate(PAINTED))
    visit.problems.clear()  # the static file has no icon
    return {**measured[0], "again": measured[1]["painted"]}


def stood_still(browser: Any, base: str, seconds: int) -> None:
    """Keep the overview open and print how often it was renewed, and the longest time without."""

    def steps(visit: Any) -> list[float]:
        visit.open("/")
        visit.page.evaluate(RENEWED)
        visit.page.wait_for_timeout(seconds * 1000)
        times: list[float] = visit.page.evaluate("() => [...window.renewed, performance.now()]")
        return times

    times = browser.visit(base, steps, fresh=True)
    gaps = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
    print(f"overview open for {seconds} s: renewed {len(gaps) - 1} times, longest without {max(gaps):.1f} s")


def report(when: str, found: dict[str, list[dict[str, float]]]) -> None:
    """Medians in milliseconds, and each page's ratio to the emptiest one."""
    floor = median(run["painted"] for run in found["emptiest page"])
    heads = ("painted", "best", "worst", "x empty", "server", "whole", "again", "files", "charts")
    print(f"{when:<36}" + "".join(f"{head:>9}" for head in heads))
    for name, runs in found.items():
        painted = [run["painted"] for run in runs]
        middle = {key: median(run[key] for run in runs) for key in runs[0]}
        figures = (middle["painted"], min(painted), max(painted), middle["server"], middle["whole"], middle["again"])
        told = [f"{figure:>9.0f}" for figure in (*figures, middle["requests"], middle["charts"])]
        told.insert(3, f"{middle['painted'] / floor:>9.1f}")
        print(f"{name:<36}" + "".join(told))


def weigh() -> None:
    """Scripts and styles as they travel."""
    content = load_assets().content
    scripts = [path for path in content if path.endswith(".js")]
    for kind, names in (("scripts", scripts), ("styles", ["style.css"])):
        packed = sum(len(gzip.compress(content[name], 9)) for name in names)
        print(f"{kind}: {len(names)} files, {packed / 1000:.1f} kB gzipped")


def matrix(browser: Any) -> int:
    """Every page in every state; prints each complaint and returns how many there were."""
    pages = importlib.import_module("dashboards.test_browser").PAGES
    fake = importlib.import_module("dashboards.fake_api")
    complaints = 0
    for kind in ("data", "empty", "hostile"):
        with CONFTEST.serve(fake.FakeApi(empty=kind == "empty", hostile=kind == "hostile")) as base:
            for width in WIDTHS:
                for theme in ("light", "dark"):
                    for path in pages:
                        problems = look(browser, base, path, width, theme)
                        complaints += len(problems)
                        for problem in problems:
                            print(kind, width, theme, path, problem)
        print(f"{kind}: {len(pages)} pages x {len(WIDTHS)} sizes x 2 themes looked at")
    return complaints


def look(browser: Any, base: str, path: str, width: int, theme: str) -> list[str]:
    """What one page does wrong; a page that is not there (nothing stored) may say so."""

    def steps(visit: Any) -> list[str]:
        visit.open(path)
        missing = [text for text in visit.problems if "404" in text]
        found = [text for text in visit.problems if text not in missing] + visit.axe()
        found += ["wider than the window"] if visit.overflow() > 0 else []
        found += ["a script ran"] if visit.page.evaluate("window.__pwned") is not None else []
        visit.problems.clear()
        return found

    problems: list[str] = browser.visit(base, steps, width=width, theme=theme)
    return problems


if __name__ == "__main__":
    raise SystemExit(main())
