"""`make wheel` and `make floors`: the built wheel in an empty environment of each extra, used as a stranger uses it.

    python tests/installed.py newest                    the versions of constraints.txt
    python tests/installed.py floors collector judge    every declared floor at once, for two extras

Each environment runs pytest, and the extra's own use: the demo, SQL, a judge on loopback, a traced call, all
operations. A failure ends the run with exit 1 and the output of its command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from all_routes import ASKED
from local_models import tagger
from loopback import LoopbackModel
from served import Served
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import ClientError, connect

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "installed"
UV = Path(sys.executable).with_name("uv")
PYTHON = "3.11"
AT_ONCE = 2
BESIDE = {"instrument": ("openai",)}
"""What an application has besides an extra."""

PLAIN_TEST = "def test_plain():\n    assert True\n"
QUALITY_TEST = """
def test_quality(assert_quality):
    assert_quality([{"response": "Paris", "reference": "Paris"}], "exact_match", at_least=0.5)
"""
TRACED = """
import sys, ragpulse
ragpulse.configure(service_name="probe", endpoint=sys.argv[1])

@ragpulse.retriever
def search(question):
    return [{"id": "a", "text": "The tower is 330 metres tall.", "score": 0.9}]

@ragpulse.rag
def answer(question):
    return search(question)[0]["text"]

answer("How tall is the tower?")
assert ragpulse.flush(timeout=30)
stats = ragpulse.stats()
assert (stats.exported, stats.dropped, stats.rejected) == (2, 0, 0), stats
"""
ATTACHED = (
    """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
    + TRACED
)
TESTING = """
import ragpulse
from ragpulse.testing import capture
with capture() as spans:
    ragpulse.rag(lambda question: question)("q")
assert len(spans) == 1
"""
CASE = '{"query": "How tall?", "response": "It is 330 m tall.", "contexts": [{"id": "a", "text": "It is 330 m tall."}]}'
GROUNDED = f"""
from ragpulse_evaluators import evaluate_sync
(results,) = evaluate_sync([{CASE}], "groundedness").values()
assert results[0].passing, results
"""
JUDGED = f"""
import sys
from ragpulse_evaluators import evaluate_sync
from ragpulse_evaluators.judges.providers import as_judge
judge = as_judge(sys.argv[1], **({{"api_base": sys.argv[2], "api_key": "x"}} if len(sys.argv) > 2 else {{}}))
(results,) = evaluate_sync([{CASE}], "faithfulness", judge=judge).values()
assert results[0].status == "ok", results
"""
MODELLED = f"""
import sys
from ragpulse_evaluators import evaluate_sync, get_evaluator
evaluator = get_evaluator("groundedness_model", model=sys.argv[1])
(results,) = evaluate_sync([{CASE}], [evaluator]).values()
assert results[0].passing, results
"""
SCORED = """
from ragpulse_evaluators import evaluate_sync
for name in NAMES:
    (results,) = evaluate_sync([{"response": "The cat sat.", "reference": "The cat sat."}], name).values()
    assert results[0].status == "ok" and results[0].normalized > 0.9, results
"""
GROUPED = """
from ragpulse_collector.topics import assign, fit
questions = ["Where is my parcel?", "Reset the password"] * 300
topics = fit(questions, [str(number) for number in range(600)])
assert assign(topics, "parcel").size == 300, topics
"""
INSTRUMENTED = """
import sys, openai, ragpulse
ragpulse.configure(service_name="probe", endpoint=sys.argv[1])
assert "openai" in ragpulse.instrument()
client = openai.OpenAI(base_url=sys.argv[2], api_key="x")
client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
assert ragpulse.flush(timeout=30) and ragpulse.stats().exported == 1, ragpulse.stats()
"""
ARROW = """
import sys, pyarrow
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from ragpulse_collector.client import connect

table = pyarrow.table({"n": [1, 2]})

class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        body = sink.getvalue().to_pybytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("127.0.0.1", 0), Answers)
Thread(target=server.serve_forever, daemon=True).start()
assert connect(f"http://127.0.0.1:{server.server_port}").sql("select n").arrow().to_pydict() == {"n": [1, 2]}
"""
GRPC = """
import sys, grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
request = ExportTraceServiceRequest()
span = request.resource_spans.add().scope_spans.add().spans.add()
span.trace_id, span.span_id, span.name = bytes([1] * 16), bytes([1] * 8), "one"
span.start_time_unix_nano = span.end_time_unix_nano = 1_790_000_000 * 10**9
TraceServiceStub(grpc.insecure_channel(sys.argv[1])).Export(request, timeout=20)
"""
MCP = """
import sys, anyio
from mcp import Client
from ragpulse_collector.client import connect
from ragpulse_collector.mcp_server import server

async def main():
    async with Client(server(connect(sys.argv[1]))) as client:
        assert not (await client.call_tool("sql", {"query": "select 1"})).is_error

anyio.run(main)
"""


