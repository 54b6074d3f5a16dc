"""The tests of the embedded store, over a lake; a file of its own, so that it runs beside the other tests of lakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lake_servers import ROOT, SOURCES, Absent, lake_python

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lake's servers are set up for Linux")


def test_the_lake_keeps_the_stores_contract(tmp_path: Path) -> None:
    """The tests of the embedded store's contract, of its upkeep and of the sampler pass over a lake as they are."""
    try:
        python = lake_python()
    except Absent as error:
        pytest.skip(str(error))
    tests = [
        str(HERE / f"test_{name}.py") for name in ("store_contract", "sampler", "upkeep", "sql_corpus", "topic_tables")
    ]
    chosen = (
        "test_store_contract or test_sql_corpus or late or repeated or restart or outermost or either_order"
        " or older_than or search or remap or export_holds or topic or (finds_its and agent)"
    )
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t"), *tests]
    environment = os.environ | {"RAGPULSE_TEST_LAKE": "1", "PYTHONPATH": SOURCES}
    done = subprocess.run([*command, "-k", chosen], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
