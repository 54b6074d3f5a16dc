"""RAGAS' context metrics and AdalFlow's retriever relevance: formulas on scripted verdicts."""

import json
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.judged.retrieval import average_precision

CASE = Case(
    query="When was Apple founded?",
    response="Apple was founded in 1976. It sells phones.",
    contexts=["Apple is founded in 1976.", "Google is founded in 1998. Bread is baked.", "Apples are fruit."],
    reference="Apple was founded in 1976 by Steve Jobs.",
)


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


@pytest.mark.parametrize(
    ("verdicts", "score"),
    [([1, 1, 1], 1.0), ([0, 0, 1], 1 / 3), ([1, 0, 1], (1 + 2 / 3) / 2), ([0, 0, 0], 0.0), ([0, 1, 0], 0.5)],
)
async def test_context_precision_is_average_precision(verdicts: list[int], score: float) -> None:
    """Relevant contexts ranked first score higher; none relevant is 0, without an added epsilon."""
    result = await judged("context_precision", *(json.dumps({"reason": "", "verdict": v}) for v in verdicts))
    assert result.score == pytest.approx(score, abs=1e-15)
    assert result.parts["verdicts"] == [bool(v) for v in verdicts]


def test_an_irrelevant_context_behind_changes_nothing() -> None:
    """Adding an irrelevant context at the end leaves the precision of those before it."""
    assert average_precision([True, False, True]) == average_precision([True, False, True, False])


async def test_retriever_relevance_is_the_share_of_relevant_contexts() -> None:
    """Two of three verdicts are yes."""
    result = await judged("retriever_relevance", "YES", "NO", "YES")
    assert result.score == pytest.approx(2 / 3)


async def test_context_recall_is_the_attributed_share() -> None:
    """One of two statements of the reference is in the contexts."""
    found = [{"statement": "1976", "reason": "", "attributed": 1}, {"statement": "Jobs", "reason": "", "attributed": 0}]
    result = await judged("context_recall", json.dumps({"classifications": found}))
    assert (result.score, result.explanation) == (0.5, "not attributed: Jobs")


async def test_context_recall_without_statements_is_skipped() -> None:
    """Where RAGAS gives NaN there is no score, and a reference such as "unknown" is no missing verdict."""
    result = await judged("context_recall", '{"classifications": []}')
    assert (result.status, result.score) == ("skipped", None)


async def test_context_relevancy_counts_sentences() -> None:
    """One relevant of four sentences; a repeated number counts once."""
    result = await judged("context_relevancy", '{"relevant": [1, 1]}')
    assert (result.score, result.parts["sentences"]) == (0.25, 4)
    assert (await judged("context_relevancy", '{"relevant": []}')).score == 0.0
    assert (await judged("context_relevancy", '{"relevant": ["Bread is baked."]}')).score == 0.25


async def test_a_sentence_that_was_not_shown_is_invalid() -> None:
    """A number beyond the list, or a sentence of the judge's own, cannot be counted."""
    assert (await judged("context_relevancy", '{"relevant": [9]}', '{"relevant": [9]}')).status == "invalid"
    assert (await judged("context_relevancy", *['{"relevant": ["New."]}'] * 2)).status == "invalid"


@pytest.mark.parametrize(("ratings", "score"), [((2, 2), 1.0), ((1, 2), 0.75), ((0, 0), 0.0)])
async def test_dual_context_relevancy_averages_two_judges(ratings: tuple[int, int], score: float) -> None:
    """Two ratings of 0, 1, 2; their mean over 2."""
    result = await judged("context_relevancy", *(f'{{"rating": {r}}}' for r in ratings), mode="dual")
    assert (result.score, len(result.calls)) == (score, 2)


def verdicts(*values: int) -> str:
    """A structured reply with these verdicts."""
    return json.dumps({"statements": [{"statement": "s", "reason": "r", "verdict": v} for v in values]})


@pytest.mark.parametrize(("relevant", "score"), [("none", 0.0), (None, 0.0), (1, 0.25), ("1", 0.25), ([], 0.0)])
async def test_no_relevant_sentence_is_a_score(relevant: Any, score: float) -> None:
    """ "none" is a verdict on the contexts; it does not mean that there is nothing to judge."""
    result = await judged("context_relevancy", json.dumps({"reason": "", "relevant": relevant}))
    assert (result.status, result.score) == ("ok", score)
