"""Separate Python environments for tests and benchmarks, installed once in a cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in ("collector", "evaluators", "sdk", "dashboards", "tests"))
"""The PYTHONPATH of a process in such an environment: this checkout, not the installed package."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ragpulse"


def environment(name: str, extra: str | None, *packages: str, constraints: Path | None = None) -> Path:
    """Return the interpreter of an environment with these packages, and with ragpulse if there is an extra of it.

    It is installed again when the extras, the packages or the constraints change. Raises OSError or SubprocessError if
    the installation fails.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"] if extra else {}
    requirements = repr((extras, constraints.read_text() if constraints else "", packages)).encode()
    folder = CACHE / f"{name}-{hashlib.sha256(requirements).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test files need the same environment
        if not (folder / "complete").exists():
            arguments = ["-c", str(constraints)] if constraints else []
            arguments += [f"{ROOT}[{extra}]"] if extra else []
            _install(folder, [*arguments, *packages])
    return python


def _install(folder: Path, arguments: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    _run([*pip, "-q", *arguments])
    (folder / "complete").touch()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
