"""Writes pages of the demo as files: `python docs/demo_pages.py build/site/demo`; `make site` calls it.

A real collector over the demo's data answers. Each page is stored with relative links, and the pages that it links to,
up to `MOST`. Every other link leads to `live.html`, which says how to run the demo. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import html
import json
import re
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from _served import Server  # noqa: E402
from tasks import fill  # noqa: E402

FIRST = (
    "/?whole=true", "/traces", "/topics", "/explain", "/documents", "/evaluators", "/alerts", "/health", "/sessions",
    "/compare", "/traces?evaluator=groundedness&sort=worst",
)  # fmt: skip
MOST, PATIENCE_S = 90, 120
SCRIPTS = ROOT / "dashboards" / "ragpulse_dashboards" / "static" / "js"
_LINK = re.compile(r'\b(href|src|action|data-later)="(/[^"]*)"')
_ASSET = re.compile(r"/static/\w+/(.+)")
_FOLLOWED = re.compile(r"/(traces/[0-9a-f]{32}$|sessions/|explain|compare|documents|topics)")
_LIVE = re.compile(r' data-(?:renew|live)="[^"]*"')
LIVE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>ragpulse</title>
<link rel="stylesheet" href="static/style.css"><main><h1>This page is not part of the copy</h1>
<p>These are stored pages of the demo. <code>make demo</code> runs it on your computer, with everything.</p>
<p><a href="index.html">Back to the overview</a></p></main></html>
"""


def main() -> None:
    """Start the demo, store its pages and what they load."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "demo.duckdb")
        base = f"http://127.0.0.1:{server.port}"
        try:
            fill(base)
            wait_for_topics(base)
            print(f"{store(base, target)} pages of the demo in {target}")
        finally:
            server.stop()


def wait_for_topics(base: str) -> None:
    """Wait until the first fit gave each question its topic; a service without the extra has none."""
    until = time.monotonic() + PATIENCE_S
    while json.loads(ask(f"{base}/api/v1/topics?from=-7d"))["unassigned"] and time.monotonic() < until:
        time.sleep(1)


def store(base: str, target: Path) -> int:
    """Store pages from the first ones on, breadth first; return their number."""
    pages: dict[str, str] = {}
    waiting, fragments = deque(FIRST), set[str]()
    while waiting and len(pages) < MOST:
        path = waiting.popleft()
        if path not in pages:
            try:
                pages[path] = ask(base + path, partial=path in fragments).decode()
            except (HTTPError, UnicodeDecodeError):  # an export, or a page that needs more than a link
                continue
            links = [(name, html.unescape(link)) for name, link in _LINK.findall(pages[path])]
            fragments |= {link for name, link in links if name == "data-later" and link not in pages}
            waiting.extendleft(link for name, link in links if name == "data-later")
            waiting += (link for _, link in links if _FOLLOWED.match(link))
    files = {path: f"page-{number}.html" for number, path in enumerate(pages)} | {FIRST[0]: "index.html"}
    files |= {"/": "index.html"}
    assets: set[str] = {f"js/{script.name}" for script in SCRIPTS.glob("*.js")}
    digest = ""

    def local(match: re.Match[str]) -> str:
        nonlocal digest
        address = html.unescape(match[2])
        if asset := _ASSET.match(address):
            digest = address.removesuffix(asset[1])
            assets.add(asset[1])
            return f'{match[1]}="static/{asset[1]}"'
        return f'{match[1]}="{files.get(address, "live.html")}"'

    target.mkdir(parents=True, exist_ok=True)
    for path, text in pages.items():
        (target / files[path]).write_text(_LINK.sub(local, _LIVE.sub("", text)), encoding="utf-8")
    (target / "live.html").write_text(LIVE, encoding="utf-8")
    for asset in assets:
        file = target / "static" / asset
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(ask(f"{base}{digest}{asset}"))
    return len(pages)


def ask(address: str, *, partial: bool = False) -> bytes:
    """Return what an address answers; `partial`: as a part of a page."""
    with urlopen(Request(address, headers={"HX-Request-Type": "partial"} if partial else {})) as answer:
        return bytes(answer.read())


if __name__ == "__main__":
    main()
