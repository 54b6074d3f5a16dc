"""Ten correctness probes, run against whichever SDKs are installed where this is run.

Each probe runs in a process of its own, sends to a collector on a loopback port over OTLP/HTTP, and is judged by what
arrived. Run: `python benchmarks/sdk_probes.py [ragpulse raw openinference traceloop langfuse]`; a peer that is not
installed is left out. `PYTHONPATH=sdk` lets a peer's own environment run it.
"""

import argparse
import asyncio
import contextlib
import gc
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNKS = ["Paris ", "is ", "in ", "France."]
TEXT = "".join(CHUNKS)
MODULES = {
    "ragpulse": "ragpulse",
    "raw": "opentelemetry.sdk",
    "openinference": "openinference.instrumentation",
    "traceloop": "traceloop.sdk",
    "langfuse": "langfuse",
}

# --- adapters: (decorate a function as an LLM step, a `with` block, deliver) ------------------------------------------
Adapter = tuple[Callable[[Any], Any], Callable[[str], Any], Callable[[], Any]]


def _ragpulse(url: str) -> Adapter:
    import ragpulse

    ragpulse.configure("probes", endpoint=url, isolated=True)
    return ragpulse.llm, lambda name: ragpulse.span(name), lambda: ragpulse.flush(5)


def _provider(url: str) -> Any:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    trace.set_tracer_provider(provider)
    return provider


def _raw(url: str) -> Adapter:
    """What a careful engineer writes by hand: one span around the call, its output as an attribute."""
    import functools

    provider = _provider(url)
    tracer = provider.get_tracer("raw")

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with tracer.start_as_current_span(function.__name__) as span:
                result = function(*args, **kwargs)
                span.set_attribute("output.value", str(result))
                return result

        return wrapper

    return decorate, tracer.start_as_current_span, provider.force_flush


def _openinference(url: str) -> Adapter:
    from openinference.instrumentation import OITracer, TraceConfig

    provider = _provider(url)
    tracer = OITracer(provider.get_tracer("oi"), config=TraceConfig())
    return tracer.chain, tracer.start_as_current_span, provider.force_flush


def _traceloop(url: str) -> Adapter:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import task

    Traceloop.init(app_name="probes", exporter=OTLPSpanExporter(f"{url}/v1/traces"), instruments=set())
    provider: Any = trace.get_tracer_provider()
    return task(), trace.get_tracer("x").start_as_current_span, provider.force_flush


def _langfuse(url: str) -> Adapter:
    from langfuse import Langfuse, observe

    client = Langfuse(public_key="pk", secret_key="sk", host=url)
    return observe(as_type="generation"), lambda name: client.start_as_current_observation(name=name), client.flush


ADAPTERS = {
    "ragpulse": _ragpulse,
    "raw": _raw,
    "openinference": _openinference,
    "traceloop": _traceloop,
    "langfuse": _langfuse,
}


# --- probes: run with an adapter; each returns what only the process itself can tell ----------------------------------
def _named(decorate: Any) -> Callable[[], Iterator[str]]:
    def stream() -> Iterator[str]:
        yield from CHUNKS

    return decorate(stream)  # type: ignore[no-any-return]


def p1(decorate: Any, block: Any) -> bool:
    return list(_named(decorate)()) == CHUNKS


def p2(decorate: Any, block: Any) -> bool:
    generator = _named(decorate)()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    return True


def p3(decorate: Any, block: Any) -> bool:
    for _ in _named(decorate)():
        with block("between"):
            pass
    return True


def p4(decorate: Any, block: Any) -> bool:
    async def stream() -> AsyncIterator[str]:
        for chunk in CHUNKS:
            with block("inside"):
                await asyncio.sleep(0)
            yield chunk

    async def run() -> bool:
        iterator = decorate(stream)()
        return [await asyncio.create_task(iterator.__anext__()) for _ in CHUNKS[:2]] == CHUNKS[:2] and (
            await iterator.aclose() is None
        )

    return asyncio.run(run())


def p5(decorate: Any, block: Any) -> bool:
    def stream() -> Iterator[str]:
        given = yield "a"
        try:
            yield str(given)
        except ValueError:
            yield "caught"

    generator: Any = decorate(stream)()
    return [next(generator), generator.send("b"), generator.throw(ValueError())] == ["a", "b", "caught"]


def p6(decorate: Any, block: Any) -> bool:
    def stream() -> Iterator[str]:
        return iter(CHUNKS)

    return list(decorate(stream)()) == CHUNKS


def p7(decorate: Any, block: Any) -> bool:
    error = KeyError("missing")

    def stream() -> None:
        raise error

    try:
        decorate(stream)()
    except KeyError as caught:
        return caught is error
    return False


def p8(decorate: Any, block: Any) -> bool:
    def stream() -> str:
        return TEXT

    async def run() -> bool:
        with block("caller"):
            return bool(await asyncio.to_thread(decorate(stream)) == TEXT)

    return asyncio.run(run())


def p9(decorate: Any, block: Any) -> bool:
    def stream(who: str) -> str:
        return who

    function = decorate(stream)
    function("parent")
    pid = os.fork()
    if pid == 0:
        function("child")
        sys.exit(0)
    os.waitpid(pid, 0)
    return True


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


