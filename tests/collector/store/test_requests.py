"""What counts as a request, and what is stored as another root: a table of what applications send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from wire_support import otlp_json

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store import EmbeddedStore

QUESTION, ANSWER, CHUNK = "How long does a refund take?", "Refunds take five working days.", "Shipping is free."
Rows = list[tuple[str, str | None, dict[str, Any]]]
"""The spans of a trace: name, name of the parent, attributes; a name with `!` failed."""


def oi(kind: str, input: Any = None, output: Any = None, **more: Any) -> dict[str, Any]:
    """Attributes by OpenInference; a value that is no text is JSON."""
    texts = {"input": input, "output": output}
    stated = {f"{key}.value": value if isinstance(value, str) else json.dumps(value) for key, value in texts.items()
              if value is not None}  # fmt: skip
    return {"openinference.span.kind": kind, **stated, **more}


def workflow(*args: Any, output: Any = None) -> dict[str, Any]:
    """Attributes of Traceloop's decorator."""
    return {
        "traceloop.span.kind": "workflow", "traceloop.entity.input": json.dumps({"args": args, "kwargs": {}}),
        "traceloop.entity.output": json.dumps(output),
    }  # fmt: skip


def own(kind: str, input: str | None = None, output: str | None = None) -> dict[str, Any]:
    """Attributes of our decorators."""
    texts = {"input.value": input, "output.value": output}
    return {"ragpulse.span.kind": kind, **{name: text for name, text in texts.items() if text is not None}}


def operation(name: str, **more: Any) -> dict[str, Any]:
    """Attributes by the semantic conventions."""
    return {"gen_ai.operation.name": name, **more}


def http(route: str) -> dict[str, Any]:
    """Attributes of a server's span."""
    return {"http.request.method": "GET", "http.route": route, "http.response.status_code": 200}


