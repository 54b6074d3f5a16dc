"""macOS and Windows: what Python lacks there is taken away, then every module imports and the collector answers.

Nothing here runs on those systems; a difference that Linux cannot show stays unseen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WITHOUT = """
import os, signal, sys, importlib, json, multiprocessing.util, pkgutil, subprocess, tempfile, urllib.request
import grpc, mcp.server.stdio  # they ask which system this is
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "fork register_at_fork pread pwrite killpg nice getpgid geteuid fchmod O_CLOEXEC",
    signal: "SIGHUP SIGALRM SIGUSR1 alarm setitimer pthread_sigmask",
}.items():
    for name in names.split():
        delattr(module, name)
import ragpulse, ragpulse_collector, ragpulse_dashboards, ragpulse_evaluators
"""
IMPORTS = """
found = []
for package in (ragpulse, ragpulse_collector, ragpulse_dashboards, ragpulse_evaluators):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            found.append(importlib.import_module(module.name).__name__)
print(len(found))
"""
ANSWERS = """
from pathlib import Path
from ragpulse_collector.app import Collector
from ragpulse_collector.client import connect
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.store.sql.process import POSSIBLE
from traffic import rag_trace, send
from waiting import until

collector = Collector(load_settings(Path(sys.argv[1])))
collector.start()
try:
    send(collector.url, rag_trace(0))
    (own,) = until(connect(collector.url), "select status, score from scores where evaluator = 'polite'")
    print(json.dumps(own | {"reader": POSSIBLE}))
finally:
    collector.stop()
"""

OWN = """
from ragpulse_evaluators import evaluator

@evaluator
def polite(response: str) -> bool:
    return "stupid" not in response
"""
SETTINGS = """
[collector]
db = "{folder}/ragpulse.duckdb"
port = 0
grpc = false
settle_s = 0.0

[evaluators]
files = ["{folder}/own.py"]

[[rule]]
name = "own"
evaluators = ["polite"]
rate = 1.0
"""


def printed(code: str, *arguments: str) -> str:
    """What a program prints in a Python that lacks what Windows and macOS lack."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports() -> None:
    """No module asks for a part of Python that other systems lack."""
    assert int(printed(IMPORTS)) > 200


def test_a_trace_is_stored_queried_and_scored(tmp_path: Path) -> None:
    """SQL runs in the collector, and an evaluator of one's own still runs in its process."""
    (tmp_path / "own.py").write_text(OWN)
    settings = tmp_path / "ragpulse.toml"
    settings.write_text(SETTINGS.format(folder=tmp_path.as_posix()))
    assert json.loads(printed(ANSWERS, str(settings))) == {
        "status": "ok", "score": 1.0, "reader": False,
    }  # fmt: skip
