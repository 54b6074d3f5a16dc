"""An SDK and a collector of different versions understand each other: 0.1 with this one, in both directions."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from served import Served
from waiting import until

from ragpulse_collector.client import connect

WHEEL = Path(__file__).parent / "collector" / "fixtures" / "ragpulse-0.1.0-py3-none-any.whl"
QUESTION = "How tall is the Eiffel Tower?"
ANSWER = "The Eiffel Tower is 330 metres tall."
APPLICATION = f"""
import sys
import ragpulse

@ragpulse.retriever
def search(query, k=2):
    found = {{"id": "towers.md", "text": {ANSWER!r}, "score": 0.9}}
    return [found, {{"id": "rivers.md", "text": "The Seine is long."}}]

@ragpulse.llm(model="gpt-5-mini", provider="openai", response=lambda result: result["text"])
def generate(question, docs):
    return {{"text": {ANSWER!r}, "usage": {{"prompt_tokens": 100, "completion_tokens": 20}}}}

@ragpulse.rag(prompt_name="qa", prompt_version="v7")
def answer(question):
    return generate(question, search(question))["text"]

ragpulse.configure(service_name="helpdesk", endpoint=sys.argv[1])
answer({QUESTION!r})
assert ragpulse.flush(timeout=60)
print(ragpulse.__file__)
print(ragpulse.stats().exported, ragpulse.stats().dropped, ragpulse.stats().rejected)
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 0.1, unpacked from its wheel: put first in PYTHONPATH it hides the version under test."""
    folder = tmp_path_factory.mktemp("ragpulse-0.1")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


@contextmanager
def relay(url: str) -> Iterator[tuple[str, list[str]]]:
    """Forward each POST to a collector; yields the address and the Content-Encoding of what came so far."""
    encodings: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            encodings.append(self.headers.get("Content-Encoding", "none"))
            body = self.rfile.read(int(self.headers["Content-Length"]))
            names = [name for name in self.headers if name.lower().startswith("content-") and name != "Content-Length"]
            headers = {name: self.headers[name] for name in names}
            with urllib.request.urlopen(urllib.request.Request(url + self.path, body, headers)) as answer:
                text = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", encodings
        finally:
            server.shutdown()
            thread.join()


def environment(path: Path | None, **more: str) -> dict[str, str]:
    """Return the environment of a process that imports ragpulse from a folder, or the version under test."""
    return os.environ | more | ({} if path is None else {"PYTHONPATH": str(path)})


def ask(endpoint: str, *, sdk: Path | None, compression: str) -> str:
    """Run the decorated application as its own process; returns where its ragpulse was imported from."""
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, endpoint],
        env=environment(sdk, OTEL_EXPORTER_OTLP_COMPRESSION=compression),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported, counts = done.stdout.splitlines()
    assert counts == "3 0 0"
    return imported


def imported_collector(path: Path) -> Path:
    """Return which ragpulse_collector a process with this environment runs."""
    command = [sys.executable, "-c", "import ragpulse_collector; print(ragpulse_collector.__file__)"]
    return Path(subprocess.check_output(command, env=environment(path), text=True).strip())


def check_shown(url: str) -> None:
    """What was asked is stored in canonical columns, and shown by the API and the page of its trace."""
    client = connect(url)
    spans = {span["kind"]: span for span in until(client, "select * from spans", 3)}
    assert sorted(spans) == ["llm", "rag", "retriever"]
    rag, llm = spans["rag"], spans["llm"]
    assert (rag["service"], rag["query"], rag["response"]) == ("helpdesk", QUESTION, ANSWER)
    assert (rag["prompt_name"], rag["prompt_version"]) == ("qa", "v7")
    assert (llm["model"], llm["provider"], llm["input_tokens"], llm["output_tokens"]) == (
        "gpt-5-mini", "openai", 100, 20,
    )  # fmt: skip
    contexts = client.sql("select rank, id, score, text from contexts order by rank").rows()
    assert [(row["rank"], row["id"], row["score"]) for row in contexts] == [
        (1, "towers.md", 0.9),
        (2, "rivers.md", None),
    ]
    assert contexts[0]["text"] == ANSWER
    until(client, "select * from scores where evaluator = 'groundedness' and status = 'ok'")
    trace_id = rag["trace_id"]
    assert [row["trace_id"] for row in client.call("GET traces")["traces"]] == [trace_id]
    assert len(client.call(f"GET traces/{trace_id}")["spans"]) == 3
    with urllib.request.urlopen(f"{url}/traces/{trace_id}") as page:
        assert ANSWER in page.read().decode()


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_sdk_0_1_sends_to_this_collector(first: Path, tmp_path: Path, compression: str) -> None:
    """A decorated call of 0.1 is delivered, stored and shown."""
    with Served(tmp_path / "store.duckdb") as served, relay(served.url) as (endpoint, encodings):
        assert Path(ask(endpoint, sdk=first, compression=compression)).is_relative_to(first)
        assert set(encodings) == {compression}
        check_shown(served.url)


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_this_sdk_sends_to_a_collector_0_1(
    first: Path, tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decorated call of this version is delivered to a collector of 0.1, stored and shown there."""
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(first))
        served = Served(tmp_path / "store.duckdb")
    with served, relay(served.url) as (endpoint, encodings):
        assert imported_collector(first).is_relative_to(first)
        assert not Path(ask(endpoint, sdk=None, compression=compression)).is_relative_to(first)
        assert set(encodings) == {compression}
        check_shown(served.url)
