"""Evaluators of other packages by their shape; `make foreign` runs the genuine packages."""

from types import SimpleNamespace
from typing import Any

import pytest

from ragpulse_evaluators import Case, Scale, evaluate
from ragpulse_evaluators.adapters import adapt
from ragpulse_evaluators.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("default")  # deprecations inside other packages are not ours to fix
CASE = Case(query="q", response="Paris", contexts=["Paris is in France."], reference="Paris")


class Aevaluate:
    """An evaluator with LlamaIndex's method."""

    def __init__(self, **result: Any) -> None:
        self._result = result
        self.seen: dict[str, Any] = {}

    async def aevaluate(self, **fields: Any) -> SimpleNamespace:
        """Keep what came, give what was prepared."""
        self.seen = fields
        return SimpleNamespace(**{"score": 1.0, "passing": True, "feedback": "ok"} | self._result)


async def test_an_object_with_aevaluate_runs_under_the_contract() -> None:
    """Strings go in; score, passing and feedback come out with our name, status and version."""
    target = Aevaluate()
    result = await adapt(target, name="theirs")(CASE)
    assert (result.status, result.score, result.passing, result.feedback) == ("ok", 1.0, True, "ok")
    assert target.seen["contexts"] == ["Paris is in France."]
    assert adapt(target).version == adapt(Aevaluate()).version


async def test_their_invalid_and_off_scale_results_are_invalid() -> None:
    """What they mark as invalid, and a score beyond the declared scale, is no score."""
    marked = adapt(Aevaluate(invalid_result=True, invalid_reason="unreadable"))
    assert (await marked(CASE)).explanation == "unreadable"
    assert (await adapt(Aevaluate(score=6.0), scale=Scale(lo=1, hi=5))(CASE)).status == "invalid"


async def test_adapted_evaluators_run_beside_ours_and_unknown_ones_are_refused() -> None:
    """They need no judge of ours; an object that is no evaluator is named."""
    found = await evaluate([CASE], [adapt(Aevaluate(), name="theirs"), "exact_match"])
    assert [results[0].score for results in found.values()] == [1.0, 1.0]
    with pytest.raises(ConfigurationError, match="SimpleNamespace is not a metric"):
        adapt(SimpleNamespace())


async def test_llama_index() -> None:
    """A real LlamaIndex evaluator that needs no model."""
    base = pytest.importorskip("llama_index.core.evaluation", reason="llama-index-core is not installed")

    class Exact(base.BaseEvaluator):  # type: ignore[misc, name-defined]
        def _get_prompts(self) -> dict[str, Any]:
            return {}

        def _update_prompts(self, prompts: Any) -> None:
            return None

        async def aevaluate(self, query: Any = None, response: Any = None, contexts: Any = None, **kwargs: Any) -> Any:
            return base.EvaluationResult(score=float(response == kwargs["reference"]), passing=True, feedback="f")

    result = await adapt(Exact())(CASE)
    assert (result.score, result.feedback) == (1.0, "f")
