"""The examples, run as a reader would run them, against a real collector socket."""

import importlib.util
import itertools
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from loopback import LoopbackModel
from waiting import eventually

import ragpulse
from ragpulse._instrument import LIBRARIES, run

from .conftest import Collector

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    """A model that knows one answer, behind OpenAI's interface."""
    started = LoopbackModel(lambda prompt: "Paris.")
    yield started
    started.close()


def _environment(collector: Collector) -> dict[str, str]:
    return {**os.environ, "RAGPULSE_ENDPOINT": collector.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def _run(name: str, collector: Collector) -> str:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=_environment(collector), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _serving(collector: Collector, *command: str, **more: str) -> Iterator[str]:
    """A server started on a free port; stopped by SIGTERM, as a supervisor does it."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))  # kept while the server starts: nobody else is given the port
        port = place.getsockname()[1]
        parts = [part.replace("PORT", str(port)) for part in command]
        process = subprocess.Popen([sys.executable, *parts], cwd=EXAMPLES, env={**_environment(collector), **more})
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
    """The root lasts until the stream is read, keeps the text and the session."""
    with _serving(
        collector, "-m", "uvicorn", "starlette_stream:app", "--port", "PORT", "--log-level", "warning"
    ) as url:
        assert _get(f"{url}/ask?q=capital", **{"x-session": "s7"}) == "Paris is the capital of France. "
        eventually(lambda: len(collector.spans) == 3)
    root, tokens = collector.one("answer"), collector.one("tokens")
    assert (root.attributes["session.id"], tokens.parent) == ("s7", root.id)
    assert root.attributes["output.value"] == "Paris is the capital of France. "
    assert collector.one("search").parent == root.id


GUNICORN = ("-m", "gunicorn", "gunicorn_app:app", "--workers", "2", "--bind", "127.0.0.1:PORT", "--log-level", "error")
SERVERS = {
    "uvicorn": ("multiworker.py", "PORT", "2"),
    "gunicorn": GUNICORN,
    "gunicorn, preloaded": (*GUNICORN, "--preload"),
    "gunicorn, gevent": (*GUNICORN, "--worker-class", "gevent"),
}


def _arrived(collector: Collector) -> list[int]:
    return sorted(int(span.attributes["input.value"]) for span in list(collector.spans))


@pytest.mark.parametrize("server", SERVERS)
def test_workers_deliver_what_they_answered(collector: Collector, server: str) -> None:
    """Each answered request's span arrives once, also those of the last moment, and those of a worker born late."""
    if server.startswith("gunicorn"):
        _needs("gunicorn")
    with _serving(collector, *SERVERS[server]) as url:
        numbers, answered = itertools.count(), list[int]()

        def ask() -> int:
            answered.append(int(json.loads(_get(f"{url}/ask?q={next(numbers)}"))["pid"]))
            return answered[-1]

        eventually(ask, lambda _: len(set(answered)) == 2)
        first, killed = set(answered), answered[-1]
        eventually(lambda: _arrived(collector), lambda arrived: len(arrived) == len(answered))
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: _gone(killed))
        eventually(ask, lambda pid: pid not in first)
    eventually(lambda: _arrived(collector), lambda arrived: arrived == list(range(len(answered))))
    assert len({span.resource["service.instance.id"] for span in collector.spans}) == len(set(answered))


LAST = """
import ragpulse
from fastapi import FastAPI
ragpulse.configure()
app = FastAPI()
answer = ragpulse.rag(name="answer")(lambda question: question)

@app.get("/loop")
async def loop() -> str:
    return answer("last")

@app.get("/thread")
def thread() -> str:
    return answer("last")
"""


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_uvicorn_delivers_what_it_answered_just_before_sigterm(
    collector: Collector, tmp_path: Path, where: str
) -> None:
    """It ends itself by the signal a tenth of a second later, and no endpoint need run in the main thread."""
    (tmp_path / "last_app.py").write_text(LAST, encoding="utf-8")
    options = ("--app-dir", str(tmp_path), "--port", "PORT", "--log-level", "warning")
    with _serving(collector, "-m", "uvicorn", "last_app:app", *options) as url:
        assert _get(f"{url}/{where}") == '"last"'
    eventually(lambda: len(collector.spans) == 1)


