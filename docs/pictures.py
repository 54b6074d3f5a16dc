"""Take the pictures of the README and the guides: `python docs/pictures.py`, over a fresh demo, 1440x900.

It needs chromium, playwright and Pillow. Look at each picture before it is committed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from _served import Server  # noqa: E402
from tasks import CONFTEST, fill  # noqa: E402

IMAGES = Path(__file__).parent / "images"
WORST = "/api/v1/traces?evaluator=groundedness&sort=worst&failing=true&limit=1"
COLOURS = 256
TOUR = (
    ("/", "1. What changed, when, and which answers are worst now"),
    ("/explain", "2. Why: what the bad answers have in common"),
    ("/traces/{trace}", "3. One answer: the sentence that no document supports"),
    ("/topics", "4. What users ask, and what no document answers"),
)
"""The frames of the moving picture: a page, and what it shows."""
FRAME, SECONDS, BAR = (960, 600), 3, 40


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
            until(f"{base}/api/v1/topics?from=-7d", '"unassigned":0,')
            tour(browser, base, trace)
            take(browser, base, f"/traces/{own(base, Path(folder))}", "own", "light", height=560)
        finally:
            browser.close()
            server.stop()


def tour(browser: Any, base: str, trace: str) -> None:
    """Make the moving picture: each page of the tour below its caption, as one GIF of at most 2 MB."""
    frames = []
    for path, caption in TOUR:
        take(browser, base, path.format(trace=trace), "frame", "light")
        page = Image.open(IMAGES / "frame.png").convert("RGB").resize(FRAME, Image.Resampling.LANCZOS)
        frame = Image.new("RGB", (FRAME[0], FRAME[1] + BAR), "#1f2937")
        frame.paste(page, (0, BAR))
        ImageDraw.Draw(frame).text((16, 9), caption, fill="white", font=ImageFont.load_default(20))
        frames.append(frame.quantize(COLOURS, dither=Image.Dither.NONE))
    (IMAGES / "frame.png").unlink()
    target = IMAGES / "demo.gif"
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=SECONDS * 1000, loop=0, optimize=True)


def own(base: str, folder: Path) -> str:
    """Run the README's own function against the collector; return its trace once it is scored."""
    program = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[0]
    environ = os.environ | {"RAGPULSE_URL": base}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=folder, env=environ)
    found = until(f"{base}/api/v1/traces?service=helpdesk&evaluator=groundedness&limit=1", '"trace_id":"')
    return found.partition('"trace_id":"')[2][:32]


def until(address: str, part: str) -> str:
    """Ask an address until its answer has a part; return the answer."""
    deadline = time.monotonic() + 120
    while part not in (answer := urlopen(address).read().decode()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{address} had no {part} within two minutes")
        time.sleep(0.5)
    return answer


def take(browser: Any, base: str, path: str, name: str, theme: Literal["light", "dark"], height: int = 900) -> None:
    """Take one page when it is complete; the overview waits for its worst answers."""

    def steps(visit: Any) -> None:
        visit.open(path)
        visit.page.locator("main:not(:has([data-renew]))").wait_for()
        if path == "/":
            visit.page.locator(".offending").first.wait_for()
        visit.page.wait_for_load_state("networkidle")
        visit.page.screenshot(path=IMAGES / f"{name}.png", clip={"x": 0, "y": 0, "width": 1440, "height": height})

    browser.visit(base, steps, theme=theme, fresh=True)
    file = IMAGES / f"{name}.png"
    Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main()
