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
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from ragpulse_dashboards import SecurityHeaders, routes

from .fake_api import FakeApi

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    """One event loop implementation."""
    return "asyncio"


@contextmanager
def serve(api: FakeApi) -> Iterator[str]:
    """The pages on a loopback port; yields the base URL."""
    app = Starlette(routes=routes(api), middleware=[Middleware(SecurityHeaders)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
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

    def open(self, path: str) -> None:
        """Go there and wait until the scripts ran and fragments settled."""
        self.page.goto(self.base + path, wait_until="load")
        self.page.wait_for_function("document.documentElement.classList.contains('js')")


class Browser:
    """Runs a function of a Visit on the browser's own thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._thread.submit(self._start).result()

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))

    def visit(
        self, base: str, steps: Callable[[Visit], Any], *, theme: str = "light", width: int = 1440, js: bool = True
    ) -> Any:
        """A fresh context at one size and theme; returns what `steps` returns; problems fail the test."""
        return self._thread.submit(self._visit, base, steps, theme, width, js).result()

    def _visit(self, base: str, steps: Callable[[Visit], Any], theme: str, width: int, js: bool) -> Any:
        size = {"width": width, "height": 900 if width > 800 else 844}
        context = self._browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=js)
        try:
            page = context.new_page()
            page.set_default_timeout(8000)
            visit = Visit(page=page, base=base)
            page.on("console", lambda message: visit.problems.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: visit.problems.append(str(error)))
            page.on("request", lambda request: None if _own(request.url, base) else visit.problems.append(request.url))
            page.on("dialog", lambda dialog: (visit.problems.append("dialog"), dialog.dismiss()))
            result = steps(visit)
            assert visit.problems == []
            return result
        finally:
            context.close()

    def close(self) -> None:
        """End the browser this session started."""
        self._thread.submit(lambda: (self._browser.close(), self._playwright.stop())).result()
        self._thread.shutdown()


def _own(url: str, base: str) -> bool:
    return url.startswith((base, "data:", "blob:"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's chromium; tests that need it skip where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    if not Path(CHROMIUM).exists() and shutil.which("chromium") is None:
        pytest.skip("no chromium on this system")
    started = Browser()
    yield started
    started.close()


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
