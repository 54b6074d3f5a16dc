"""The genuine metrics of other packages, run as ours: `make foreign` runs each package in an environment of its own.

Their models are asked on loopback. The file of a package defines `free`, which asks no model, and `asked`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from served import Served
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import connect
from ragpulse_evaluators import Case, Evaluator
from ragpulse_evaluators.adapters import adapt
from ragpulse_evaluators.loading import load

CASE = Case(query="What is the capital?", response="Paris", contexts=["Paris is the capital."], reference="Paris")
REPLY = {"rating": 2, "statements": ["a"], "verdicts": [{"verdict": "yes", "reason": "r"}], "reason": "r"}
"""Each package finds in it what it asks for."""
HEAD = """
import os
from ragpulse_evaluators import Scale
from ragpulse_evaluators.adapters import adapt
URL, MODEL = os.environ["MODEL_URL"], os.environ.get("MODEL_NAME", "gpt-4o-mini")
"""
FILES = {
    "ragas": """
from openai import AsyncOpenAI
from ragas.llms import llm_factory
from ragas.metrics.collections import ContextRelevance, ExactMatch
free = adapt(ExactMatch(), name="free")
asked = adapt(ContextRelevance(llm=llm_factory(MODEL, client=AsyncOpenAI(base_url=URL, api_key="x"))), name="asked")
""",
    "deepeval": """
from deepeval.metrics import AnswerRelevancyMetric, ExactMatchMetric
from deepeval.models import OpenAIModel
free = adapt(ExactMatchMetric(), name="free")
asked = adapt(AnswerRelevancyMetric(model=OpenAIModel(model=MODEL, base_url=URL, api_key="x")), name="asked")
""",
    "autoevals": """
from autoevals import Factuality, Levenshtein
free = adapt(Levenshtein(), name="free")
asked = adapt(Factuality(model=MODEL, base_url=URL, api_key="x"), name="asked")
""",
    "trulens": """
from trulens.core import Metric
from trulens.providers.openai import OpenAI
def same(response: str, ground_truth: str) -> float:
    return float(response == ground_truth)
free = adapt(Metric(implementation=same), name="free")
asked = adapt(Metric(implementation=OpenAI(model_engine=MODEL, base_url=URL, api_key="x").relevance), name="asked")
""",
    "llama_index": """
from typing import Any
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.evaluation import BaseEvaluator, CorrectnessEvaluator, EvaluationResult
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
class Exact(BaseEvaluator):
    def _get_prompts(self) -> Any:
        return {}
    def _update_prompts(self, prompts: Any) -> None:
        return None
    async def aevaluate(self, query=None, response=None, contexts=None, reference=None, **kwargs) -> Any:
        if reference is None:
            raise ValueError("reference must be provided")
        return EvaluationResult(score=float(response == reference))
