"""A browser and a served copy of the pages, one each for the whole session.

The browser lives in its own thread: playwright's loop must not meet the loop of the async tests.
"""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from waiting import eventually

from ragpulse_collector.api.headers import SecurityHeaders
from ragpulse_dashboards import routes

from .fake_api import FakeApi

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parent / "vendor" / "axe-4.14.1.min.js"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,AimEnabled,LensOverlay,"
    "MediaRouter,OptimizationHints,Translate,HttpsUpgrades,PaintHolding,DestroyProfileOnBrowserClose",
)  # fmt: skip
"""The last one: without it each new window loads 400 scripts of the browser's own address bar. Playwright names the
others, and the last list given is the one that counts."""


@contextmanager
def serve(api: FakeApi) -> Iterator[str]:
    """The pages on a loopback port; yields the base URL."""
    app = Starlette(routes=routes(api), middleware=[Middleware(SecurityHeaders)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Without it each answer's second write waits 40 ms for the browser's acknowledgement of the first.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Visit:
    """One open page and everything it did that it should not have."""

    page: Any
    base: str
    problems: list[str] = field(default_factory=list)
    """Console errors, CSP violations, script errors, requests to other hosts."""

    def watch(self) -> None:
        """Listen for everything that a page must never do."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"request to {request.url}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Go there and wait until the scripts ran."""
        self.page.goto(self.base + path, wait_until="load")
        self.ready()

    def ready(self) -> None:
        """Wait until the scripts ran."""
        self.page.locator("html.js").wait_for(state="attached")

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until an expression is true; `wait_for_function` polls by `eval`, which the pages' policy forbids."""
        eventually(lambda: self.page.evaluate(expression, argument))

    def box(self, selector: str) -> Any:
        """Where an element is, scrolled into view."""
        found = self.page.locator(selector)
        found.scroll_into_view_if_needed()
        return found.bounding_box()

    def axe(self, *rules: str) -> list[str]:
        """Violations that axe-core finds (of some rules only), as `rule: element`."""
        if not self.page.evaluate("Boolean(window.axe)"):
            self.page.evaluate(AXE.read_text())
        only = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
        found = self.page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
        return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"] for node in one["nodes"]]

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


Theme = Literal["light", "dark"]


class Browser:
    """Runs a function of a Visit on the browser's own thread."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[Theme, int, bool], Any] = {}
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._thread.submit(self._start).result()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=120_000)

    def visit(
        self,
        base: str,
        steps: Callable[[Visit], Any],
        *,
        theme: Theme = "light",
        width: int = 1440,
        js: bool = True,
        fresh: bool = False,
    ) -> Any:
        """A new page at one size and theme; returns what `steps` returns; problems fail the test.

        Pages of one size and theme share a context, which is cheaper than one each; cookies do not outlive a visit.
        `fresh` gives the page a context of its own, with an empty cache.
        """
        return self._thread.submit(self._visit, base, steps, (theme, width, js), fresh).result()

    def _visit(self, base: str, steps: Callable[[Visit], Any], kind: tuple[Theme, int, bool], fresh: bool) -> Any:
        if fresh or kind not in self._contexts:
            context = self._context(*kind)
            if not fresh:
                self._contexts[kind] = context
        else:
            context = self._contexts[kind]
        page = context.new_page()
        try:
            page.set_default_timeout(120_000)
            visit = Visit(page=page, base=base)
            visit.watch()
            result = steps(visit)
            assert visit.problems == []
            return result
        finally:
            page.close()
            context.clear_cookies()
            if fresh:
                context.close()

    def _context(self, theme: Theme, width: int, js: bool) -> Any:
        size: Any = {"width": width, "height": 900 if width > 800 else 844}
        return self._browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=js)

    def close(self) -> None:
        """End the browser this session started."""
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def _stop(self) -> None:
        self._browser.close()
        self._playwright.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's chromium; tests that need it skip where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this system")
    started = Browser()
    yield started
    started.close()


@pytest.fixture(autouse=True)
def _nothing_is_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine too a browser gets its pages whole; a test of pages that come in parts says so itself."""
    if "browser" in request.fixturenames:
        monkeypatch.setattr("ragpulse_dashboards.pages.overview.SLOW_S", inf)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Pages over a day of made-up data."""
    with serve(FakeApi()) as base:
        yield base


@pytest.fixture(scope="session")
def empty_site() -> Iterator[str]:
    """Pages over an empty store."""
    with serve(FakeApi(empty=True)) as base:
        yield base


@pytest.fixture(scope="session")
def hostile_site() -> Iterator[str]:
    """Pages over data whose every text is an attack."""
    with serve(FakeApi(hostile=True)) as base:
        yield base
