"""What the tests of monitors share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from stored_units import open_store

from ragpulse_collector.store.embedded import EmbeddedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def alerts() -> Iterator[ModuleType]:
    """The benchmark as a module."""
    folder = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module("alerts")
    sys.path.remove(folder)
