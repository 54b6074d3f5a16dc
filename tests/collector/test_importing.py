"""`ragpulse import`: counts reconcile, an import that was killed is run again and leaves nothing twice.

Phoenix and MLflow are tested where their environments exist (`import-phoenix`, `import-mlflow` in the cache, each
with the package); the servers are real and hold what their own clients wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lake_servers import free_port
from waiting import WITHIN_S, eventually, until

from ragpulse_collector.app import Collector
from ragpulse_collector.cli import run
from ragpulse_collector.client import Client, connect
from ragpulse_collector.importing import PROTOBUF

Start = Callable[..., Collector]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ragpulse"
FILL = Path(__file__).parents[1] / "clients"
SERVERS = {
    "phoenix": ("serve",),
    "mlflow": ("server", "--backend-store-uri", "sqlite:///m.db", "--port", "PORT", "--workers", "1"),
}
COUNTS = """select (select count(*) from traces) as traces, (select count(*) from spans) as spans,
    (select count(distinct session_id) from traces) as sessions,
    (select count(*) from scores where source in ('human', 'code')) as scores"""


def counts(client: Client) -> dict[str, int]:
    """What the collector holds."""
    (row,) = client.sql(COUNTS).rows()
    return row


def line(number: int, **more: object) -> str:
    """One answered question."""
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(days=number)
    given = {"query": f"Question {number}?", "response": "Five days.", "contexts": ["Refunds take five days."]}
    score = {"name": "thumbs", "score": 1, "comment": "good"}
    return json.dumps(given | {"start_time": at.isoformat(), "session_id": f"s{number}", "scores": [score]} | more)


def test_json_lines(collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad line is named and what stands before it stays; the corrected file adds the rest; once more adds nothing."""
    running = collector()
    client, file = connect(running.url), tmp_path / "answers.jsonl"
    good = [line(number) for number in range(4)]
    file.write_text("\n".join([*good[:2], line(2, service="other"), '{"query": "When?"}']))
    assert run(["import", "jsonl", str(file), "--url", running.url]) == 1
    assert f"{file}:4: start_time: Field required" in capsys.readouterr().err
    until(client, "select 1 from scores where evaluator = 'thumbs'", 2)
    file.write_text("\n".join([*good, line(400)]))
    for known in (2, 4):
        assert run(["import", "jsonl", str(file), "--url", running.url]) == 0
        said = f"imported 4 traces, 4 spans, 4 sessions, 4 scores; 0 spans rejected, {known} were there already\n"
        assert said in capsys.readouterr().out
    until(client, "select 1 from scores where evaluator = 'thumbs'", 4)
    assert counts(client) == {"traces": 4, "spans": 4, "sessions": 4, "scores": 4}
    (first, *_) = client.sql("select query, text from traces join contexts using (trace_id) order by query").rows()
    assert first == {"query": "Question 0?", "text": "Refunds take five days."}


