"""The newest clients, as recorded: what a store and a decision make of each is what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "clients"))

from table import PAGE, Row, recorded, row

ROOT = Path(__file__).parents[2]
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


def test_the_snippet_for_the_ai_sdk_is_what_its_client_runs() -> None:
    """Line for line, in order."""
    page = (ROOT / "docs" / "instrument.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    client = iter((ROOT / "tests" / "clients" / "ask_ai.mjs").read_text(encoding="utf-8").splitlines())
    assert [line for line in snippet.splitlines() if line and line not in client] == []
