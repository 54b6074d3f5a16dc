"""The documentation site: its navigation names all pages, and only those that exist (`make site` checks links)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MOST_WORDS = 1500


def entries(nav: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(nav, str):
        yield nav
    for part in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from entries(part)


def test_the_navigation_names_every_page_once() -> None:
    """A new guide is added to `nav` in mkdocs.yml, a new decision to the list of decisions."""
    named = sorted(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    decisions = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = {f"decisions/{name}" for name in re.findall(r"\((\d{4}-[\w-]+\.md)\)", decisions)}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert named == sorted(pages - listed)
    assert {page for page in pages if page.startswith("decisions/0")} == listed


def test_a_guide_is_read_in_ten_minutes() -> None:
    """A guide answers one question; tables of settings stand in the reference, measured ones in benchmarks.md."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    guides = entries([part for part in nav if not {"Reference", "Concepts"} & set(part)])
    words = {page: len((DOCS / page).read_text(encoding="utf-8").split()) for page in guides}
    assert len(words) > 25
    assert {page: count for page, count in words.items() if count > MOST_WORDS} == {}


def test_every_setting_is_described() -> None:
    """No key of the reference of ragpulse.toml stands there without its meaning."""
    rows = re.findall(r"^\| `\w+` \|.*$", (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) > 70
    assert [row for row in rows if row.endswith("|  |")] == []