def test_an_export_of_langfuse(collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files with the documented fields become a trace with its model call and both scores; again adds nothing."""
    running, at = collector(), datetime.now(UTC).replace(tzinfo=None)
    client, times = connect(running.url), {"start_time": f"{at:%F %T.%f}", "end_time": f"{at:%F %T.%f}"}
    whole = {"trace_id": "a" * 32, "session_id": "s1", **times}
    rows = [
        {"id": "b" * 16, "type": "SPAN", "name": "answer", "input": "When?", "output": "Soon.", **whole},
        {
            "id": "c1",
            "parent_observation_id": "b" * 16,
            "type": "GENERATION",
            "provided_model_name": "gpt-5-mini",
            **whole,
        },
    ]
    of_trace = {"trace_id": "a" * 32, "name": "thumbs", "value": 1, "data_type": "NUMERIC", "source": "ANNOTATION"}
    of_call = {**of_trace, "observation_id": "c1", "data_type": "CATEGORICAL", "string_value": "fine", "source": "EVAL"}
    for table, lines in (("observations_v2", rows), ("scores", [of_trace, of_call])):
        (tmp_path / table).mkdir()
        (tmp_path / table / "1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for known in ("", ", 2 were there already"):
        assert run(["import", "langfuse", str(tmp_path), "--url", running.url]) == 0
        assert f"1 traces, 2 spans, 1 sessions, 2 scores; 0 spans rejected{known}\n" in capsys.readouterr().out
    until(client, "select 1 from scores where source in ('human', 'code')", 2)
    assert counts(client) == {"traces": 1, "spans": 2, "sessions": 1, "scores": 2}
    (trace,) = client.sql("select query, response, model from traces").rows()
    assert trace == {"query": "When?", "response": "Soon.", "model": "gpt-5-mini"}
    found = client.sql("select source, score, label from scores where source in ('human', 'code') order by 1").rows()
    assert [tuple(one.values()) for one in found] == [("code", None, "fine"), ("human", 1.0, None)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jsonl"], "name the file"),
        (["langfuse", "."], "choose enriched observations"),
        (["jsonl", "absent.jsonl"], "absent.jsonl"),
        (["mlflow", "http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_read_is_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names it."""
    assert run(["import", *arguments]) == 1
    assert words in capsys.readouterr().err


@contextmanager
def serving(name: str, folder: Path) -> Iterator[str]:
    """The real server of another tool on a free port, filled by its own client."""
    binary = CACHE / f"import-{name}" / "bin"
    if not (binary / name).exists():
        pytest.skip(f"{binary} has no {name}: make the environment with `uv venv` and install the package")
    port = str(free_port())
    environment = {
        "PATH": f"{binary}:/usr/bin:/bin", "HOME": str(folder), "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": port, "PHOENIX_GRPC_PORT": "0",
        "PHOENIX_TELEMETRY_ENABLED": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    command = [str(binary / name), *(port if word == "PORT" else word for word in SERVERS[name])]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: answers(url) or process.poll() is not None)
        script = FILL / f"fill_{name}.py"
        subprocess.run([binary / "python", script, url], check=True, cwd=folder, env=environment)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def kill_half_way(arguments: list[str], client: Client) -> None:
    """Run the command as a process; `kill -9` it once its second page waits for the answer of the collector."""
    first, waits, killed = threading.Event(), threading.Event(), threading.Event()

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if first.is_set():
                waits.set()
                killed.wait(60)
                self.close_connection = True
                return
            first.set()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = client.request("POST", self.path, body=body, content_type=PROTOBUF, accept=PROTOBUF)
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as relay:
        threading.Thread(target=relay.serve_forever).start()
        command = [sys.executable, "-m", "ragpulse_collector", *arguments, "--url"]
        process = subprocess.Popen([*command, f"http://127.0.0.1:{relay.server_port}"], stderr=subprocess.DEVNULL)
        assert waits.wait(WITHIN_S)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        killed.set()
        relay.shutdown()


def answers(url: str) -> bool:
    """Whether a server answers."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("phoenix", {"traces": 130, "spans": 260, "sessions": 7, "scores": 50}),
        ("mlflow", {"traces": 60, "spans": 120, "sessions": 5, "scores": 24}),
    ],
)
def test_a_real_server(
    name: str, expected: dict[str, int], collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own client's traces, sessions, scores and feedback arrive; once, although `kill -9` ended the first run."""
    running = collector()
    client = connect(running.url)
    with serving(name, tmp_path) as url:
        kill_half_way(["import", name, url], client)
        assert 0 < counts(client)["spans"] < expected["spans"]
        for _ in range(2):
            assert run(["import", name, url, "--url", running.url]) == 0
            said = "{traces} traces, {spans} spans, {sessions} sessions, {scores} scores; 0 spans rejected"
            assert said.format(**expected) in capsys.readouterr().out
    until(client, "select 1 from scores where source in ('human', 'code')", expected["scores"])
    assert counts(client) == expected
    (one,) = client.sql("select distinct service, response from traces").rows()
    assert one == {"service": "helpdesk", "response": "Five working days."}
    (one,) = client.sql(
        "select count(*) as n, count(distinct trace_id) as traces, any_value(text) as t from contexts"
    ).rows()
    assert one == {"n": expected["traces"], "traces": expected["traces"], "t": "Refunds take five working days."}
    (human,) = client.sql("select distinct source, score from scores where evaluator = 'thumbs'").rows()
    assert human == {"source": "human", "score": 1.0}
