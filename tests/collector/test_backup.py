"""The page about backups, run as it stands: a snapshot while spans arrive, restored in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from served import Served
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.client import connect
from ragpulse_collector.store.schema import SCHEMA_VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text(encoding="utf-8")
BACK_UP, RESTORE = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
BEGUN_NS = time.time_ns() - 3600 * 10**9
COUNTS = "select (select count(*) from spans) as spans, (select count(*) from contexts) as contexts"


def environment(folder: Path, **given: str) -> dict[str, str]:
    """`ragpulse` is this checkout."""
    program = folder / "bin" / "ragpulse"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ragpulse_collector "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAGPULSE_")}
    return kept | given | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def trace(number: int) -> list[dict[str, Any]]:
    """A trace that is the same whenever it is sent."""
    return rag_trace(number, start_ns=BEGUN_NS + number * 10**9)


@contextmanager
def traffic(url: str) -> Iterator[list[int]]:
    """Send trace after trace meanwhile; yields the numbers of those that were answered 200."""
    sent: list[int] = []
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            send(url, trace(len(sent)))
            sent.append(len(sent))

    sending = threading.Thread(target=run)
    sending.start()
    try:
        eventually(lambda: len(sent), lambda count: count > 5)
        yield sent
    finally:
        stop.set()
        sending.join()


def test_the_page_about_backups_holds(tmp_path: Path) -> None:
    """All that was acknowledged before the snapshot is restored, and nothing else: every table has the same count."""
    with Served(tmp_path / "ragpulse.duckdb") as running:
        with traffic(running.url) as sent:
            before = len(sent)
            given = environment(tmp_path, RAGPULSE_URL=running.url)
            done = subprocess.run(
                ["bash", "-eu", "-c", BACK_UP], cwd=tmp_path, env=given, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        eventually(lambda: len(sent), lambda count: count > before)
    given = environment(
        tmp_path, RAGPULSE_PORT="0", RAGPULSE_GRPC="false", RAGPULSE_ROLES="ingest", PYTHONUNBUFFERED="1"
    )
    command = ["bash", "-eu", "-c", RESTORE]
    restored = subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, text=True)
    try:
        assert restored.stdout is not None
        client = connect(next(line for line in restored.stdout if "ragpulse collector at " in line).split()[3])
        (found,) = client.sql(COUNTS).rows()
        assert before <= found["spans"] / 3 <= len(sent)
        assert found["spans"] * 2 == found["contexts"] * 3
        assert f"{found['spans']}" in done.stdout
        send(client.url, [span for number in range(len(sent)) for span in trace(number)])
        assert client.sql(COUNTS).rows()[0]["spans"] == 3 * len(sent)
    finally:
        restored.terminate()
        restored.communicate(timeout=60)


def test_the_page_names_every_schema_version() -> None:
    """A migration comes with a note on what an upgrade adds and a downgrade takes away."""
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.M)] == list(range(1, SCHEMA_VERSION + 1))
