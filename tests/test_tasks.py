"""The twelve tasks of a person in the pages take no more clicks than they may, over the demo in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "tasks.py"


def test_every_task_is_done_within_its_clicks() -> None:
    """Worst answers in one click, an alert in three without a file, twenty labels with twenty keys."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    if shutil.which("chromium") is None:
        pytest.skip("no chromium on this system")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("\n") == 13, done.stdout
