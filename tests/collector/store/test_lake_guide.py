"""The guide's commands make a lake: from an empty PostgreSQL and S3 server to a collector that stores spans."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lake_servers import ROOT, SOURCES, Absent, Postgres, SeaweedFS, free_port, lake_python

_FENCE = re.compile(r"^(?P<skip><!-- not run: [^>]+ -->\n)?```sh\n(?P<text>.*?)^```", re.M | re.S)
_KEPT = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lake's servers are set up for Linux")


class Servers:
    """An empty PostgreSQL that wants passwords and an empty S3 server, as an administrator reaches them."""

    def __init__(self, python: Path, catalog: Postgres, files: SeaweedFS) -> None:
        self.python, self.catalog, self.files = python, catalog, files

    def environ(self, programs: Path) -> dict[str, str]:
        """Return what the guide takes as given; `programs` come first."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        given = {"PATH": f"{programs}:{self.python.parent}:{kept['PATH']}", "PYTHONPATH": SOURCES}
        return kept | self.catalog.environ | given | {
            "AWS_ENDPOINT_URL": f"http://{self.files.address}", "SEAWEED_MASTER": self.files.master
        }  # fmt: skip


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Servers of this test alone: the guide switches anonymous access off."""
    try:
        python = lake_python()
        with Postgres() as catalog, SeaweedFS(python) as files:
            catalog.ask_for_passwords("lake_writer")
            yield Servers(python, catalog, files)
    except Absent as error:
        pytest.skip(str(error))


class Guide:
    """The guide's commands as one script, whose last one serves."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "log"
        # `ragpulse` is this checkout in the lake's environment, on a free port.
        ragpulse = folder / "bin" / "ragpulse"
        ragpulse.parent.mkdir()
        ragpulse.write_text(f'#!/bin/sh\nexec {servers.python} -m ragpulse_collector "$@" --port {self.port}\n')
        ragpulse.chmod(0o755)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                ["bash", "-eu", "-c", commands()], cwd=folder, stdout=log, stderr=log, start_new_session=True,
                env=servers.environ(ragpulse.parent),
            )  # fmt: skip

    @property
    def log(self) -> str:
        """What the commands have printed."""
        return self._log.read_text()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send one request to the collector; returns status 0 while nothing listens."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            try:
                sent = None if body is None else json.dumps(body).encode()
                connection.request(method, path, sent, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()
            except OSError:
                return 0, b""

    def wait_until_ready(self) -> None:
        """Return once the collector says that it can store."""
        until = time.monotonic() + 120
        while (answer := self.ask("GET", "/readyz"))[0] != 200:
            assert self.process.poll() is None, self.log[-3000:]
            assert time.monotonic() < until, (answer, self.log[-3000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """End the script and the collector."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def commands() -> str:
    """Return the commands of the guide's section, as a reader would paste them."""
    page = (ROOT / "docs" / "scale.md").read_text()
    section = page.split("## Set it up\n")[1].split("\n## ")[0]
    return "\n".join(match["text"] for match in _FENCE.finditer(section) if not match["skip"])


def test_the_guides_commands_lead_to_a_running_collector(servers: Servers, tmp_path: Path) -> None:
    """It stores spans; its role is no administrator and its key opens one bucket."""
    guide = Guide(servers, tmp_path)
    try:
        guide.wait_until_ready()
        span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "n", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
        spans = [span | {"spanId": f"{number:016x}"} for number in range(1, 65)]
        assert guide.ask("POST", "/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})[0] == 200
        status, body = guide.ask("POST", "/api/v1/sql", {"query": "SELECT count(DISTINCT span_id) FROM spans"})
        assert (status, json.loads(body)["rows"]) == (200, [[64]])
    finally:
        guide.kill()
    rights = "SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication FROM pg_roles"
    assert servers.catalog.ask("postgres", f"{rights} WHERE rolname = 'lake_writer'") == [["f"]]
    assert not servers.catalog.lets_in("lake_writer")
    assert servers.files.refuses_strangers("traces")
