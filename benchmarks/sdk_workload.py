"""The workload of the SDK benchmarks: one RAG answer of three spans, bare, decorated, and by hand in raw OpenTelemetry.

answer(query) -> retrieve (5 contexts of 500 characters, with id and score) -> generate (800 characters, usage).
"""

import json
import multiprocessing
import socket
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.context import attach, detach
from opentelemetry.trace import set_span_in_context

QUERY = "How do I get my money back after the trial has ended?"
_SENTENCE = "A refund is possible within thirty days of the purchase; write to the desk with the number of the order. "
TEXTS = [(f"[{n}] " + _SENTENCE * 6)[:500] for n in range(5)]
ANSWER = (_SENTENCE * 10)[:800]
CHUNKS = [ANSWER[at : at + 20] for at in range(0, 800, 20)]


def contexts() -> list[dict[str, Any]]:
    return [{"id": f"doc-{n}", "text": text, "score": 0.9 - n / 10} for n, text in enumerate(TEXTS)]


def completion() -> dict[str, Any]:
    return {"text": ANSWER, "model": "gpt-5-mini", "usage": {"prompt_tokens": 812, "completion_tokens": 190}}


class Bare:
    """The application, uninstrumented."""

    def retrieve(self, query: str) -> list[dict[str, Any]]:
        return contexts()

    def generate(self, query: str, docs: list[dict[str, Any]]) -> dict[str, Any]:
        return completion()

    def answer(self, query: str) -> str:
        return self.generate(query, self.retrieve(query))["text"]

    async def aretrieve(self, query: str) -> list[dict[str, Any]]:
        return contexts()

    async def agenerate(self, query: str, docs: list[dict[str, Any]]) -> dict[str, Any]:
        return completion()

    async def aanswer(self, query: str) -> str:
        return (await self.agenerate(query, await self.aretrieve(query)))["text"]

    def tokens(self, query: str, docs: list[dict[str, Any]]) -> Iterator[str]:
        yield from CHUNKS

    def stream(self, query: str) -> Iterator[str]:
        yield from self.tokens(query, self.retrieve(query))

    async def atokens(self, query: str, docs: list[dict[str, Any]]) -> AsyncIterator[str]:
        for chunk in CHUNKS:
            yield chunk


def decorated() -> Any:
    """The application with ragpulse's decorators."""
    import ragpulse

    class Decorated(Bare):
        retrieve = ragpulse.retriever(Bare.retrieve)
        generate = ragpulse.llm(model="gpt-5-mini", provider="openai")(Bare.generate)
        answer = ragpulse.rag(prompt_name="qa", prompt_version="v7")(Bare.answer)
        aretrieve = ragpulse.retriever(Bare.aretrieve)
        agenerate = ragpulse.llm(model="gpt-5-mini", provider="openai")(Bare.agenerate)
        aanswer = ragpulse.rag(prompt_name="qa", prompt_version="v7")(Bare.aanswer)
        tokens = ragpulse.llm(model="gpt-5-mini", provider="openai")(Bare.tokens)
        stream = ragpulse.rag(prompt_name="qa", prompt_version="v7")(Bare.stream)

    return Decorated()


def peered(decorate: Any) -> Any:
    """The application with another SDK's decorator on each step."""

    class Peered(Bare):
        retrieve = decorate(Bare.retrieve)
        generate = decorate(Bare.generate)
        answer = decorate(Bare.answer)
        aretrieve = decorate(Bare.aretrieve)
        agenerate = decorate(Bare.agenerate)
        aanswer = decorate(Bare.aanswer)
        tokens = decorate(Bare.tokens)
        stream = decorate(Bare.stream)

    return Peered()


def _root(span: Any, query: str) -> None:
    span.set_attribute("ragpulse.span.kind", "rag")
    span.set_attribute("openinference.span.kind", "CHAIN")
    span.set_attribute("gen_ai.operation.name", "invoke_workflow")
    span.set_attribute("gen_ai.workflow.name", "answer")
    span.set_attribute("gen_ai.prompt.name", "qa")
    span.set_attribute("gen_ai.prompt.version", "v7")
    span.set_attribute("session.id", "s1")
    span.set_attribute("user.id", "u1")
    span.set_attribute("input.value", query)


def _retrieval(span: Any, query: str, found: list[dict[str, Any]]) -> None:
    span.set_attribute("ragpulse.span.kind", "retriever")
    span.set_attribute("openinference.span.kind", "RETRIEVER")
    span.set_attribute("gen_ai.operation.name", "retrieval")
    span.set_attribute("gen_ai.data_source.id", "docs")
    span.set_attribute("gen_ai.retrieval.query.text", query)
    span.set_attribute("gen_ai.retrieval.top_k", 5)
    span.set_attribute("input.value", query)
    span.set_attribute("input.mime_type", "text/plain")
    span.set_attribute("gen_ai.prompt.version", "v7")
    span.set_attribute("gen_ai.retrieval.documents", json.dumps(found))


