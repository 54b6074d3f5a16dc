"""Connections of a judge end with the event loop that made them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ragpulse_evaluators import HTTPJudge

REPLY = json.dumps(
    {"choices": [{"message": {"content": "YES"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
)


class _Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server that keeps its connections open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def open_connections(url: str) -> int:
    """How many connections of this process lead to the server."""
    port = f":{int(url.rsplit(':', 1)[1].split('/')[0]):04X}"
    own = {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    }
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(port) and f"socket:[{row[9]}]" in own for row in rows)


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads /proc")
def test_idle_connections_are_closed_with_their_loop(url: str) -> None:
    """One judge in several loops, as in several calls of `evaluate_sync`: within a loop the connection is kept."""
    judge = HTTPJudge(url, "tiny")
    question = [{"role": "user", "content": "hello"}]
    loops = []
    for _ in range(3):
        with asyncio.Runner() as runner:
            runner.run(judge.ask(question))
            runner.run(judge.ask(question))
            assert open_connections(url) == 1
            loops.append(runner.get_loop())
        assert open_connections(url) == 0
    assert all(loop.is_closed() for loop in loops)
