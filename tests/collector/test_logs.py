"""The log on stderr: no flood of one message, whatever its cause."""

from __future__ import annotations

import http.client
import logging
import os
import resource
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from served import Served
from waiting import eventually

from ragpulse_collector.app.process import MAX_ALIKE, WINDOW_S, RateLimit

NO_DESCRIPTOR = "socket.accept() out of system resource"


def record(message: str, line: int = 1) -> logging.LogRecord:
    """A message from a line of some module."""
    return logging.LogRecord("some.logger", logging.ERROR, "module.py", line, message, (7,), None)


def test_messages_alike_are_counted_instead_of_written() -> None:
    """A window has five of a kind; the next window begins with the number that was left out."""
    now = [0.0]
    limit = RateLimit(clock=lambda: now[0])
    assert [limit.filter(record("failed %d")) for _ in range(MAX_ALIKE + 100)].count(True) == MAX_ALIKE
    assert limit.filter(record("another %d", line=2))
    now[0] = WINDOW_S
    later = record("failed %d")
    assert limit.filter(later)
    assert later.getMessage() == "failed 7 (100 more like this were dropped)"
    plain = record("failed %d")
    assert limit.filter(plain)
    assert plain.getMessage() == "failed 7"


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
def test_running_out_of_descriptors_does_not_flood_the_log(tmp_path: Path) -> None:
    """More connections than descriptors: a few lines, and the collector answers once there is room again."""
    with Served(tmp_path / "ragpulse.duckdb", "--no-grpc") as process:
        pid, address = process.process.pid, urlsplit(process.url)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        held = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 2, before[1]))
        with ExitStack() as connections:
            for _ in range(20):
                connections.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
            eventually(lambda: NO_DESCRIPTOR in process.errors)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            with closing(http.client.HTTPConnection(address.netloc, timeout=60)) as connection:
                connection.request("GET", "/healthz")
                assert connection.getresponse().status == 200
        process.terminate()
        assert 1 <= process.errors.count(NO_DESCRIPTOR) < 50