class Fixed(CustomLLM):
    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=MODEL)
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="5.0\\nright")
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)
free = adapt(Exact(), name="free")
asked = adapt(CorrectnessEvaluator(llm=Fixed()), name="asked", scale=Scale(lo=1, hi=5))
""",
}
KNOWN = {
    "ragas": ({"query", "contexts"}, None),
    "deepeval": (set(), (300, 21, 0.0000576)),
    "autoevals": ({"query", "response", "reference"}, None),
    "trulens": ({"query", "response"}, None),
    "llama_index": ({"response"}, None),
}
"""Needs of `asked` that are inferred, and tokens and cost that the package tells of the calls."""


def answered(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """What an OpenAI-compatible server answers: by completions, by responses, by a call of the tool it is given."""
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": '{"score": 3}', "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        body = {"id": "r", "object": "response", "status": "completed", "output": [message], "usage": usage | details}
        return body | {"created_at": 1, "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    reply: dict[str, Any] = {"role": "assistant", "content": json.dumps(REPLY)}
    if "tools" in request:
        chosen = {"name": "select_choice", "arguments": json.dumps({"reasons": "equal", "choice": "C"})}
        reply["tool_calls"] = [{"id": "t", "type": "function", "function": chosen}]
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    choice = {"index": 0, "finish_reason": "stop", "message": reply}
    return {"id": "c", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    """Answers every question alike."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(answered(self.path, request) | {"model": request["model"]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def model_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model on loopback, which the files find in the environment."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("MODEL_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def written(folder: Path, package: str) -> Path:
    """The file of a package's metrics."""
    path = folder / f"{package}_metrics.py"
    path.write_text(HEAD + FILES[package])
    return path


def metrics(folder: Path, package: str) -> dict[str, Evaluator]:
    """The loaded metrics by name."""
    return {item.name: item for item in load(written(folder, package)) if isinstance(item, Evaluator)}


@pytest.mark.parametrize("package", FILES)
async def test_a_genuine_metric_is_one_of_ours(tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, needs, skipped cases, cost class, model, version, and what the package tells of tokens and cost."""
    needs, stated = KNOWN[package]
    found = metrics(tmp_path, package)
    free, asked = found["free"], found["asked"]
    assert (free.cost_class, free.judge_id, asked.cost_class, asked.judge_id) == (
        "free",
        None,
        "k calls",
        "gpt-4o-mini",
    )
    assert set(asked.needs) == needs
    results = [await each(CASE) for each in (free, asked, asked)]
    assert [(result.status, result.normalized) for result in results] == [("ok", 1.0)] * 3, results
    assert (await free(Case(response="Paris"))).status == "skipped"
    assert (await asked(Case())).status == "skipped"
    calls = [(call.input_tokens, call.output_tokens, call.cost_usd) for call in results[2].calls]
    assert calls == ([] if stated is None else [pytest.approx(stated)])
    assert metrics(tmp_path, package)["asked"].version == asked.version
    monkeypatch.setenv("MODEL_NAME", "gpt-4o")
    assert metrics(tmp_path, package)["asked"].version != asked.version
    assert os.environ["MODEL_URL"] not in str(asked.version_parts())


async def test_a_ragas_metric_of_the_older_classes() -> None:
    """Its required columns are its needs."""
    from ragas.metrics import ExactMatch  # type: ignore[import-not-found]

    older = adapt(ExactMatch())
    assert (set(older.needs), (await older(CASE)).score) == ({"response", "reference"}, 1.0)


async def test_what_a_trulens_endpoint_tracks_is_recorded() -> None:
    """Tokens and cost of its own endpoint for tests; its OpenAI endpoint does not track the Responses API."""
    from trulens.core import Metric  # type: ignore[import-not-found]
    from trulens.feedback.dummy.provider import DummyProvider  # type: ignore[import-not-found]

    chances = {"loading_prob": 0, "freeze_prob": 0, "error_prob": 0, "overloaded_prob": 0}
    provider = DummyProvider(**chances, rpm=10_000, alloc=10, delay=0)
    (call,) = (await adapt(Metric(implementation=provider.relevance))(CASE)).calls
    assert min(call.input_tokens or 0, call.output_tokens or 0, call.cost_usd or 0) > 0


@pytest.mark.parametrize("package", FILES)
def test_a_genuine_metric_runs_online(tmp_path: Path, package: str) -> None:
    """`ragpulse serve --load` scores a live trace; without a reference, what needs one is skipped."""
    config = tmp_path / "ragpulse.toml"
    rule = '[[rule]]\nname = "all"\nrate = 1.0\nevaluators = ["free", "asked"]\n'
    config.write_text(f"[collector]\nsettle_s = 0\n\n[evaluators]\ntime_limit_s = 90\n\n{rule}")
    with Served(tmp_path / "t.duckdb", "--config", str(config), "--load", str(written(tmp_path, package))) as served:
        client = connect(served.url)
        send(served.url, rag_trace(0))
        rows = until(client, "select evaluator, status, normalized, judge, explanation from scores", 2)
        assert served.terminate() == 0
    found = {row["evaluator"]: row for row in rows}
    scored = ("skipped", None) if "reference" in KNOWN[package][0] else ("ok", 1.0)
    assert (found["asked"]["status"], found["asked"]["normalized"], found["asked"]["judge"]) == (
        *scored,
        "gpt-4o-mini",
    ), rows
    assert (found["free"]["status"], found["free"]["judge"]) == ("skipped", None), rows