def p10(decorate: Any, block: Any) -> bool:
    def stream(value: Any) -> str:
        return TEXT

    function = decorate(stream)
    return all(function(value) == TEXT for value in (Hostile(), "\ud800", 2**80, "x" * 5_000_000))


def _output(span: dict[str, Any]) -> str:
    return json.dumps(span["attributes"])


def _only(spans: list[dict[str, Any]]) -> dict[str, Any]:
    found = [span for span in spans if span["name"] not in ("between", "inside", "caller")]
    return found[0] if len(found) == 1 else {"attributes": {}, "status": -1, "id": "", "events": [], "ns": -1}


def _has_text(spans: list[dict[str, Any]], text: str = TEXT) -> bool:
    return text in _output(_only(spans)).replace("\\", "")


def _part_without_error(spans: list[dict[str, Any]]) -> bool:
    return _has_text(spans, "Paris") and bool(_only(spans)["status"] == 0)


def _between_are_not_children(spans: list[dict[str, Any]]) -> bool:
    stream = _only(spans)["id"]
    return bool(stream) and all(span["parent"] != stream for span in spans if span["name"] == "between")


def _inside_are_children(spans: list[dict[str, Any]]) -> bool:
    stream = _only(spans)["id"]
    return _has_text(spans, "Paris") and all(span["parent"] == stream for span in spans if span["name"] == "inside")


def _error_with_stack(spans: list[dict[str, Any]]) -> bool:
    span = _only(spans)
    return span["status"] == 2 and any("raise error" in json.dumps(event) for event in span["events"])


def _below_the_caller(spans: list[dict[str, Any]]) -> bool:
    return [span["id"] for span in spans if span["name"] == "caller"] == [_only(spans).get("parent")]


def _two_different(spans: list[dict[str, Any]]) -> bool:
    return len(spans) == 2 and len({span["id"] for span in spans}) == 2


JUDGES: dict[str, tuple[str, Callable[[Any, Any], bool], Callable[[list[dict[str, Any]]], bool]]] = {
    "1": ("stream read to its end keeps its text", p1, _has_text),
    "2": ("closed early: part kept, no error", p2, _part_without_error),
    "3": ("the consumer's spans are not children", p3, _between_are_not_children),
    "4": ("async stream over tasks: nested, part kept", p4, _inside_are_children),
    "5": ("send and throw pass through", p5, lambda spans: True),
    "6": ("a returned iterator is a stream", p6, _has_text),
    "7": ("exception with type and stack", p7, _error_with_stack),
    "8": ("context reaches to_thread", p8, _below_the_caller),
    "9": ("fork: both arrive, once", p9, _two_different),
    "10": ("hostile values", p10, lambda spans: len(spans) == 4),
}


# --- the collector and the table --------------------------------------------------------------------------------------
def _collect(received: list[bytes]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.endswith("/v1/traces"):
                received.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _parsed(received: list[bytes]) -> list[dict[str, Any]]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans = []
    for body in received:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (span for scope in part.scope_spans for span in scope.spans):
                spans.append(
                    {
                        "name": span.name,
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "status": span.status.code,
                        "attributes": {item.key: item.value.string_value for item in span.attributes},
                        "events": [{item.key: item.value.string_value for item in e.attributes} for e in span.events],
                    }
                )
    return spans


def judge(who: str, number: str) -> str:
    received: list[bytes] = []
    server = _collect(received)
    command = [sys.executable, __file__, "--one", who, number, f"http://127.0.0.1:{server.server_port}"]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        server.shutdown()
    if "ok" not in done.stdout.split():
        return "fails in the application"
    if not JUDGES[number][2](_parsed(received)):
        return "wrong"
    return "ok" if time.monotonic() - started < 30 else "slow"


def one(who: str, number: str, url: str) -> None:
    decorate, block, deliver = ADAPTERS[who](url)
    behaved = JUDGES[number][1](decorate, block)
    gc.collect()
    print("ok" if behaved else "altered", flush=True)
    with contextlib.suppress(Exception):
        deliver()


def _usable(who: str) -> bool:
    """Whether it can be imported here; if not, says why it is left out."""
    done = subprocess.run([sys.executable, "-c", f"import {MODULES[who]}"], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{who} is left out: {done.stderr.strip().splitlines()[-1]}")
    return not done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", nargs="*", default=list(ADAPTERS))
    parser.add_argument("--one", nargs=3)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return
    who = [name for name in options.who if _usable(name)]
    print(f"{'probe':46}" + "".join(f"{name:26}" for name in who))
    passed = dict.fromkeys(who, 0)
    for number, (title, _, _) in JUDGES.items():
        told = {name: judge(name, number) for name in who}
        for name, verdict in told.items():
            passed[name] += verdict == "ok"
        print(f"{number:>2} {title:43}" + "".join(f"{told[name]:26}" for name in who), flush=True)
    print(f"{'passed':46}" + "".join(f"{passed[name]} of {len(JUDGES):<20}" for name in who))


if __name__ == "__main__":
    main()
