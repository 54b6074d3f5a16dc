"""Time from an empty environment to the first scored answer of a new application, and the size of the installation.

Builds the wheel, installs `ragpulse[collector]` with uv from its warm cache, starts `ragpulse serve`, runs a decorated
script and waits for its score. The floor, in the same run: installing duckdb alone. Sizes are sums of file sizes.
Fails past 60 s or 120 MiB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
PORT = "14318"
MAX_S, MAX_MIB = 60.0, 120.0
APPLICATION = """
import ragpulse

ragpulse.configure(service_name="helpdesk")

@ragpulse.retriever
def search(query):
    return [{"id": "faq-12", "text": "Refunds take five working days."}]

@ragpulse.rag
def answer(question):
    return search(question)[0]["text"]

answer("How long does a refund take?")
"""
SCORED = "select score from scores where evaluator = 'groundedness' and status = 'ok'"


def main() -> int:
    """Install, serve, run the application, wait for the score."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(folder, UV, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        floor_s, floor_mib = install(folder, "floor", "duckdb")
        sdk_s, sdk_mib = install(folder, "sdk", str(wheel))
        begun = time.monotonic()
        install_s, mib = install(folder, "collector", f"{wheel}[collector]")
        with serving(folder):
            run(folder, folder / "collector" / "bin" / "python", "-c", APPLICATION)
            while not scored(folder):
                time.sleep(0.1)
        scored_s = time.monotonic() - begun
    print(f"floor, duckdb alone: {floor_s:.1f} s, {floor_mib:.0f} MiB")
    print(f"ragpulse, the SDK: {sdk_s:.1f} s, {sdk_mib:.0f} MiB")
    print(f"ragpulse[collector]: {install_s:.1f} s, {mib:.0f} MiB; first scored answer after {scored_s:.1f} s")
    return int(scored_s > MAX_S or mib > MAX_MIB)


def environment() -> dict[str, str]:
    """Environment variables without those of this checkout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAGPULSE"))}
    return inherited | {"RAGPULSE_PORT": PORT, "RAGPULSE_URL": f"http://127.0.0.1:{PORT}", "RAGPULSE_GRPC": "false"}


def run(folder: Path, *command: object) -> str:
    """Run a command to its end; returns what it printed."""
    parts = [str(part) for part in command]
    return subprocess.run(parts, cwd=folder, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout


def install(folder: Path, name: str, package: str) -> tuple[float, float]:
    """Install into a new environment; return the seconds and the size."""
    begun = time.monotonic()
    run(folder, UV, "venv", "--quiet", "--python", sys.executable, folder / name)
    run(folder, UV, "pip", "install", "--quiet", "--python", folder / name / "bin" / "python", package)
    seconds = time.monotonic() - begun
    (packages,) = (folder / name / "lib").glob("python*/site-packages")
    return seconds, sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 2**20


@contextmanager
def serving(folder: Path) -> Iterator[None]:
    """Run a collector of the new environment; it is healthy at entry."""
    ragpulse = folder / "collector" / "bin" / "ragpulse"
    quiet = {"cwd": folder, "env": environment(), "stdout": subprocess.DEVNULL}
    process = subprocess.Popen([ragpulse, "serve"], **quiet)  # type: ignore[call-overload]
    try:
        while subprocess.run([ragpulse, "healthy"], **quiet, stderr=subprocess.DEVNULL, check=False).returncode:  # type: ignore[call-overload]
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def scored(folder: Path) -> bool:
    """Whether the answer has a score."""
    return '"score"' in run(folder, folder / "collector" / "bin" / "ragpulse", "sql", SCORED, "--json")


if __name__ == "__main__":
    sys.exit(main())
