"""The public surface keeps its types."""

import subprocess
import sys
from pathlib import Path

import pytest

import ragpulse

ROOT = Path(__file__).parents[2]


def test_the_surfaces_are_typed_as_users_rely_on() -> None:
    """mypy agrees with every `assert_type` of every file in `tests/typing`, and refuses every wrong call."""
    surfaces = sorted(map(str, (ROOT / "tests" / "typing").glob("*.py")))
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", *surfaces]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"in {len(surfaces)} source files" in done.stdout


def test_a_misspelt_option_is_refused() -> None:
    """Where it is written, as Python does it."""
    with pytest.raises(TypeError, match="quer"):
        ragpulse.rag(quer="question")  # type: ignore[call-overload]


def test_what_is_listed_is_what_can_be_imported() -> None:
    """`__all__` is sorted, complete and true."""
    public = {name for name in vars(ragpulse) if not name.startswith("_")} - {"testing"}
    assert public == set(ragpulse.__all__)
    assert list(ragpulse.__all__) == sorted(ragpulse.__all__)
