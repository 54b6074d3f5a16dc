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
from waiting import eventually, until

import ragpulse
from ragpulse import Local
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
    monkeypatch.setattr(ragpulse, "local", lambda: Local.__new__(Local))
    monkeypatch.setattr(Local, "url", demo_data.url, raising=False)
    monkeypatch.setenv("RAGPULSE_URL", demo_data.url)
    here, done, traces, quality, versions, verdict, trace, latency = outputs(NOTEBOOK)
    assert f'href="{demo_data.url}"' in here
    assert int(done) > 500
    assert quality.count("<svg") == 1
    assert traces.count("<tr>") == 21
    assert "the first 20 rows" in traces
    assert "prompt qa v2 began" in quality
    assert "v1" in versions
    assert "'worse'" in verdict
    assert "groundedness" in trace
    assert "latency_ms" in latency


def test_a_collector_beside_the_process_ends_with_it(tmp_path: Path) -> None:
    """A call is recorded, the last trace is found, a second call is the first one; a killed process leaves nothing."""
    program = (
        "import os, signal, ragpulse; here = ragpulse.local(db='a.duckdb')\n"
        "assert ragpulse.local(db='a.duckdb') is here and ragpulse.last_trace() is None\n"
        "ragpulse.rag(lambda q: q)('mine?'); ragpulse.feedback('1' * 32); ragpulse.flush()\n"
        "print(here.url, ragpulse.last_trace(), here._process.pid, flush=True)\n"
        "try: ragpulse.local(db='nowhere/a.duckdb')\n"
        "except RuntimeError as error: print(error, flush=True)\n"
        "input(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url, trace, pid = process.stdout.readline().split()
        assert "no collector was started: ragpulse: cannot open" in process.stdout.readline()
        until(connect(url), f"select 1 from traces where trace_id = '{trace}'")
        assert "<table>" in connect(url).evaluators()._repr_html_()
        process.stdin.write("\n")
    eventually(lambda: not Path(f"/proc/{pid}").exists())


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
