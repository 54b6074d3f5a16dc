"""docs/architecture.md names modules that exist, and every part of the collector."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLLECTOR = ROOT / "collector" / "ragpulse_collector"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_named_module_exists() -> None:
    """A renamed module is renamed here too."""
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", PAGE)
    assert len(named) > 50
    assert [name for name in named if not (COLLECTOR / name).exists()] == []


def test_every_package_is_named() -> None:
    """No part of the collector is left out, but the command line and the demo, which the picture shows."""
    parts = {path.name for path in COLLECTOR.iterdir() if (path / "__init__.py").exists()} - {"cli", "demo"}
    assert {part for part in parts if f"{part}/" not in PAGE} == set()
