"""Each walk of docs/change-one-thing.md fits the code, and does what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import walks
from served import Served
from spans import spans_of
from traffic import rag_trace, send

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.client import connect
from ragpulse_collector.conventions.dialects import DIALECTS
from ragpulse_collector.conventions.mapper import Mapper
from ragpulse_collector.conventions.rules import RuleBook
from ragpulse_collector.otlp.wire import WireRows, WireScope
from ragpulse_dashboards.pages import traces as pages
from ragpulse_evaluators import Case, UnknownEvaluator, evaluate_sync, get_evaluator
from ragpulse_evaluators.registry import Registry


def test_a_metric_of_the_evaluators() -> None:
    """The function is an evaluator with the parameter of its signature; without the change there is none."""
    ((path, source),) = walks.changes("Add a metric to the evaluators").items()
    registry = Registry(walks.run(path, source).ENTRIES)
    cases = [Case(response="Which of the two?"), Case(response="Five days.")]
    results = evaluate_sync(cases, "asks_back", registry=registry)["asks_back"]
    assert [result.passing for result in results] == [True, False]
    assert registry.accepts("asks_back") == ["marks"]
    with pytest.raises(UnknownEvaluator):
        get_evaluator("asks_back")


def test_an_attribute_of_a_dialect() -> None:
    """The attribute fills the column, and nothing does before."""
    ((path, source),) = walks.changes("Read a new attribute of a dialect").items()
    before, after = walks.original(path), walks.run(path, source)
    changed = tuple(after.RULES if rules is before.RULES else rules for rules in DIALECTS)
    rows = WireRows(WireScope({}))
    rows.add(b"t" * 16, b"s" * 8, None, "ask", 1, 2, {"traceloop.association.properties.chat_id": "c-7"})
    sessions = [
        [span.session_id for span in spans_of(Mapper(RuleBook(book)).spans(rows.batch()).spans)]
        for book in (DIALECTS, changed)
    ]
    assert sessions == [[None], ["c-7"]]


def test_an_operation_a_column_a_parameter_and_a_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walks applied to a copy of the product, which serves them; the product itself has none of them."""
    pytest.importorskip("mcp")
    product = tmp_path / "product"
    four = (
        "Add an operation",
        "Add a column to the trace list",
        "Add a parameter to an operation",
        "Add a field to a page",
    )
    monkeypatch.setenv("PYTHONPATH", walks.copied(product, walks.changes(*four)))
    (product / "docs").mkdir()
    generator = shutil.copy(walks.ROOT / "docs" / "generate.py", product / "docs")
    subprocess.run([sys.executable, generator], check=True, timeout=300)
    with Served(tmp_path / "new.duckdb") as changed:
        assert _looked_up(changed.url) == (["Agent", "helper"], [1], True)
        asked = subprocess.run(
            [sys.executable, "-c", SURFACES, changed.url], check=True, timeout=300, capture_output=True, text=True
        )
    *printed, told = asked.stdout.splitlines()
    assert json.loads(told) == [[{"value": "helpdesk", "n": 2}]] * 3
    assert any(re.match(r"helpdesk +2", line) for line in printed)
    assert "agent" not in pages.COLUMNS
    assert "min_latency_ms" not in TraceList.model_fields
    assert "Tokens read" not in (walks.ROOT / "dashboards/ragpulse_dashboards/templates/session.html").read_text()


SURFACES = """
import anyio, json, sys
from mcp import Client
from ragpulse_collector.cli import run
from ragpulse_collector.client import connect
from ragpulse_collector.mcp_server import BEGIN, END, server

async def by_tool():
    async with Client(server(client)) as assistant:
        return (await assistant.call_tool("values", {"least": 2})).content[0].text

client = connect(sys.argv[1])
answers = client.call("GET values", {"least": 2}), client.values(least=2), json.loads(
    anyio.run(by_tool).removeprefix(BEGIN).removesuffix(END))
assert run(["values", "--least", "2", "--url", client.url]) == 0
print(json.dumps([one["service"] for one in answers]))
"""
"""Asks the operation of the walk over HTTP, by the client, over MCP and on the command line."""


def _looked_up(url: str) -> tuple[list[str], list[int], bool]:
    """Send a fast and a slow trace; return what of the column, the parameter and the field is there."""
    spans = [span for number, ms in enumerate((200.0, 900.0)) for span in rag_trace(number, latency_ms=ms, session="s")]
    for span in spans[::3]:
        span["attributes"].append({"key": "gen_ai.agent.name", "value": {"stringValue": "helper"}})
    send(url, spans)
    client = connect(url)
    page, session = (client.request("GET", path).decode() for path in ("/traces?columns=agent", "/sessions/s"))
    column = [text for text in ("Agent", "helper") if f">{text}</t" in page]
    slow = client.call("GET traces", {"min_latency_ms": 900})["traces"]
    return column, [int(row["trace_id"], 16) - 1 for row in slow], "<dt>Tokens read</dt><dd>200</dd>" in session


def test_a_diff_that_fits_nowhere_or_twice_is_stale() -> None:
    """The page cannot show code that is not there any more."""
    assert walks.applied("a\nb\n", " a\n+c\n b\n") == "a\nc\nb\n"
    for diff in (" x\n+c\n", " a\n+c\n"):
        with pytest.raises(AssertionError, match="does not stand once"):
            walks.applied("a\na\n", diff)


def test_every_file_that_the_page_names_exists() -> None:
    """Paths in backquotes, beside those of the diffs."""
    text = walks.PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.\w+)`", text))
    parts = {path.relative_to(walks.ROOT).as_posix() for path in walks.files()}
    assert {name for name in named if not any(path.endswith(f"/{name}") or path == name for path in parts)} == set()
