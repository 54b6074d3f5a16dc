"""RAGAS' answer metrics and PolyEval's similarity: formulas on scripted verdicts."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.answer import f_beta

CASE = Case(
    query="When was Apple founded?",
    response="Apple was founded in 1976. It sells phones.",
    contexts=["Apple is founded in 1976.", "Google is founded in 1998. Bread is baked.", "Apples are fruit."],
    reference="Apple was founded in 1976 by Steve Jobs.",
)


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


class Vectors:
    """An embedder with given vectors."""

    id = "vectors"

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self._vectors = vectors

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Look each text up."""
        return [self._vectors[text] for text in texts]


STATEMENTS = '{"statements": ["Apple was founded in 1976.", "Apple sells phones.", "Apple is big."]}'


def verdicts(*values: int) -> str:
    """A structured reply with these verdicts."""
    found = [{"number": i, "statement": "s", "reason": "r", "verdict": v} for i, v in enumerate(values, start=1)]
    return json.dumps({"statements": found})


async def test_answer_correctness_in_seed_form_weighs_facts_and_similarity() -> None:
    """0.4 times supported statements plus 0.6 times similarity, as in S0's example."""
    similarity = 0.5
    result = await judged(
        "answer_correctness", STATEMENTS, verdicts(1, 0, 1), similarity=lambda response, reference: similarity
    )
    assert result.score == pytest.approx(0.4 * 2 / 3 + 0.6 * 0.5)
    assert result.parts == {"facts": pytest.approx(2 / 3), "similarity": 0.5}


async def test_answer_correctness_asks_the_judge_for_similarity_without_an_embedder() -> None:
    """The third call compares the texts."""
    result = await judged("answer_correctness", STATEMENTS, verdicts(1, 1, 1), "Final answer: [0.8]")
    assert result.score == pytest.approx(0.4 + 0.6 * 0.8)


async def test_answer_correctness_as_f_beta() -> None:
    """TP 1, FP 1, FN 1 is F1 = 0.5; similarity by embeddings."""
    theirs = '{"statements": ["Apple was founded in 1976.", "Jobs founded it."]}'
    ours = '{"statements": ["Apple was founded in 1976.", "Apple sells phones."]}'
    classes = '{"TP": ["Apple was founded in 1976."], "FP": ["Apple sells phones."], "FN": ["Jobs founded it."]}'
    vectors = Vectors({str(CASE.response): [1.0, 0.0], str(CASE.reference): [1.0, 1.0]})
    result = await judged("answer_correctness", ours, theirs, classes, mode="fbeta", embedder=vectors)
    assert result.score == pytest.approx(0.75 * 0.5 + 0.25 * 2**-0.5)


async def test_classes_that_lose_a_statement_are_invalid() -> None:
    """Every statement of the response must be classified."""
    lost = '{"TP": [], "FP": [], "FN": []}'
    result = await judged("answer_correctness", STATEMENTS, STATEMENTS, lost, lost, mode="fbeta", weights=(1, 0))
    assert result.status == "invalid"


@pytest.mark.parametrize(
    ("counts", "beta", "score"), [((1, 1, 1), 1, 0.5), ((0, 0, 0), 1, 1.0), ((2, 0, 2), 2, 10 / 18)]
)
def test_f_beta_by_hand(counts: tuple[int, int, int], beta: float, score: float) -> None:
    """F-beta of counts worked out by hand; nothing at all is 1.0."""
    assert f_beta(*counts, beta) == pytest.approx(score)


@pytest.mark.parametrize("wrong", [{"mode": "x"}, {"weights": (1,)}, {"weights": (0, 0)}, {"weights": (-1, 2)}])
def test_wrong_weights_and_modes_are_refused(wrong: dict[str, Any]) -> None:
    """Weights that cannot weigh raise when the evaluator is made."""
    with pytest.raises(ConfigurationError):
        get_evaluator("answer_correctness", **wrong)


def question(text: str, noncommittal: int = 0) -> str:
    """A generated question."""
    return json.dumps({"question": text, "noncommittal": noncommittal})


async def test_answer_relevancy_averages_cosines_of_made_up_questions() -> None:
    """Three questions with cosines 1, 0, -1 average to 0; the normalized score is cut at 0."""
    vectors = Vectors({str(CASE.query): [1.0, 0.0], "a": [2.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0]})
    replies = [question("a"), question("b"), question("c")]
    result = await judged("answer_relevancy", *replies, embedder=vectors)
    assert (result.score, result.normalized) == (0.0, 0.0)
    negative = await judged("answer_relevancy", question("c"), embedder=vectors, n=1)
    assert (negative.score, negative.normalized) == (-1.0, 0.0)


async def test_answer_relevancy_without_embedder_asks_the_judge() -> None:
    """PolyEval's form: one question, one comparison."""
    result = await judged("answer_relevancy", question("When was Apple founded?"), "Final answer: [0.9]")
    assert (result.score, len(result.calls)) == (0.9, 2)


async def test_a_noncommittal_response_is_not_relevant() -> None:
    """When every question is marked noncommittal the score is 0."""
    assert (await judged("answer_relevancy", question("?", 1))).score == 0.0


async def test_a_vector_of_zeros_is_invalid() -> None:
    """A cosine without direction is no 0.0."""
    vectors = Vectors({str(CASE.query): [0.0, 0.0], "a": [1.0, 0.0]})
    assert (await judged("answer_relevancy", question("a"), embedder=vectors, n=1)).status == "invalid"


@pytest.mark.parametrize(
    ("reply", "language", "score"),
    [
        ("Final answer: [0.7]", "en", 0.7),
        ("理由。\n最终答案: [0.4]", "zh", 0.4),
        ("最终答案：[0.4]", "zh", 0.4),
        ("Motivo.\nResposta final: 1.0", "pt", 1.0),
        ('{"reason": "", "score": 0.25}', "en", 0.25),
    ],
)
async def test_llm_similarity_reads_the_final_answer_in_each_language(reply: str, language: str, score: float) -> None:
    """Half- and full-width colons, brackets and JSON are all read."""
    assert (await judged("llm_similarity", reply, language=language)).score == score


async def test_the_closest_of_several_references_counts() -> None:
    """Two references are two calls; permuting them changes nothing."""
    case = Case(response="r", reference=["a", "b"])
    result = await judged("llm_similarity", '{"score": 0.2}', '{"score": 0.9}', case=case)
    assert (result.score, len(result.calls)) == (0.9, 2)
