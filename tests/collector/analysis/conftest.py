"""What the tests of the analyses share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_units import open_store

from ragpulse_collector.store.embedded import EmbeddedStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()