HELD = """
import pathlib, time, ragpulse
ragpulse.configure()
held = pathlib.Path("held")

@ragpulse.rag
def answer(question):
    held.touch()
    while held.exists():
        time.sleep(0.01)
    return question

def app(environ, start_response):
    body = answer("in flight").encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.parametrize("worker", ["gevent", "gthread"])
def test_a_request_in_flight_at_sigterm_is_answered_and_recorded(
    collector: Collector, tmp_path: Path, worker: str
) -> None:
    """Our signal handler neither raises nor blocks: under gevent it runs where nothing may wait."""
    (tmp_path / "held_app.py").write_text(HELD, encoding="utf-8")
    place, options = tmp_path / "place.sock", ("--worker-class", worker, "--log-level", "error", "--bind")
    command = [sys.executable, "-m", "gunicorn", "held_app:app", *options, f"unix:{place}"]
    server = subprocess.Popen(command, cwd=tmp_path, env=_environment(collector))
    try:
        with socket.socket(socket.AF_UNIX) as client:
            eventually(lambda: place.exists() and client.connect_ex(str(place)) == 0)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            eventually((tmp_path / "held").exists)
            server.send_signal(signal.SIGTERM)
            eventually(lambda: not place.exists() or _refuses(place))
            (tmp_path / "held").unlink()
            heard = b"".join(iter(lambda: client.recv(4096), b""))
        assert heard.endswith(b"in flight")
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait(60)
    assert collector.one("answer").attributes["output.value"] == "in flight"


def _refuses(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(place)) != 0


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


@pytest.mark.parametrize(
    ("script", "root", "answered"),
    [
        ("existing_langchain.py", "RunnableSequence", "Paris."),
        ("existing_llamaindex.py", "RetrieverQueryEngine", "text"),
    ],
)
def test_existing_applications_are_recorded_without_a_decorator(
    collector: Collector, script: str, root: str, answered: str
) -> None:
    """The chain or query is the root, with question and answer; retriever, documents and model are below it."""
    _run(script, collector)
    top = next(span for span in collector.spans if span.name.startswith(root) and not span.parent)
    below = [span for span in collector.spans if span.trace == top.trace]
    assert top.attributes["input.value"] == "What is the capital of France?"
    assert top.attributes["output.value"].startswith(answered)
    assert {"RETRIEVER", "LLM", "CHAIN"} <= {span.attributes["openinference.span.kind"] for span in below}
    found = {span.attributes.get("retrieval.documents.0.document.content") for span in below}
    assert "Paris is the capital of France." in found


def test_an_existing_fastapi_application(collector: Collector, model: LoopbackModel) -> None:
    """The genuine OpenAI client's call is below the decorated answer, with its tokens and the session."""
    command = ("-m", "uvicorn", "existing_fastapi:app", "--port", "PORT", "--log-level", "warning")
    with _serving(collector, *command, OPENAI_BASE_URL=model.url, OPENAI_API_KEY="k") as url:
        assert _get(f"{url}/ask?q=capital&session=s9") == '"Paris."'
        eventually(lambda: len(collector.spans) == 3)
    root, call = collector.one("answer"), collector.one("ChatCompletion")
    assert (call.parent, call.attributes["session.id"]) == (root.id, "s9")
    assert (call.attributes["llm.token_count.prompt"], call.attributes["llm.token_count.completion"]) == (120, 5)
    assert collector.one("search").parent == root.id


ASKING = """
import sys
from openai import OpenAI
print(sys.argv[1:], __name__)
OpenAI().chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": "Where?"}])
"""


