"""The lake for real: PostgreSQL, S3, several processes, killed and restarted; and the common contract over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from lake_servers import ROOT, SOURCES, Absent, Postgres, SeaweedFS, lake_python

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the lake's environment."""
    try:
        return lake_python()
    except Absent as error:
        pytest.skip(str(error))


class Process:
    """An ingesting process that answers a number once its body is in the lake."""

    def __init__(self, python: Path, dsn: str, s3: str) -> None:
        command = [str(python), str(HERE / "lake_process.py"), "ingest", dsn, s3]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SOURCES}
        )
        assert self._out.readline() == "ready\n"

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def ask(self, number: int) -> None:
        """Hand over a body."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """Wait until a body is stored."""
        return int(self._out.readline())

    def kill(self) -> set[int]:
        """kill -9; returns what it had acknowledged unread."""
        self._process.kill()
        return {int(line) for line in self._process.communicate()[0].splitlines() if line.isdigit()}

    def stop(self) -> None:
        """Let it drain and end."""
        self._process.communicate(timeout=100)
        assert self._process.returncode == 0


@pytest.fixture
def lake(python: Path) -> Iterator[tuple[str, str]]:
    """A PostgreSQL and an S3 server."""
    try:
        with Postgres() as catalog, SeaweedFS(python) as files:
            yield catalog.dsn, files.address
    except Absent as error:
        pytest.skip(str(error))


@pytest.mark.timeout(400)
def test_two_processes_share_a_lake_through_kills(python: Path, lake: tuple[str, str]) -> None:
    """Round-robin bodies, one process killed and restarted, every acknowledged span there once, one decides."""
    dsn, s3 = lake
    processes = [Process(python, dsn, s3), Process(python, dsn, s3)]
    acknowledged: set[int] = set()
    for number in range(0, 12, 2):
        for offset, process in enumerate(processes):
            process.ask(number + offset)
        acknowledged |= {process.answer() for process in processes}
    processes[1].ask(12)
    acknowledged |= processes[1].kill()
    processes[1] = Process(python, dsn, s3)
    resent = set(range(13)) - acknowledged
    for number in sorted(resent | {13, 0}):
        processes[1].ask(number)
        acknowledged.add(processes[1].answer())
    for process in processes:
        process.stop()
    report = _decide(python, dsn, s3)
    assert acknowledged == set(range(14))
    assert report["spans"] == [14 * 50, 14 * 50, 14, 14 * 50]
    assert report["facts"] == [14, 14 * 50, 14]
    assert (report["decided"], report["decisions"]) == ([14, 0], 14)
    assert report["taken"] == [True, False, True, True]
    assert report["files"][1] < report["files"][0]


@pytest.mark.timeout(600)
def test_the_lake_keeps_the_stores_contract(python: Path, tmp_path: Path) -> None:
    """The tests of the embedded store's contract and of the sampler pass over a lake as they are."""
    tests = [str(HERE / "test_store_contract.py"), str(HERE / "test_sampler.py")]
    chosen = "test_store_contract or late or repeated or restart or outermost or either_order"
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path), *tests]
    environment = os.environ | {"RAGPULSE_TEST_LAKE": "1", "PYTHONPATH": SOURCES}
    done = subprocess.run([*command, "-k", chosen], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]


def _decide(python: Path, dsn: str, s3: str) -> dict[str, Any]:
    command = [str(python), str(HERE / "lake_process.py"), "decide", dsn, s3]
    environment = os.environ | {"PYTHONPATH": SOURCES}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lake's servers are set up for Linux")
