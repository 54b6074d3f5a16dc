"""A real browser with a page of another site or another port: it gets nothing out of a collector without keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from starlette.types import Message, Receive, Scope, Send

from ragpulse_collector.api.guard import Guard

from .conftest import Browser, Visit

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

ATTACKS = """async collector => {
    const plain = {method: "POST", mode: "no-cors", body: "{}", headers: {"Content-Type": "text/plain"}};
    const read = {mode: "no-cors"};
    const fetches = [
        ...["/api/v1/status", "/metrics", "/readyz", "/api/v1/traces"].map(path => fetch(collector + path, read)),
        ...["/v1/traces", "/demo"].map(path => fetch(collector + path, plain)),
    ];
    const elements = [["img", "/api/v1/export"], ["script", "/api/v1/snapshot"], ["iframe", "/traces"]];
    const loads = elements.map(([name, path]) => new Promise(loaded => {
        const made = document.createElement(name);
        made.onload = made.onerror = loaded;
        made.src = collector + path;
        document.body.append(made);
    }));
    const form = document.createElement("form");
    const sent = new Promise(loaded => {
        const frame = document.createElement("iframe");
        frame.name = form.target = "result";
        document.body.append(frame, form);
        frame.onload = loaded;
    });
    form.method = "POST";
    form.action = collector + "/demo/remove";
    form.submit();
    await Promise.allSettled([...fetches, ...loads, sent]);
}"""
ASKED = {
    "GET /api/v1/status", "GET /metrics", "GET /readyz", "GET /api/v1/traces", "POST /v1/traces", "POST /demo",
    "GET /api/v1/export", "GET /api/v1/snapshot", "GET /traces", "POST /demo/remove",
}  # fmt: skip


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><link rel=icon href=data:,><title>other</title><body>other"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def other_port() -> Iterator[int]:
    """Serve an empty page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The status of each request that has reached the collector: the browser keeps some from its own tools."""
    seen: dict[str, int] = {}
    guard = Guard.__call__

    async def noted(self: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen[f"{scope['method']} {scope['path']}"] = message["status"]
            await send(message)

        await guard(self, scope, receive, note)

    monkeypatch.setattr(Guard, "__call__", noted)
    return seen


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["cross-site", "same-site"])
def test_another_page_gets_nothing_but_a_link(
    browser: Browser, collector: Callable[..., Collector], answered: dict[str, int], other_port: int, host: str
) -> None:
    """Fetches, images, scripts, frames and forms are all 403; the link that a person follows opens the page."""
    url = collector().url

    def steps(visit: Visit) -> dict[str, int]:
        visit.page.goto(visit.base)
        visit.page.evaluate(ATTACKS, url)
        attacked = dict(answered)
        visit.page.evaluate("url => { document.body.innerHTML = `<a href='${url}/traces'>look</a>` }", url)
        with visit.page.expect_navigation(url=f"{url}/traces"):
            visit.page.click("a")
        assert visit.page.title().startswith("Traces")
        visit.problems.clear()  # the browser reports each refusal
        return attacked

    attacked = browser.visit(f"http://{host}:{other_port}/", steps, fresh=True)
    assert attacked == dict.fromkeys(ASKED, 403)
    assert answered["GET /traces"] == 200
