"""The example notebook runs, and what the client returns shows itself."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import Collector
from ragpulse_collector.client import Client, Query, connect

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quality.ipynb"


def shown(value: Any) -> str:
    """What a notebook displays for the last expression of a cell."""
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else repr(value)


def outputs(notebook: Path) -> list[str]:
    """Run all code cells in one namespace, as Jupyter does; return what each displays."""
    names: dict[str, Any] = {}
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            *body, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(body, []), str(notebook), "exec"), names)
            found.append(shown(eval(compile(ast.Expression(last.value), str(notebook), "eval"), names)))
    return found


def test_the_notebook_finds_the_regression(demo_data: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell shows what its text announces."""
    monkeypatch.setenv("RAGPULSE_URL", demo_data.url)
    client, traces, quality, versions, verdict, trace, latency = outputs(NOTEBOOK)
    assert client == f"Client('{demo_data.url}')"
    assert traces.count("<tr>") == 21
    assert "the first 20 rows" in traces
    assert "prompt qa v2 began" in quality
    assert "v1" in versions
    assert "'worse'" in verdict
    assert "groundedness" in trace
    assert "latency_ms" in latency


def test_recorded_text_is_escaped_and_nothing_is_shown_for_no_answer(collector: Callable[..., Collector]) -> None:
    """A script in a question stays text; a metric without a point is an empty table and an empty frame."""
    running = collector()
    client = connect(running.url)
    nothing = client.metrics("quality:groundedness", from_="-1h")
    assert "<td>" not in shown(nothing)
    assert not nothing.to_pandas().get("value", pandas.Series()).notna().any()
    send(running.url, rag_trace(1, query="<script>alert(1)</script>"))
    until(client, "select 1 from traces")
    query = client.sql("select query, trace_id from traces where n_spans = ? -- all;", [3])
    assert repr(query) == "Query('select query, trace_id from traces where n_spans = ? -- all;')"
    row = query.to_pandas().iloc[0]
    for html in (shown(query), shown(client.trace(row["trace_id"]))):
        assert "&lt;script&gt;" in html
        assert "<script>" not in html


@pytest.fixture(params=["pandas", "polars"])
def frames(request: pytest.FixtureRequest) -> Callable[[Query], dict[str, list[Any]]]:
    """Each library, as columns of plain values."""
    pytest.importorskip(request.param)
    return lambda query: (
        query.df().to_dict("list") if request.param == "pandas" else query.pl().to_dict(as_series=False)
    )


def test_a_client_needs_nothing_of_the_collector() -> None:
    """It is a package of its own in a notebook: none of what the collector or the evaluators need."""
    without = "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'duckdb', 'starlette', 'httpx')))"
    use = "from ragpulse_collector.client import connect; connect('http://127.0.0.1:1').trace"
    subprocess.run([sys.executable, "-c", f"{without}; {use}"], check=True, timeout=60)


def test_frames_need_no_pyarrow(
    collector: Callable[..., Collector],
    monkeypatch: pytest.MonkeyPatch,
    frames: Callable[[Query], dict[str, list[Any]]],
) -> None:
    """Neither here nor in the collector; times and numbers are none as texts, whatever a question looks like."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    running = collector()
    client = connect(running.url)
    send(running.url, rag_trace(1, query="2026-11-20T12:00:00Z"))
    until(client, "select 1 from traces")
    row = frames(client.traces())
    assert row["query"] == ["2026-11-20T12:00:00Z"]
    assert isinstance(row["start_time"][0], datetime)
    assert row["start_time"][0].tzinfo is None
    assert row["error"] == [False]
    query = client.sql(
        "select unnest([date '2026-11-20', NULL]) d, ?::decimal(5, 2) e, now() n, [now()::timestamp] l", [1.5]
    )
    told = frames(query)
    assert (str(told["d"][0])[:10], told["e"]) == ("2026-11-20", [1.5, 1.5])
    assert isinstance(told["n"][0], datetime)
    assert frames(client.traces("false")).keys() == row.keys()
