"""How long a page takes from navigation to painted, against the emptiest page of the same server in the same browser.

    python benchmarks/pages.py [--runs 7] [--url http://127.0.0.1:4318] [--matrix]

Without --url the pages stand over made-up data: the figures are the pages' own share (rendering, transfer, layout,
drawing). With --url a running collector answers. --matrix opens every page at both sizes, in both themes, with data,
empty and hostile, and counts what axe-core, the policy or the console complain about.
"""

import argparse
import gzip
import importlib
import statistics
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ragpulse_dashboards.assets import load_assets

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
FAKE = importlib.import_module("dashboards.fake_api")
CONFTEST = importlib.import_module("dashboards.conftest")
PAINTED = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done({
  painted: performance.now(),
  first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
  heap: performance.memory?.usedJSHeapSize ?? 0 }))))"""


def measure(browser: Any, base: str, paths: dict[str, str], runs: int) -> dict[str, list[dict[str, float]]]:
    """Runs interleaved, so that a busy minute hurts every page alike; the first round only warms up."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in paths}
    for number in range(runs + 1):
        for name, path in paths.items():

            def steps(visit: Any, path: str = path) -> dict[str, float]:
                visit.open(path)
                measured: dict[str, float] = visit.page.evaluate(PAINTED)
                return measured

            result = browser.visit(base, steps)
            if number:
                found[name].append(result)
    return found


def report(found: dict[str, list[dict[str, float]]]) -> None:
    """Medians, and each page's ratio to the floor."""
    floor = statistics.median(run["painted"] for run in found["floor (sign-in page)"])
    print(f"{'page':<26}{'first paint ms':>16}{'painted ms':>12}{'worst ms':>10}{'x floor':>9}{'heap MB':>9}")
    for name, runs in found.items():
        painted = [run["painted"] for run in runs]
        first = statistics.median(run["first"] or 0 for run in runs)
        heap = statistics.median(run["heap"] for run in runs) / 1e6
        middle = statistics.median(painted)
        print(f"{name:<26}{first:>16.0f}{middle:>12.0f}{max(painted):>10.0f}{middle / floor:>9.1f}{heap:>9.1f}")


def weigh() -> None:
    """Scripts and styles as they travel."""
    for ending in (".js", ".css"):
        files = {path: body for path, body in load_assets().content.items() if path.endswith(ending)}
        packed = sum(len(gzip.compress(body, 9)) for body in files.values())
        print(f"{ending[1:]}: {len(files)} files, {packed / 1000:.1f} kB gzipped")


def matrix(browser: Any) -> int:
    """Every page in every state; prints each complaint and returns how many there were."""
    pages = importlib.import_module("dashboards.test_browser").PAGES
    complaints = 0
    for kind in ("data", "empty", "hostile"):
        with CONFTEST.serve(FAKE.FakeApi(empty=kind == "empty", hostile=kind == "hostile")) as base:
            for width in (1440, 390):
                for theme in ("light", "dark"):
                    for path in pages:
                        problems = look(browser, base, path, width, theme)
                        complaints += len(problems)
                        for problem in problems:
                            print(kind, width, theme, path, problem)
        print(f"{kind}: {len(pages)} pages x 2 sizes x 2 themes looked at")
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


def main() -> int:
    """Weigh, measure, and look where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--url", help="a running collector; only its overview, list and floor are measured")
    parser.add_argument("--matrix", action="store_true")
    options = parser.parse_args()
    weigh()
    browser = CONFTEST.Browser()
    try:
        api = FAKE.FakeApi(n_spans=1000)
        paths = {"floor (sign-in page)": "/login", "overview": "/", "trace list": "/traces"}
        if not options.url:
            paths["trace of 1,000 spans"] = f"/traces/{api.rows[2]['trace_id']}"
        with nullcontext(options.url) if options.url else CONFTEST.serve(api) as base:
            report(measure(browser, base, paths, options.runs))
        return 1 if options.matrix and matrix(browser) else 0
    finally:
        browser.close()


if __name__ == "__main__":
    raise SystemExit(main())
