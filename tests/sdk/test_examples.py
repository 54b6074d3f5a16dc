"""The examples, run as a reader would run them, against a real collector socket."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import eventually

from .conftest import Collector

EXAMPLES = Path(__file__).parents[2] / "examples"


def _environment(collector: Collector) -> dict[str, str]:
    return {**os.environ, "RAGPULSE_ENDPOINT": collector.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def _run(name: str, collector: Collector) -> str:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=_environment(collector), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _serving(collector: Collector, *command: str) -> Iterator[str]:
    """A server started on a free port; stopped by SIGTERM, as a supervisor does it."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))  # kept while the server starts: nobody else is given the port
        port = place.getsockname()[1]
        parts = [part.replace("PORT", str(port)) for part in command]
        process = subprocess.Popen([sys.executable, *parts], cwd=EXAMPLES, env=_environment(collector))
        try:
            eventually(lambda: _listens(port) or process.poll())
            assert process.poll() is None
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
            process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _get(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return str(answer.read().decode())


def _needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def test_plain(collector: Collector) -> None:
    """Three decorators, one trace, everything exported."""
    assert "exported=3" in _run("plain.py", collector)
    assert collector.one("answer").attributes["session.id"] == "demo"
    assert "refund" in json.loads(collector.one("search").attributes["gen_ai.retrieval.documents"])[0]["content"]


def test_starlette_stream(collector: Collector) -> None:
    """The root lasts until the stream is read, keeps the text and the session, and the server's stop flushes."""
    with _serving(
        collector, "-m", "uvicorn", "starlette_stream:app", "--port", "PORT", "--log-level", "warning"
    ) as url:
        assert _get(f"{url}/ask?q=capital", **{"x-session": "s7"}) == "Paris is the capital of France. "
    root, tokens = collector.one("answer"), collector.one("tokens")
    assert (root.attributes["session.id"], tokens.parent) == ("s7", root.id)
    assert root.attributes["output.value"] == "Paris is the capital of France. "
    assert collector.one("search").parent == root.id


GUNICORN = ("-m", "gunicorn", "gunicorn_app:app", "--workers", "2", "--bind", "127.0.0.1:PORT", "--log-level", "error")
SERVERS = {
    "uvicorn": ("multiworker.py", "PORT", "2"),
    "gunicorn": GUNICORN,
    "gunicorn, preloaded": (*GUNICORN, "--preload"),
}


def _arrived(collector: Collector) -> list[int]:
    return sorted(int(span.attributes["input.value"]) for span in list(collector.spans))


@pytest.mark.parametrize("server", SERVERS)
def test_workers_deliver_what_they_answered(collector: Collector, server: str) -> None:
    """Each answered request's span arrives once, also those of the last moment, and those of a worker born late."""
    if server.startswith("gunicorn"):
        _needs("gunicorn")
    with _serving(collector, *SERVERS[server]) as url:

        def ask(numbers: range) -> set[int]:
            return {int(json.loads(_get(f"{url}/ask?q={number}"))["pid"]) for number in numbers}

        first = ask(range(20))
        eventually(lambda: _arrived(collector), lambda numbers: numbers == list(range(20)))
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: _gone(killed))
        later = ask(range(20, 40))
    assert killed not in later
    assert _arrived(collector) == list(range(40))
    assert len({span.resource["service.instance.id"] for span in collector.spans}) == len({killed, *first, *later})


def _gone(pid: int) -> bool:
    """Whether the process has ended and its parent has noticed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_litellm(collector: Collector) -> None:
    """Usage, model and price from LiteLLM's own objects, whole and streamed."""
    _needs("litellm")
    assert _run("litellm_app.py", collector).split("\n")[:2] == ["Paris.", "Paris it is."]
    whole, streamed = collector.one("complete"), collector.one("complete_stream")
    assert whole.attributes["gen_ai.usage.input_tokens"] > 0
    assert whole.attributes["gen_ai.response.model"] == "gpt-4o-mini"
    assert whole.attributes["output.value"] == "Paris."
    assert streamed.attributes["output.value"] == "Paris it is."
    assert streamed.attributes["gen_ai.response.time_to_first_chunk"] > 0


@pytest.mark.parametrize(
    ("script", "module"), [("langchain_app.py", "langchain_core"), ("llamaindex_app.py", "llama_index")]
)
def test_frameworks(collector: Collector, script: str, module: str) -> None:
    """The framework's own document objects become contexts with text and score."""
    _needs(module)
    _run(script, collector)
    retriever = next(span for span in collector.spans if span.attributes["ragpulse.span.kind"] == "retriever")
    (document,) = json.loads(retriever.attributes["gen_ai.retrieval.documents"])
    assert (document["content"], document["score"]) == ("Paris is the capital of France.", 0.9)


def test_fastapi_stream(collector: Collector) -> None:
    """As the Starlette example."""
    _needs("fastapi")
    with _serving(collector, "-m", "uvicorn", "fastapi_stream:app", "--port", "PORT", "--log-level", "warning") as url:
        assert _get(f"{url}/ask?q=capital&session=s8") == "Paris is the capital of France. "
    assert collector.one("answer").attributes["session.id"] == "s8"
