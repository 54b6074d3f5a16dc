"""Results: aliases of the seeds, and no number that is none."""

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import pytest
from pydantic import BaseModel

from ragpulse_evaluators import Case, Context, EvaluationResult, JudgeCall, evaluator


def test_seed_names_read_the_same_fields() -> None:
    """feedback, reasoning, grade, pass_eval, responses, unit and the case's fields are read-only aliases."""
    call = JudgeCall(prompt="p", completion="c", elapsed_s=0.5)
    case = Case(query="q", response="r", contexts=["c"])
    result = EvaluationResult(
        explanation="why", label="B", passing=True, calls=(call,), normalized=0.5, case=case, score=1.0
    )
    assert (result.feedback, result.reasoning, result.grade) == ("why", "why", "B")
    assert (result.pass_eval, result.responses, result.unit) == (True, (call,), 0.5)
    assert (result.query, result.response, result.contexts) == ("q", "r", case.contexts)
    assert result.responses[0].elapsed_time == 0.5


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_makes_the_result_invalid(number: float) -> None:
    """NaN and infinities never reach storage, whoever made the result."""
    for result in (EvaluationResult(score=number), EvaluationResult(score=1.0, normalized=number)):
        assert (result.status, result.score, result.normalized) == ("invalid", None, None)


def test_the_case_stays_out_of_the_serialised_result() -> None:
    """A stored result does not repeat the texts of its case."""
    assert "case" not in EvaluationResult(case=Case(query="q")).model_dump()


@pytest.mark.parametrize(("costs", "total"), [([], 0.0), ([0.5, 0.25], 0.75), ([0.5, None], None)])
def test_a_results_cost_is_the_sum_of_its_calls_and_unknown_where_one_is(
    costs: list[float | None], total: float | None
) -> None:
    """The ledger, the score's row and a client's budget read it here."""
    assert EvaluationResult(calls=tuple(JudgeCall(cost_usd=cost) for cost in costs)).cost_usd == total


@dataclass
class Verdict:
    """A user's own result."""

    score: Any
    reason: str | None = None


class Model(BaseModel):
    """A user's own result, of pydantic."""

    passed: bool
    feedback: str


class Pair(NamedTuple):
    """A user's own result, as a tuple with names."""

    score: float
    comment: str


LONE = "a\ud800b"
RETURNED: dict[str, tuple[Any, dict[str, Any]]] = {
    "numpy's false": (numpy.bool_(False), {"score": 0.0, "passing": False}),
    "numpy's number": (numpy.float32(0.5), {"score": 0.5, "passing": None}),
    "numpy's text": (numpy.str_("good"), {"label": "good"}),
    "an array of one": (numpy.array([0.5]), {"score": 0.5}),
    "a number and why": ((0.4, "why"), {"score": 0.4, "explanation": "why"}),
    "a verdict and why": ((numpy.bool_(True), "why"), {"score": 1.0, "passing": True, "explanation": "why"}),
    "a label and why": (("good", "why"), {"label": "good", "explanation": "why"}),
    "a number and nothing": ((0.4, None), {"score": 0.4, "explanation": None}),
    "a dataclass": (Verdict(0.4, "why"), {"score": 0.4, "explanation": "why"}),
    "a dataclass of numpy's": (Verdict(numpy.bool_(False)), {"score": 0.0, "passing": False}),
    "a model": (Model(passed=False, feedback="why"), {"score": 0.0, "passing": False, "explanation": "why"}),
    "a named tuple": (Pair(0.4, "why"), {"score": 0.4, "explanation": "why"}),
    "a mapping": ({"score": numpy.float64(0.4), "reason": "why"}, {"score": 0.4, "explanation": "why"}),
    "both": ({"label": "good", "passing": True}, {"label": "good", "passing": True, "score": None}),
    "an array": (numpy.array([0.5, 1.0]), {"status": "invalid"}),
    "a triple": ((1, 2, 3), {"status": "invalid"}),
    "a list": ([0.5], {"status": "invalid"}),
    "an object": (object(), {"status": "invalid"}),
    "nothing": (None, {"status": "skipped", "missing": False}),
    "a lone surrogate": ((1.0, LONE), {"explanation": "a\ufffdb"}),
    "lone surrogates in parts": (
        {"score": 1.0, "label": LONE, "parts": {LONE: [LONE, {"x": (LONE,)}]}},
        {"label": "a\ufffdb", "parts": {"a\ufffdb": ["a\ufffdb", {"x": ("a\ufffdb",)}]}},
    ),
}


@pytest.mark.parametrize("name", RETURNED)
async def test_what_a_users_function_returns_is_read(name: str) -> None:
    """Scalars of numpy, tuples, dataclasses, models; what cannot be read is invalid, and everything can be stored."""
    value, expected = RETURNED[name]
    result = await evaluator(lambda response: value, name="own")(Case(response="x"))
    assert {key: getattr(result, key) for key in expected} == expected
    assert result.status in ("ok", "invalid", "skipped")
    assert json.loads(result.model_dump_json())


def test_no_text_of_a_case_or_call_has_a_lone_surrogate() -> None:
    """In any field: they can be stored, sent and written."""
    case = Case.model_validate(
        {
            "question": LONE, "answer": LONE, "reference": [LONE], "retrieved_ids": [LONE], "relevant_ids": {LONE: 1},
            "contexts": [{"text": LONE, "id": LONE, "m": {LONE: [LONE]}}, Context(LONE, LONE, metadata={"x": LONE})],
            "history": [(LONE, LONE)], "metadata": {LONE: {LONE: LONE}}, "trace_id": LONE,
        }
    )  # fmt: skip
    call = JudgeCall(prompt=LONE, completion=LONE, problem=LONE, logprobs={LONE: -1.0}, sampling={"stop": [LONE]})
    result = EvaluationResult(label=LONE, explanation=LONE, error=LONE, parts={LONE: LONE}, calls=(call,))
    settled = evaluator(lambda response: result, name="own").at_once(case)
    for kept in (case, call, settled):
        assert "\ufffd" in kept.model_dump_json()
