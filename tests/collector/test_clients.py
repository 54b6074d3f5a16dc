"""The newest clients, as recorded: what a store and a decision make of each is what the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "clients"))

from table import PAGE, Row, recorded, row

RECORDED = recorded()


@pytest.mark.parametrize("name", RECORDED)
def test_a_client_has_what_the_page_says(name: str, tmp_path: Path) -> None:
    """Query, response, contexts, tokens and errors of its unit; the question and the answer are never anything else."""
    found = row(tmp_path / "store.duckdb", RECORDED[name])
    assert found.line() in PAGE.read_text(encoding="utf-8")
    assert "-" not in (found.query, found.response)
    assert "other" not in found.query
    assert found.error != "no"


def test_the_page_has_no_other_clients() -> None:
    """A client that is no longer recorded leaves the table."""
    table = PAGE.read_text(encoding="utf-8").split("| client | query")[1].split("\n\n")[0]
    assert len(table.splitlines()) - 2 == len(RECORDED)
    assert len(Row._fields) == table.splitlines()[1].count("---")