class Installed:
    """One environment; its commands run in an empty folder and without this project's variables."""

    def __init__(self, extra: str, folder: Path, wheel: Path, collector: str, *, floors: bool) -> None:
        self.extra, self.folder, self._environment = extra, folder, folder / "env"
        self.collector = collector
        """The address of a collector that is not in this environment."""
        self.python = self._environment / "bin" / "python"
        self._uv("venv", "--python", PYTHON, str(self._environment))
        names = ["pytest", *BESIDE.get(extra, ())]
        if floors:
            floor = self._uv("pip", "compile", "--resolution", "lowest-direct", "--python", str(self.python),
                             "--no-header", "--no-annotate", *(["--extra", extra] if extra else []),
                             str(ROOT / "pyproject.toml"))  # fmt: skip
            (folder / "floors.txt").write_text(floor)
            self._install("--requirement", str(folder / "floors.txt"), *names)
            self._install("--no-deps", str(wheel))
        else:
            constraints = ROOT / ("constraints-lake.txt" if extra == "lake" else "constraints.txt")
            target = f"{wheel}[{extra}]" if extra else str(wheel)
            self._install("--constraint", str(constraints), target, *names)

    def _uv(self, *arguments: str) -> str:
        return run([str(UV), "--quiet", *arguments], self.folder)

    def _install(self, *arguments: str) -> None:
        self._uv("pip", "install", "--python", str(self.python), *arguments)

    def run(self, program: str, *arguments: str) -> str:
        """Run a Python program; returns what it prints."""
        return run([str(self.python), "-c", program, *arguments], self.folder)

    def command(self, *arguments: str, code: int = 0) -> str:
        """Run `ragpulse` and expect its exit code; returns what it prints."""
        return run([str(self.python), "-m", "ragpulse_collector", *arguments], self.folder, code)

    def serve(self, *arguments: str) -> Served:
        """Start its collector."""
        return Served(self.folder / "served.duckdb", *arguments, python=self.python)


def run(command: list[str], folder: Path, code: int = 0) -> str:
    """Run a command in a folder; SystemExit with its output where its exit code is another."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAGPULSE_", "OTEL_"))}
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != code:
        raise SystemExit(
            f"{' '.join(command)[:300]}\nexit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def core(at: Installed) -> None:
    """The SDK alone: it traces, and commands of the collector name their extra."""
    assert "pip install 'ragpulse[collector]'" in at.command("demo", code=2)
    assert "Zen of Python" in at.command("run", "-m", "this")


def evaluators(at: Installed) -> None:
    """Checks without a judge, and a judge over HTTP."""
    at.run(GROUNDED)
    model = LoopbackModel(judged)
    at.run(JUDGED, f"{model.url}#m")
    model.close()


def text(at: Installed) -> None:
    """Metrics of other packages."""
    at.run(f"NAMES = ('bleu', 'chrf')\n{SCORED}")


def semantic(at: Installed) -> None:
    """Static embeddings."""
    at.run(f"NAMES = ('embedding_similarity',)\n{SCORED}")


def topics(at: Installed) -> None:
    """Topics of questions."""
    at.run(GROUPED)


def local(at: Installed) -> None:
    """A local model, of a folder."""
    at.run(MODELLED, str(tagger(at.folder / "model")))


def judge(at: Installed) -> None:
    """A judge by its litellm name."""
    evaluators(at)
    model = LoopbackModel(judged)
    at.run(JUDGED, "openai/m", model.url)
    model.close()


def judged(prompt: str) -> str:
    """Reply as `faithfulness` wants it."""
    del prompt
    return '{"reason": "stated", "verdict": "YES"}'


def collector(at: Installed) -> None:
    """The demo, traces of a program, SQL beside the collector and in its closed file, `doctor`."""
    evaluators(at)
    assert "pip install 'ragpulse[judge]'" in at.command("serve", "--judge", "openai/gpt-5-mini", code=1)
    shown = at.command("demo", "--exit")
    assert "groundedness, v2 against v1: worse" in shown, shown
    with at.serve("--no-grpc") as served:
        at.run(TRACED, served.url)
        assert "330 metres" in at.command("sql", "--url", served.url, "select response from traces")
        at.command("doctor", "--url", served.url)
        served.terminate()
    assert "330 metres" in at.command("sql", "--db", "served.duckdb", "select response from traces")


def grpc(at: Installed) -> None:
    """OTLP over gRPC."""
    with at.serve() as served:
        port = served.output.split("OTLP/gRPC on port ")[1].split()[0]
        at.run(GRPC, f"127.0.0.1:{port}")


def instrument(at: Installed) -> None:
    """A library's calls become spans."""
    model = LoopbackModel(lambda prompt: "Hello")
    at.run(INSTRUMENTED, at.collector, model.url)
    model.close()