@pytest.mark.parametrize("module", [(), ("-m",)])
def test_ragpulse_run_records_an_unchanged_program(
    collector: Collector, model: LoopbackModel, tmp_path: Path, module: tuple[str, ...]
) -> None:
    """Without the collector's packages: `ragpulse[instrument]` alone has none of them."""
    (tmp_path / "asking.py").write_text(ASKING, encoding="utf-8")
    without = "import sys; sys.modules |= dict.fromkeys(['click', 'duckdb', 'starlette', 'uvicorn'])\n"
    code = f"{without}from ragpulse_collector.__main__ import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, "run", *module, "asking" if module else "asking.py", "--flag", "x"]
    environment = {**_environment(collector), "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "k"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "['--flag', 'x'] __main__\n"
    call = collector.one("ChatCompletion")
    assert call.resource["service.name"] == "asking"
    assert call.attributes["llm.token_count.prompt"] == 120


@pytest.mark.parametrize("package", ["click", "httptools"])
def test_a_command_without_its_packages_names_the_line_to_install(package: str) -> None:
    """Also where the application has some of the collector's packages."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\nfrom ragpulse_collector.__main__ import main\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve"], capture_output=True, text=True, timeout=60, check=False
    )
    install = "ragpulse: this command needs the collector: pip install 'ragpulse[collector]'"
    assert (done.returncode, done.stderr) == (2, f"{install}  (missing: {package})\n")


def test_what_ragpulse_run_cannot_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing program, and no program."""
    assert run(["no-such-program"]) == 2
    assert "no program 'no-such-program'" in capsys.readouterr().err
    assert run([]) == 2
    assert "usage: ragpulse run PROGRAM" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("langchian", "instrument() has no 'langchian': did you mean 'langchain'?"),
        ("crewai", "the package crewai is not installed: pip install crewai"),
        ("google_genai", "the package google.genai is not installed: pip install google-genai"),
        ("openai_agents", "the package agents is not installed: pip install openai-agents"),
        ("groq", "pip install openinference-instrumentation-groq"),
        ("openai", "pip install 'ragpulse[instrument]'"),
    ],
)
def test_what_cannot_be_instrumented_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    """An unknown name, a missing library, a missing instrumentor; without names it is passed over."""
    (tmp_path / "groq.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "openinference.instrumentation.openai", None)
    with pytest.raises((ValueError, ImportError), match=re.escape(said)):
        ragpulse.instrument(name)


@pytest.mark.parametrize(
    ("is_there", "said"),
    [
        (False, "none of groq, mistralai is installed"),
        (True, "the instrumentor of groq is not installed: pip install openinference-instrumentation-groq"),
    ],
)
def test_nothing_to_instrument_is_said_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_there: bool, said: str
) -> None:
    """The library, not the extra that is there; the instrumentor of a library that is there."""
    others = [name for name in LIBRARIES if name not in ("groq", "mistralai")]
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", ",".join(others))
    if is_there:
        (tmp_path / "groq.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.WARNING, "ragpulse"):
        assert ragpulse.instrument() == ()
    assert said in caplog.text


def test_the_version_needs_no_collector() -> None:
    """`ragpulse --version` with the SDK alone."""
    without = "import sys; sys.modules |= dict.fromkeys(['click', 'duckdb', 'starlette', 'uvicorn'])\n"
    code = f"{without}from ragpulse_collector.__main__ import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"ragpulse, version {version('ragpulse')}\n"


def test_fastapi_stream(collector: Collector) -> None:
    """As the Starlette example."""
    _needs("fastapi")
    with _serving(collector, "-m", "uvicorn", "fastapi_stream:app", "--port", "PORT", "--log-level", "warning") as url:
        assert _get(f"{url}/ask?q=capital&session=s8") == "Paris is the capital of France. "
        eventually(lambda: len(collector.spans) == 2)
    assert collector.one("answer").attributes["session.id"] == "s8"