def _generation(span: Any, query: str, text: str, usage: dict[str, int]) -> None:
    span.set_attribute("ragpulse.span.kind", "llm")
    span.set_attribute("openinference.span.kind", "LLM")
    span.set_attribute("gen_ai.operation.name", "chat")
    span.set_attribute("gen_ai.request.model", "gpt-5-mini")
    span.set_attribute("gen_ai.provider.name", "openai")
    span.set_attribute("gen_ai.response.model", "gpt-5-mini")
    span.set_attribute("input.value", query)
    span.set_attribute("output.value", text)
    span.set_attribute("gen_ai.usage.input_tokens", usage["prompt_tokens"])
    span.set_attribute("gen_ai.usage.output_tokens", usage["completion_tokens"])


class Raw(Bare):
    """The floor: what a careful engineer writes by hand, ten attributes a span."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def retrieve(self, query: str) -> list[dict[str, Any]]:
        with self._tracer.start_as_current_span("retrieve") as span:
            found = super().retrieve(query)
            _retrieval(span, query, found)
            return found

    def generate(self, query: str, docs: list[dict[str, Any]]) -> dict[str, Any]:
        with self._tracer.start_as_current_span("generate") as span:
            result = super().generate(query, docs)
            _generation(span, query, result["text"], result["usage"])
            return result

    def answer(self, query: str) -> str:
        with self._tracer.start_as_current_span("answer") as span:
            _root(span, query)
            text = super().answer(query)
            span.set_attribute("output.value", text)
            return text

    async def aretrieve(self, query: str) -> list[dict[str, Any]]:
        with self._tracer.start_as_current_span("retrieve") as span:
            found = await super().aretrieve(query)
            _retrieval(span, query, found)
            return found

    async def agenerate(self, query: str, docs: list[dict[str, Any]]) -> dict[str, Any]:
        with self._tracer.start_as_current_span("generate") as span:
            result = await super().agenerate(query, docs)
            _generation(span, query, result["text"], result["usage"])
            return result

    async def aanswer(self, query: str) -> str:
        with self._tracer.start_as_current_span("answer") as span:
            _root(span, query)
            text = await super().aanswer(query)
            span.set_attribute("output.value", text)
            return text

    def tokens(self, query: str, docs: list[dict[str, Any]]) -> Iterator[str]:
        with self._tracer.start_as_current_span("generate") as span:
            parts = []
            for chunk in super().tokens(query, docs):
                parts.append(chunk)
                yield chunk
            _generation(span, query, "".join(parts), {"prompt_tokens": 812, "completion_tokens": 190})

    def stream(self, query: str) -> Iterator[str]:
        with self._tracer.start_as_current_span("answer") as span:
            _root(span, query)
            parts = []
            for chunk in self.tokens(query, self.retrieve(query)):
                parts.append(chunk)
                yield chunk
            span.set_attribute("output.value", "".join(parts))


class Stepwise(Raw):
    """As Raw, but the spans of streams are current in their own code only, as a decorated generator's are.

    `with start_as_current_span` around a `yield` leaves the span current in the consumer: what it does between two
    chunks would become a child of the model call. Also marks the stream and times its first chunk, as ragpulse does.
    """

    def tokens(self, query: str, docs: list[dict[str, Any]]) -> Iterator[str]:
        span = self._tracer.start_span("generate")
        parts: list[str] = []
        yield from _steps(span, Bare.tokens(self, query, docs), parts)
        _generation(span, query, "".join(parts), {"prompt_tokens": 812, "completion_tokens": 190})
        span.end()

    def stream(self, query: str) -> Iterator[str]:
        span = self._tracer.start_span("answer")
        _root(span, query)
        parts: list[str] = []
        yield from _steps(span, Bare.stream(self, query), parts)
        span.set_attribute("output.value", "".join(parts))
        span.end()


def _steps(span: Any, source: Iterator[str], parts: list[str]) -> Iterator[str]:
    """Yield what the source gives, with the span current while the source runs."""
    within, began = set_span_in_context(span), time.time_ns()
    span.set_attribute("gen_ai.request.stream", True)
    while True:
        token = attach(within)
        try:
            chunk = next(source)
        except StopIteration:
            return
        finally:
            detach(token)
        if not parts:
            span.set_attribute("gen_ai.response.time_to_first_chunk", (time.time_ns() - began) / 1e9)
        parts.append(chunk)
        yield chunk


class Spans(Bare):
    """Three SDK spans with nothing on them: the least that a provider of the application can cost."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def retrieve(self, query: str) -> list[dict[str, Any]]:
        with self._tracer.start_as_current_span("retrieve"):
            return super().retrieve(query)

    def generate(self, query: str, docs: list[dict[str, Any]]) -> dict[str, Any]:
        with self._tracer.start_as_current_span("generate"):
            return super().generate(query, docs)

    def answer(self, query: str) -> str:
        with self._tracer.start_as_current_span("answer"):
            return super().answer(query)


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _serve(port: int) -> None:
    ThreadingHTTPServer(("127.0.0.1", port), _Sink).serve_forever()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def sink() -> tuple[str, Any]:
    """A collector in another process that takes everything, so that its CPU is not ours; (url, process)."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}", process
