"""The modules that a collector has not imported when it listens, and when it idles."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from served import Served

from ragpulse_collector.app.process import cores, release_startup_code
from ragpulse_collector.app.server import StartingApp
from ragpulse_collector.app.wiring import Job, Ticker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from starlette.types import ASGIApp

PROGRAM = """
import json, sys
from ragpulse_collector.cli.serve import serve
from ragpulse_collector.app.collector import Collector
from ragpulse_collector.settings import Settings

collector = Collector(Settings().with_options("collector", {"db": sys.argv[1], "port": 0}))
listening = sorted(sys.modules)
collector.start()
idle = sorted(sys.modules)
collector.stop()
print(json.dumps({"listening": listening, "idle": idle}))
"""
NEVER = ("jinja2", "litellm", "numpy", "pandas", "polars", "pyarrow", "genai_prices", "rich", "httpx")
LATER = (
    "ragpulse",
    "grpc",
    "google.protobuf",
    "opentelemetry",
    "urllib.request",
    *(f"ragpulse_collector.{name}" for name in ("client", "conventions.bodies", "demo", "metrics", "worker")),
)
FAMILIES = tuple(f"ragpulse_evaluators.{name}" for name in ("judged", "text", "ranking", "structure", "grounding"))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules of a fresh process once it can listen, and once everything is there."""
    db = tmp_path_factory.mktemp("start") / "ragpulse.duckdb"
    command = [sys.executable, "-c", PROGRAM, str(db)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=db.parent)
    return {name: set(found) for name, found in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("name", [*NEVER, *LATER, *FAMILIES])
def test_listening_needs_no(modules: dict[str, set[str]], name: str) -> None:
    """Requests are let in before anything is imported that only answers need."""
    assert name not in modules["listening"]


@pytest.mark.parametrize("name", [*NEVER, *FAMILIES])
def test_idling_needs_no(modules: dict[str, set[str]], name: str) -> None:
    """Pages, price tables and judges are imported when they are first used."""
    assert name not in modules["idle"]


def test_a_part_that_cannot_be_made_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    """The door was open already: the process ends all the same, with one line and code 1."""
    config = tmp_path / "ragpulse.toml"
    config.write_text('[[rule]]\nname = "r"\nevaluators = ["groundednes"]\nrate = 1.0\n')
    command = [sys.executable, "-m", "ragpulse_collector", "serve", "--port", "0", "--no-grpc", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "did you mean 'groundedness'" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_request_before_its_time_waits() -> None:
    """While the parts are being made /healthz answers, and every other request as soon as they are there."""
    import asyncio
    from concurrent.futures import Future

    rest: Future[ASGIApp] = Future()
    front, answered = StartingApp(rest), []

    async def app(scope: object, receive: object, send: object) -> None:
        answered.append(scope)

    async def nothing(*_: Any) -> Any:
        return

    waiting = asyncio.create_task(front({"type": "http", "method": "POST", "path": "/v1/traces"}, nothing, nothing))
    await asyncio.sleep(0)
    assert not waiting.done()
    rest.set_result(app)
    await waiting
    assert answered
    assert front.changes == 1


def test_grpc_can_be_switched_off(tmp_path: Path) -> None:
    """`--no-grpc` opens one port only, whatever is installed."""
    with Served(tmp_path / "ragpulse.duckdb", "--no-grpc") as process:
        assert "gRPC" not in process.output
        assert len(listening(process.process.pid)) == 1


def listening(pid: int) -> list[str]:
    """The local addresses a process listens on, as the kernel tells them."""
    opened = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            opened.append(link.readlink().name)
    sockets = {name.partition("[")[2].rstrip("]") for name in opened if name.startswith("socket:")}
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in sockets]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux has this account of memory")
def test_the_code_of_startup_is_released(tmp_path: Path) -> None:
    """Less of DuckDB's code is resident afterwards, and what is needed again comes back."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        before = resident_code_kb("duckdb")
        release_startup_code()
        assert resident_code_kb("duckdb") < before / 2
        assert connection.execute("SELECT sum(i) FROM range(10) t(i)").fetchall() == [(45,)]


def resident_code_kb(library: str) -> int:
    """Return how much code of a library is in memory."""
    kb, wanted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            wanted = " r-xp " in line and library in line
        elif wanted and line.startswith("Rss:"):
            kb += int(line.split()[1])
    return kb


def test_a_job_may_run_before_its_interval() -> None:
    """`first_s` is when a job runs first, however long its interval."""
    ran = Event()
    ticker = Ticker([Job("once", 3600.0, ran.set, first_s=0.0)])
    ticker.start()
    assert ran.wait(60)
    ticker.stop()


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "50000"}, 1.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": ""}, None),
    ],
)
def test_the_cores_of_a_container_are_those_of_its_quota(
    files: Mapping[str, str], most: float | None, tmp_path: Path
) -> None:
    """On one core the checks run in the collector, whatever the host has."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cores(tmp_path) == (cores(tmp_path / "nothing") if most is None else most)
