"""Take the pictures of the guides: `python docs/pictures.py`, over a fresh demo, 1440x900, light and dark.

It needs chromium, playwright and Pillow. Look at each picture before it is committed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from _served import Server  # noqa: E402
from tasks import CONFTEST, fill  # noqa: E402

IMAGES = Path(__file__).parent / "images"
WORST = "/api/v1/traces?evaluator=groundedness&sort=worst&failing=true&limit=1"
COLOURS = 256


def main() -> None:
    """Take one picture of each page, and the overview also in the dark theme."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "pictures.duckdb")
        base = f"http://127.0.0.1:{server.port}"
        browser = CONFTEST.Browser()
        try:
            fill(base)
            trace = urlopen(base + WORST).read().decode().partition('"trace_id":"')[2][:32]
            pages = {"overview": "/", "traces": "/traces", "trace": f"/traces/{trace}", "explain": "/explain"}
            for name, path in pages.items():
                take(browser, base, path, name, "light")
                if name == "overview":
                    take(browser, base, path, f"{name}-dark", "dark")
        finally:
            browser.close()
            server.stop()


def take(browser: Any, base: str, path: str, name: str, theme: Literal["light", "dark"]) -> None:
    """Take one page when it is complete; the overview waits for its worst answers."""

    def steps(visit: Any) -> None:
        visit.open(path)
        visit.page.locator("main:not(:has([data-renew]))").wait_for()
        if path == "/":
            visit.page.locator(".offending").first.wait_for()
        visit.page.wait_for_load_state("networkidle")
        visit.page.screenshot(path=IMAGES / f"{name}.png")

    browser.visit(base, steps, theme=theme, fresh=True)
    file = IMAGES / f"{name}.png"
    Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main()
