"""AdalFlow's judge and the rubric family."""

from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator

CASE = Case(query="Is Beijing in China?", response="Yes", reference="Yes")


async def judged(name: str, *replies: Any, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


async def test_the_judge_gives_mean_list_and_interval_over_samples() -> None:
    """S1's example: judgements 1, 1, 0 average to 2/3 with interval (0.0133, 1)."""
    result = await judged("judge", "True", "True", "False", n=3)
    assert result.score == pytest.approx(2 / 3)
    assert result.parts["scores"] == [1.0, 1.0, 0.0]
    assert result.ci95 == pytest.approx((0.013333333333333197, 1.0), abs=1e-12)


async def test_one_judgement_has_the_whole_range_as_interval() -> None:
    """S1's second example: one judgement of 1 has the interval (0, 1)."""
    result = await judged("judge", "True", case=Case(response="Yes", reference="Yes"))
    assert (result.score, result.ci95, result.passing) == (1.0, (0.0, 1.0), True)


@pytest.mark.parametrize(
    ("reply", "score"),
    [("False, not True", 0.0), ("0.7", 0.7), ('{"reason": "", "score": true}', 1.0), ("true", 1.0)],
)
async def test_the_judge_reads_bools_and_numbers(reply: str, score: float) -> None:
    """True and False by token, or a number in 0..1."""
    assert (await judged("judge", reply)).score == score


async def test_the_judge_has_three_modes_and_skips_without_query_and_reference() -> None:
    """Only the given fields are shown; with neither query nor reference there is nothing to judge by."""
    for case, shown in ((CASE, 2), (Case(response="r", reference="g"), 1), (Case(response="r", query="q"), 1)):
        result = await judged("judge", "True", case=case)
        assert sum(f"<{field} " in result.calls[0].prompt for field in ("ground_truth", "question")) == shown
    assert (await judged("judge", case=Case(response="r"))).explanation == "missing: query, reference"


async def test_question_task_and_examples_shape_prompt_and_version() -> None:
    """What alignment trains is in the prompt and breaks the series."""
    plain = get_evaluator("judge", judge=ScriptedJudge(["True"]), question="Is it polite?")
    trained = plain.trained(examples=[{"response": "Go away", "score": 0}], task="Be strict.")  # type: ignore[attr-defined]
    prompt = (await trained(CASE)).calls[0].prompt
    assert prompt.index("Is it polite?") < prompt.index("Be strict.") < prompt.index("[user]")
    assert "response: Go away\nscore: 0" in prompt
    assert "Is it polite?" in prompt
    assert trained.version != plain.version


async def test_a_rubric_reads_score_and_comment() -> None:
    """S3's reply, misspelt key included: 0.2 with a comment."""
    reply = '{"key": "relevance", "score": 0.2, "coment": "Fala sobre Java."}'
    result = await judged("rubric", reply, criterion="Relevância", language="pt")
    assert (result.score, result.explanation, result.passing) == (0.2, "Fala sobre Java.", False)


@pytest.mark.parametrize("name", ["harmfulness", "bias", "toxicity"])
async def test_harm_is_reversed(name: str) -> None:
    """A harmless response (0) is normalized 1 and passes; a harmful one is not."""
    harmless, harmful = await judged(name, '{"score": 0}'), await judged(name, "Yes.")
    assert (harmless.score, harmless.normalized, harmless.passing) == (0.0, 1.0, True)
    assert (harmful.score, harmful.normalized, harmful.passing) == (1.0, 0.0, False)


async def test_prometheus_marks_from_one_to_five() -> None:
    """Feedback and [RESULT] of a fine-tuned judge on its own scale."""
    result = await judged("rubric", "Feedback: well argued. [RESULT] 4", span=(1, 5))
    assert (result.score, result.normalized) == (4.0, 0.75)
    assert (await judged("rubric", *["Feedback: [RESULT] 7"] * 2, span=(1, 5))).status == "invalid"
