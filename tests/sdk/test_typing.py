"""The public surface keeps its types."""

import subprocess
import sys
from pathlib import Path

import ragpulse

SURFACE = Path(__file__).parents[1] / "typing" / "sdk_surface.py"


def test_the_surface_is_typed_as_users_rely_on() -> None:
    """mypy agrees with every `assert_type`, and refuses every wrong call."""
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--no-incremental", str(SURFACE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=SURFACE.parents[2], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_listed_is_what_can_be_imported() -> None:
    """`__all__` is sorted, complete and true."""
    public = {name for name in vars(ragpulse) if not name.startswith("_")} - {"testing"}
    assert public == set(ragpulse.__all__)
    assert list(ragpulse.__all__) == sorted(ragpulse.__all__)
