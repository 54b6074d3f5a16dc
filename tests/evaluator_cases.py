"""One full case and a judge whose replies every evaluator can read, for tests over all registered evaluators."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from local_models import tagger
from pydantic import BaseModel

from ragpulse_evaluators import Case, Evaluator, JudgeCall, default_registry

NEEDED: dict[str, dict[str, Any]] = {
    "composite": {"weights": {"exact_match": 0.7, "faithfulness": 0.3}},
    "regex": {"pattern": r"\w+"},
    "json_schema": {"schema": {"type": "object"}},
    "geval": {"n": 2},
}
_FOLDER = tempfile.TemporaryDirectory(prefix="ragpulse-model-")
NEEDED["groundedness_model"] = {"model": str(tagger(Path(_FOLDER.name)))}
JUDGED = [e.name for e in default_registry().entries if e.cost_class in ("1 call", "k calls")]
FULL = Case(
    query="When does the library open?",
    response="It opens at nine [1].",
    second_response="At eight.",
    contexts=["The library opens at nine.", "Cats sleep."],
    reference="It opens at nine.",
    retrieved_ids=["a", "b"],
    relevant_ids=["a"],
    latency_s=1.2,
    input_tokens=10,
    output_tokens=5,
    cost_usd=0.001,
    trace_id="00" * 16,
    history=[("Is there a library?", "Yes, at the station.")],
    metadata={"logprobs": [-0.1, -0.2], "start_time": 1.0},
)
REPLIES = {
    "Verdict": '{"reason": "r", "verdict": true}',
    "Mark": '{"reason": "r", "score": 4}',
    "Choice": '{"reason": "r", "winner": "1"}',
    "Attributions": '{"classifications": [{"statement": "s", "reason": "r", "attributed": 1}]}',
    "Relevant": '{"reason": "r", "relevant": []}',
    "Rating": '{"reason": "r", "rating": 1}',
    "Statements": '{"statements": ["s"]}',
    "CheckedStatements": '{"statements": [{"statement": "s", "number": 1, "reason": "r", "verdict": 1}]}',
    "TurnVerdicts": '{"turns": [{"turn": 1, "verdict": "YES"}, {"turn": 2, "verdict": "NO"}]}',
    "Share": '{"reason": "r", "score": 0.5}',
    "Question": '{"question": "q", "noncommittal": 0}',
    "Judged": '{"reason": "r", "score": true}',
}
GROUSE = json.dumps({"answer_2": {"answer_relevancy": 4, "completeness": 4, "faithfulness": 1, "usefulness": 1}})


class ReadableJudge:
    """Answers every prompt in a readable form."""

    id = "readable"

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = GROUSE if name.startswith("grouse") else "C" if name == "custom_yaml" else "1"

    async def ask(
        self,
        messages: Sequence[Any],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Reply by the schema if there is one."""
        reply = REPLIES.get(schema.model_json_schema()["title"], self._plain) if schema else self._plain
        return [JudgeCall(prompt=messages[-1]["content"], completion=reply, model=self.id)] * n


class Letters:
    """An embedder that counts letters: every text of every script has a vector that is not zero."""

    id = "letters"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Sixteen buckets of code points."""
        return [[1.0 + sum(ord(c) % 16 == i for c in text) for i in range(16)] for text in texts]


def made(name: str, judge: Any = None, **params: Any) -> Evaluator:
    """Return the evaluator with its required parameters."""
    params = NEEDED.get(name, {}) | params
    return default_registry().get(name, judge=judge or ReadableJudge(name), embedder=Letters(), **params)