EMBEDDING = ("embed", "root", oi("EMBEDDING", CHUNK))
LLM = ("chat", "root", operation("chat", **{"gen_ai.request.model": "gpt-4.1"}))
UPSERT = ("upsert", "root", {"db.system": "qdrant", "db.operation": "upsert"})
SEARCH = ("search", "root", {"db.system": "pinecone", "db.operation": "query"})
OTHER_ROOTS: dict[str, Rows] = {
    "embedding by OpenInference": [("root", None, oi("EMBEDDING", CHUNK))],
    "embedding by the conventions, content off": [("root", None, operation("embeddings"))],
    "embedding by Traceloop": [("root", None, {"llm.request.type": "embedding", "gen_ai.prompt.0.content": CHUNK})],
    "embedding by Langfuse": [("root", None, {"langfuse.observation.type": "embedding",
                                              "langfuse.observation.input": json.dumps(CHUNK)})],
    "embedding by Vercel's AI SDK": [("root", None, {"ai.operationId": "ai.embed", "ai.value": json.dumps(CHUNK)}),
                                     ("do", "root", {"ai.operationId": "ai.embed.doEmbed"})],
    "embedding that failed": [("root!", None, operation("embeddings"))],
    "our embedding decorator": [("root", None, own("embedding", CHUNK))],
    "an embedding in an embedding": [("root", None, oi("EMBEDDING", CHUNK)), EMBEDDING],
    "a splitter of LlamaIndex": [
        ("root", None, oi("CHAIN", {"documents": ["Document(id_='a')"]}, ["TextNode(id_='b')"]))],
    "an indexing chain": [
        ("root", None, oi("CHAIN", {"documents": [{"text": CHUNK}]}, {"documents_written": 1})), EMBEDDING],
    "an indexing chain that returns nothing": [("root", None, oi("CHAIN", "docs/", "None")), EMBEDDING],
    "an indexing workflow": [("root", None, workflow("docs/handbook.md", output=42)), EMBEDDING, UPSERT],
    "an indexing workflow of texts": [("root", None, workflow([CHUNK, ANSWER])), EMBEDDING],
    "an indexing pipeline of Haystack": [
        ("root", None, {"haystack.pipeline.input_data": json.dumps({"converter": {"sources": ["a.md"]}}),
                        "haystack.pipeline.output_data": json.dumps({"writer": {"documents_written": 2}})}), EMBEDDING],
    "indexing by our decorator": [("root", None, own("chain", "docs/handbook.md", "42")), EMBEDDING],
    "indexing asked for over HTTP": [("root", None, http("/ingest")), ("index", "root", workflow("docs/")),
                                     ("embed", "index", oi("EMBEDDING", CHUNK))],
    "a health probe": [("root", None, http("/healthz"))],
    "a readiness probe with a database": [("root", None, http("/readyz")), ("SELECT", "root", {"db.system": "mysql"})],
    "a probe of a vector store": [("root", None, http("/readyz")), ("collections", "root", {"db.system": "qdrant"})],
    "a decorated probe": [("root", None, workflow(output="ok"))],
    "a list of tools by MCP": [("root", None, {"mcp.method.name": "tools/list"})],
    "a list of tools by OpenInference": [("root", None, oi("TOOL", output=["search", "add"]))],
    "a list of tools as a chain": [("root", None, oi("CHAIN", output=["search", "add"]))],
    "a list of tools by Traceloop": [
        ("root", None, {"traceloop.entity.input": json.dumps({"method": "tools/list", "params": None})})],
    "a start of MCP by Traceloop": [
        ("root", None, {"traceloop.entity.input": json.dumps({"method": "initialize", "params": {"a": "b"}})})],
    "an indexer of Genkit": [("root", None, {"genkit:type": "action", "genkit:metadata:subtype": "indexer",
                                             "genkit:input": json.dumps({"documents": [{"content": CHUNK}]})})],
    "an embedding of which the model alone is known": [("root", None, {"gen_ai.request.model": "text-embedding-3"})],
    "the start of an MCP session": [("root", None, {"mcp.method.name": "initialize"})],
    "an agent that is created": [("root", None, operation("create_agent", **{"gen_ai.agent.name": "helpdesk"}))],
    "memory that is written": [("root", None, operation("create_memory"))],
    "a background job": [("root", None, {"celery.task_name": "nightly"}), ("SELECT 1", "root", {"db.system": "redis"})],
    "a guardrail alone": [("root", None, oi("GUARDRAIL", QUESTION))],
    "an evaluation": [("root", None, oi("EVALUATOR", QUESTION))],
    "an evaluation in a job": [("root", None, http("/evaluate")), ("judge", "root", oi("EVALUATOR")),
                               ("chat", "judge", operation("chat"))],
    "a span of nothing": [("root", None, {})],
}  # fmt: skip
REQUESTS: dict[str, Rows] = {
    "a rag span that failed before its question was read": [("root!", None, own("rag"))],
    "a rag span below HTTP": [("root", None, http("/ask")), ("rag", "root", own("rag"))],
    "a chat turn, content off": [("root", None, LLM[2])],
    "a chat turn with images alone": [
        ("root", None, operation("chat", **{"gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "blob", "modality": "image", "content": "aGk="}]}])}))],
    "an agent without texts": [("root", None, operation("invoke_agent"))],
    "an agent below a workflow": [
        ("root", None, operation("invoke_workflow")), ("agent", "root", operation("invoke_agent"))],
    "a search without a text": [("root", None, operation("retrieval"))],
    "a realtime session": [("root", None, operation("realtime"))],
    "HTTP with a model call": [("root", None, http("/ask")), LLM],
    "a job that asks a model": [("root", None, {"celery.task_name": "summary"}), LLM],
    "a chain with a question": [("root", None, oi("CHAIN", QUESTION, ANSWER))],
    "a chain whose answer is unread": [("root", None, workflow(QUESTION, output={"state": 3}))],
    "a question below HTTP": [("root", None, http("/ask")), ("answer", "root", workflow(QUESTION, output=ANSWER))],
    "embedded, searched and answered without a model's span": [
        ("root", None, workflow(QUESTION, output=ANSWER)), EMBEDDING, SEARCH],
    "the same below HTTP": [("root", None, http("/ask")), ("answer", "root", workflow(QUESTION, output=ANSWER)),
                            ("embed", "answer", oi("EMBEDDING", QUESTION)), ("search", "answer", SEARCH[2])],
    "a store that fails after the embedding": [("root!", None, workflow(QUESTION)), EMBEDDING, SEARCH],
    "embedded and searched, content of the answer off": [("root", None, workflow(QUESTION)), EMBEDDING, SEARCH],
    "answered with a number": [("root", None, workflow("How many?", output="42")), EMBEDDING],
    "embedded and searched": [("root", None, workflow(QUESTION)), EMBEDDING, ("r", "root", operation("retrieval"))],
    "embedded and asked": [("root", None, workflow(QUESTION)), EMBEDDING, LLM],
    "a tool that is asked": [("root", None, operation("execute_tool", **{
        "gen_ai.tool.call.arguments": json.dumps({"query": QUESTION})}))],
    "our decorator of a step with a question": [("root", None, own("other", QUESTION, ANSWER))],
    "a reranker with a question": [("root", None, oi("RERANKER", **{"reranker.query": QUESTION}))],
    "a model call whose parent is lost": [("chat", "lost", LLM[2])],
}  # fmt: skip
LATER = {
    "an evaluation in a job", "an evaluation", "a guardrail alone", "a decorated probe", "the same below HTTP",
    "a list of tools by OpenInference", "a list of tools as a chain", "a store that fails after the embedding",
    "embedded, searched and answered without a model's span", "answered with a number",
    "embedded and searched, content of the answer off",
}  # fmt: skip
"""What is known of an undecided trace is less: whether it has a text, and what kinds of spans."""


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int | None, int]]]:
    """Title → units of the undecided and of the decided trace."""
    store = EmbeddedStore(tmp_path_factory.mktemp("requests") / "t.duckdb", decode=decode, threads=1)
    traces = {title: f"{number + 1:032x}" for number, title in enumerate(OTHER_ROOTS | REQUESTS)}
    for title, rows in (OTHER_ROOTS | REQUESTS).items():
        ids = {name.rstrip("!"): f"{number + 1:016x}" for number, (name, _, _) in enumerate(rows)}
        spans = [
            {"traceId": traces[title], "spanId": ids[name.rstrip("!")], "name": name, "attributes": attributes,
             "parentSpanId": parent and ids.get(parent, "f" * 16), "status": {"code": 2 if name[-1] == "!" else 0}}
            for name, parent, attributes in rows
        ]  # fmt: skip
        body = otlp_json(*({key: value for key, value in span.items() if value is not None} for span in spans))
        store.submit(RawBody(signal="traces", content_type="application/json", body=body)).result(60)
    count = "SELECT trace_id, n_units FROM traces"
    before = dict(store.read(count).rows)
    Sampler(store, settle_s=0, quiet_s=0).decide(store.read("SELECT max(received_at) FROM spans").value)
    after = dict(store.read(count).rows)
    yield {title: (before[trace], after[trace]) for title, trace in traces.items()}
    store.close()


@pytest.mark.parametrize("title", OTHER_ROOTS)
def test_what_is_no_request_is_another_root(units: dict[str, tuple[int | None, int]], title: str) -> None:
    """It has no unit, so that nothing is evaluated, and no count has it; before its decision, too."""
    before, after = units[title]
    assert after == 0
    assert before == 0 or title in LATER


@pytest.mark.parametrize("title", REQUESTS)
def test_a_request_is_one(units: dict[str, tuple[int | None, int]], title: str) -> None:
    """By what a decorator or a convention calls it, or by its question."""
    before, after = units[title]
    assert after == 1
    assert before is None or title in LATER
