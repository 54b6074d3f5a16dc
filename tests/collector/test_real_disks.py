"""A disk that is really full or read-only: reads are answered, writes are refused with the reason, nothing is 500.

Skipped where this process may not mount a file system.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from all_routes import ASKED, TRACE, routes_of
from served import Served
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
TRACES = 8
REFUSED = (503, 507)
MADE_BEFORE = ("datasets/{id}", "replays/{id}", "replays/{id}/result", "runs/{id}")
"""Reads of what an operation before them makes, if the disk takes it."""


class Disk:
    """A file system of 64 MB of its own."""

    def __init__(self, folder: Path) -> None:
        """Make and mount it; raises OSError or CalledProcessError where this is not possible."""
        self.image, self.folder = folder / "image", folder / "disk"
        self.folder.mkdir()
        with self.image.open("wb") as image:
            image.truncate(64 * 2**20)
        _run("mkfs.ext4", "-q", "-m", "0", str(self.image))
        self.mount("loop")

    def mount(self, options: str) -> None:
        """Mount it."""
        _run("mount", "-o", options, str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Unmount it, whoever still uses it."""
        _run("umount", "--lazy", str(self.folder))

    def fill(self) -> None:
        """Write until nothing more fits."""
        with (self.folder / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                return

    def fail(self) -> None:
        """Let it turn read-only under open files, as Linux does after an error of the device."""
        _run("mount", "-o", "remount,abort", str(self.folder))

    def repair(self) -> None:
        """Mount it again, with free space."""
        self.unmount()
        self.mount("loop")
        (self.folder / "filler").unlink(missing_ok=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A mounted disk."""
    try:
        mounted = Disk(tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this process may not mount a file system")
    yield mounted
    mounted.unmount()


def _trace(number: int) -> list[dict[str, Any]]:
    return rag_trace(number, prompt_version="v7" if number % 2 else "v8", error=number == 3)


def _asked(client: httpx.Client, method: str, path: str, params: dict[str, Any]) -> httpx.Response:
    sent: dict[str, Any] = {"json": params} if method in ("POST", "PUT") else {"params": params}
    return client.request(method, f"/api/v1/{path.format(**params)}", **sent)


@pytest.mark.parametrize("fault", [Disk.fill, Disk.fail])
def test_every_page_and_operation_answers(collector: Start, disk: Disk, fault: Callable[[Disk], None]) -> None:
    """Reads as always, writes with 503 (copies: 507), and after a restart everything acknowledged is there."""
    db = disk.folder / "ragpulse.duckdb"
    running = collector(db=str(db))
    send(running.url, [span for number in range(TRACES) for span in _trace(number)])
    until(connect(running.url), "select 1 from scores where status in ('ok', 'skipped')", 4 * TRACES)
    fault(disk)
    accepted = 0
    with httpx.Client(base_url=running.url, timeout=60) as client:
        for number in range(50, 90):
            body = {"resourceSpans": [{"scopeSpans": [{"spans": rag_trace(number)}]}]}
            status = client.post("/v1/traces", json=body).status_code
            assert status in (200, *REFUSED)
            accepted += status == 200
        assert status in REFUSED
        for method, path, params in ASKED:
            answer = _asked(client, method, path, params)
            reads_old = (method == "GET" and path not in MADE_BEFORE) or path == "sql"
            wanted = (200,) if reads_old else (200, 404, *REFUSED)
            assert answer.status_code in wanted, (method, path, answer.text)
        for method, path in routes_of(running):
            if method == "GET":
                with client.stream(method, path.replace("0" * 32, TRACE)) as page:
                    assert page.status_code != 500, (path, page.read())
        assert client.get("/readyz").status_code == 503
    running.stop()
    disk.repair()
    with Served(db) as restarted:
        assert connect(restarted.url).sql("select count(*) from traces").rows() == [{"count_star()": TRACES + accepted}]


@pytest.mark.parametrize("killed", [False, True])
def test_a_start_on_a_read_only_disk_says_so(disk: Disk, killed: bool) -> None:
    """It ends with the reason, and loses nothing: the log stays."""
    db = disk.folder / "ragpulse.duckdb"
    with Served(db) as running:
        send(running.url, rag_trace(0))
        running.kill() if killed else running.terminate()
    disk.unmount()
    disk.mount("loop,ro")
    with pytest.raises(AssertionError, match="Read-only file system"):
        Served(db)
    disk.repair()
    with Served(db) as running:
        assert connect(running.url).sql("select count(*) from traces").rows() == [{"count_star()": 1}]