def arrow(at: Installed) -> None:
    """Answers as Arrow tables."""
    at.run(ARROW)


def mcp(at: Installed) -> None:
    """A tool of the server for assistants."""
    with at.serve("--no-grpc") as served:
        at.run(MCP, served.url)


USES: dict[str, Callable[[Installed], None]] = {
    "": core, "evaluators": evaluators, "text": text, "judge": judge, "collector": collector, "grpc": grpc,
    "instrument": instrument, "semantic": semantic, "topics": topics, "local": local, "arrow": arrow, "mcp": mcp,
    "lake": collector,
}  # fmt: skip
"""Extra → what is tried with it. `all` only joins others."""
SERVING = ("collector", "grpc", "topics", "mcp", "lake")
"""Those that have the collector."""


def sdk(at: Installed) -> None:
    """Whatever the extra: programs are traced, with a provider of their own too, and their tests read spans."""
    at.run(TRACED, at.collector)
    at.run(ATTACHED, at.collector)
    at.run(TESTING)


def pytest(at: Installed) -> None:
    """Whatever the extra: pytest runs; the fixture works, or names its extra."""
    (at.folder / "pytest.ini").write_text("[pytest]\n")  # not those of this project
    (at.folder / "test_plain.py").write_text(PLAIN_TEST)
    (at.folder / "test_quality.py").write_text(QUALITY_TEST)
    run([str(at.python), "-m", "pytest", "-q", "test_plain.py"], at.folder)
    without = at.extra in ("", "instrument", "arrow")
    printed = run([str(at.python), "-m", "pytest", "-q", "test_quality.py"], at.folder, int(without))
    assert ("pip install 'ragpulse[evaluators]'" in printed) == without, printed


def operations(at: Installed) -> None:
    """Whatever extra has the collector: each operation answers or refuses, also where one answer failed."""
    with Served(at.folder / "asked.duckdb", "--no-grpc", python=at.python) as served:
        for number in range(4):
            send(served.url, rag_trace(number, prompt_version=f"v{7 + number % 2}", error=number == 2))
        send(served.url, rag_trace(4, response=" "))
        client, run = connect(served.url), ""
        until(client, "select 1 from scores where evaluator = 'groundedness'", 4)
        for method, path, given in ASKED:
            params = {name: run if value == "RUN" else value for name, value in given.items()}
            rest = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
            try:
                answer = client.call(f"{method} {path.format(**params)}", rest)
            except ClientError as error:
                if (error.status or 500) >= 500:
                    raise SystemExit(f"{at.extra}: {method} {path}: {error}") from error
            else:
                run = answer["replays"][0]["run_id"] if answer.get("replays") else run


def main(mode: str, *extras: str) -> None:
    """Build the wheel and try every extra."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    run([str(UV), "build", "--quiet", "--wheel", "--out-dir", str(BUILD), str(ROOT)], ROOT)
    (wheel,) = BUILD.glob("*.whl")
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder) / "probes.duckdb", "--no-grpc") as probes,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        list(pool.map(lambda extra: attempt(extra, wheel, probes.url, floors=mode == "floors"), extras or USES))


def attempt(extra: str, wheel: Path, collector: str, *, floors: bool) -> None:
    """Install an extra and use it."""
    started, place = time.monotonic(), BUILD / (extra or "core")
    place.mkdir()
    at = Installed(extra, place, wheel, collector, floors=floors)
    pytest(at)
    sdk(at)
    USES[extra](at)
    if extra in SERVING:
        operations(at)
    print(f"{extra or 'core'}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
