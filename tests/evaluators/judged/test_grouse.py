"""GroUSE: grades, the chain and its order, derived metrics, replaced prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError

CASE = Case(
    query="Where is the Eiffel Tower located?",
    response="The Eiffel Tower stands in the Champs de Mars in Paris.[1]",
    reference="In the Champs de Mars in Paris. [1]",
    contexts=["The Eiffel Tower is a wrought-iron lattice tower on the Champ de Mars in Paris, France"],
)


def grade(metric: str, value: Any) -> str:
    """A reply in the seed's pair form."""
    answer = {f"{metric}_justification": f"why {metric}", metric: value}
    return json.dumps({"answer_1": {metric: 1}, "answer_2": answer})


async def chain(*grades: tuple[str, Any], repair: bool = False) -> EvaluationResult:
    """The whole chain with these grades in call order."""
    replies = [value if metric == "" else grade(metric, value) for metric, value in grades]
    return await get_evaluator("grouse", judge=ScriptedJudge(replies), repair=repair)(CASE)


async def test_a_good_answer_takes_three_calls() -> None:
    """S2's good sample: usefulness does not apply, the answer was accepted when it should be."""
    result = await chain(("answer_relevancy", 5), ("completeness", 5), ("faithfulness", 1))
    assert result.parts == {
        "answer_relevancy": 5.0,
        "completeness": 5.0,
        "faithfulness": 1.0,
        "usefulness": None,
        "positive_acceptance": 1.0,
        "negative_rejection": None,
    }
    assert (result.score, len(result.calls)) == (1.0, 3)


async def test_a_refusal_with_useful_information_takes_four_calls() -> None:
    """Answer relevancy null asks usefulness, then faithfulness; the refusal was right."""
    nothing = ("answer_relevancy", None), ("completeness", None)
    result = await chain(*nothing, ("usefulness", 1), ("faithfulness", True))
    assert (result.parts["usefulness"], result.parts["faithfulness"]) == (1.0, 1.0)
    assert (result.parts["positive_acceptance"], result.parts["negative_rejection"]) == (None, 1.0)
    assert len(result.calls) == 4


async def test_a_bare_refusal_needs_no_call_for_faithfulness() -> None:
    """Usefulness null makes faithfulness null without asking."""
    result = await chain(("answer_relevancy", None), ("completeness", 3), ("usefulness", None))
    assert result.parts["faithfulness"] is None
    assert (result.parts["positive_acceptance"], result.parts["negative_rejection"]) == (0.0, None)
    assert len(result.calls) == 3


async def test_native_grades_of_different_scales_are_not_averaged() -> None:
    """The score is the mean of normalized grades: (0.75 + 0.5 + 0 + 1) / 4."""
    result = await chain(("answer_relevancy", 4), ("completeness", 3), ("faithfulness", 0))
    assert result.score == pytest.approx((0.75 + 0.5 + 0.0 + 1.0) / 4)


async def test_an_unreadable_answer_relevancy_fails_what_depends_on_it() -> None:
    """Completeness is still there; the whole is invalid and parsing success below one."""
    result = await chain(("", "no json"), ("completeness", 4))
    assert (result.status, result.score, result.parts) == ("invalid", None, {"completeness": 4.0})


@pytest.mark.parametrize("value", [0, 6, 2.5, "x", True])
async def test_a_grade_off_its_scale_is_invalid(value: Any) -> None:
    """Likert grades are whole numbers from 1 to 5 or null."""
    judge = ScriptedJudge([grade("answer_relevancy", value)])
    result = await get_evaluator("grouse_answer_relevancy", judge=judge, repair=False)(CASE)
    assert (result.status, result.score) == ("invalid", None)


@pytest.mark.parametrize("metric", ["answer_relevancy", "completeness", "faithfulness", "usefulness"])
async def test_single_metrics_read_the_answer_under_test(metric: str) -> None:
    """Answer 2 counts, with its justification; null is ok without a score."""
    evaluator = get_evaluator(f"grouse_{metric}", judge=ScriptedJudge([grade(metric, 1), grade(metric, None)]))
    result, null = await evaluator(CASE), await evaluator(CASE)
    assert (result.score, result.explanation) == (1.0, f"why {metric}")
    assert (null.status, null.score, null.normalized, null.label) == ("ok", None, None, "null")


@pytest.mark.parametrize(
    ("relevancy", "completeness", "acceptance", "rejection"),
    [(5, 5, 1.0, None), (None, 5, 0.0, None), (5, None, None, 0.0), (None, None, None, 1.0)],
)
async def test_derived_metrics_follow_the_prose(
    relevancy: int | None, completeness: int | None, acceptance: float | None, rejection: float | None
) -> None:
    """Acceptance applies where the contexts answer, rejection where they do not."""
    replies = [grade("answer_relevancy", relevancy), grade("completeness", completeness)]
    accepted = await get_evaluator("grouse_positive_acceptance", judge=ScriptedJudge(replies))(CASE)
    rejected = await get_evaluator("grouse_negative_rejection", judge=ScriptedJudge(replies))(CASE)
    assert (accepted.score, rejected.score) == (acceptance, rejection)


async def test_prompts_are_replaced_from_a_folder(tmp_path: Path) -> None:
    """A file with the seed's variables replaces one metric's prompt and breaks its version."""
    text = (
        "List:\n{%- for context in contexts %}\n{{ loop.index }}: {{ context }}\n{%- endfor %}\n"
        "{{ input }} | {{ expected_output }} | {{ actual_output }}"
    )
    (tmp_path / "completeness.txt.jinja").write_text(text, encoding="utf-8")
    judge = ScriptedJudge([grade("completeness", 2)])
    replaced = get_evaluator("grouse_completeness", judge=judge, prompts=tmp_path)
    assert (await replaced(CASE)).score == 2.0
    assert judge.asked[0] == f"List:\n1: {CASE.texts[0]}\n{CASE.query} | {CASE.reference} | {CASE.response}"
    assert replaced.version != get_evaluator("grouse_completeness").version


async def test_a_broken_prompt_folder_is_a_configuration_error(tmp_path: Path) -> None:
    """A folder that is not there and a template that cannot be read are named at once."""
    with pytest.raises(ConfigurationError, match="no folder"):
        get_evaluator("grouse", prompts=tmp_path / "absent")
    (tmp_path / "en.jinja").write_text("{% block faithfulness %}{% endblock %}", encoding="utf-8")
    partial = await get_evaluator("grouse_completeness", judge=ScriptedJudge([]), prompts=tmp_path)(CASE)
    assert "no step 'completeness': add {% block completeness %}" in (partial.explanation or "")
    (tmp_path / "en.jinja").unlink()
    (tmp_path / "completeness.txt.jinja").write_text("{% if %}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="grouse"):
        get_evaluator("grouse", prompts=tmp_path)
