"""Lists, views and decisions hold of 5,000 generated traces, and of the fixtures, what they held before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_units import GOLDEN, SOURCES, outputs


@pytest.mark.parametrize("name", SOURCES)
def test_units_are_as_recorded(name: str, tmp_path: Path) -> None:
    """Each column of each view and table, undecided and decided; the lists; the cases of units."""
    recorded = json.loads(GOLDEN.read_text())[name]
    found = outputs(tmp_path, name)
    assert [column for column, digest in recorded.items() if found.get(column) != digest] == []
