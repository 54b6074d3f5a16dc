"""AdalFlow's judge, G-Eval, the rubric family and custom YAML evaluators."""

import math
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.geval import expected_mark

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
    assert prompt.startswith("Be strict.")
    assert "response: Go away\nscore: 0" in prompt
    assert "Is it polite?" in prompt
    assert trained.version != plain.version


SUMMARY = Case(contexts=["A long source."], response="A summary.")


async def test_geval_gives_ratios_by_dimension_and_their_mean() -> None:
    """S1's example: marks 2/5, 1/3, 1/5, 2/5 give an overall of 0.3333."""
    result = await judged("geval", "2", "1", "1", "2", case=SUMMARY, n=1)
    expected = {"Relevance": 0.4, "Fluency": 1 / 3, "Consistency": 0.2, "Coherence": 0.4, "overall": 1 / 3}
    assert {key: result.parts[key] for key in expected} == pytest.approx(expected)
    assert result.score == pytest.approx(1 / 3)


async def test_geval_averages_its_samples_and_drops_unreadable_ones() -> None:
    """Two of three samples of one dimension count; native mark and ratio are both kept."""
    result = await judged("geval", "4", "Consistency: 5", "n/a", case=SUMMARY, dimension="consistency", n=3)
    assert (result.score, result.normalized) == (4.5, 0.9)
    assert result.parts["n_valid"] == {"Consistency": 2}


async def test_a_dimension_without_a_readable_sample_spoils_only_itself() -> None:
    """Fluency "n/a" is None; the others are averaged."""
    result = await judged("geval", "2", "n/a", "1", "2", case=SUMMARY, n=1)
    assert result.parts["Fluency"] is None
    assert result.score == pytest.approx((0.4 + 0.2 + 0.4) / 3)
    assert (await judged("geval", *["n/a"] * 4, case=SUMMARY, n=1)).status == "invalid"


async def test_geval_weighs_log_probabilities() -> None:
    """Candidates 4 (0.75) and 5 (0.25) give 4.25; words and marks out of range are left out."""
    logprobs = {"4": math.log(0.6), "5": math.log(0.2), "The": math.log(0.1), "9": math.log(0.1)}
    reply = {"completion": "4", "logprobs": logprobs}
    result = await judged("geval", reply, case=SUMMARY, dimension="Relevance", use_logprobs=True)
    assert result.score == pytest.approx(4.25)
    assert expected_mark({"1": 0.0, " 1": 0.0}, 1, 5) == 1.0


async def test_geval_marks_chat_replies() -> None:
    """The chatbot task has its own four dimensions; groundedness is 0 or 1."""
    case = Case(query="Hi!", response="Hello.", contexts=["Hello is a greeting."])
    result = await judged("geval", "3", "3", "2", "0", case=case, task="chatbot", n=1)
    assert result.parts["Groundedness"] == 0.0
    assert result.score == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)


def test_geval_refuses_unknown_tasks_and_dimensions() -> None:
    """The message lists what there is."""
    with pytest.raises(ConfigurationError, match="summarization, chatbot"):
        get_evaluator("geval", task="poetry")
    with pytest.raises(ConfigurationError, match="fluency"):
        get_evaluator("geval", dimension="beauty")


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


S4: dict[str, Any] = {
    "prompt": "[Question]: {input}\n[Expert]: {ideal}\n[Submission]: {completion}\nCompare.",
    "eval_type": "cot_classify",
    "choice_strings": "ABCDE",
    "choice_scores": {"A": 0.8, "B": 0.8, "C": 0.8, "D": 0.0, "E": 0.5},
    "threshold": 0.5,
    "reverse_score": 0,
    "answer_prompt": "",
}


@pytest.mark.parametrize(
    ("reply", "grade", "score", "passing"),
    [
        ("It is a superset.\n(B)", "B", 0.8, True),
        ("They disagree.\nThe answer is D", "D", 0.0, False),
        ("**E**.", "E", 0.5, True),
        ("A) first\nIt could be A, but no.\nC", "C", 0.8, True),
    ],
)
async def test_a_yaml_evaluator_maps_choices_to_scores(reply: str, grade: str, score: float, passing: bool) -> None:
    """S4's example file: the last line that names a choice decides; the threshold is inclusive."""
    result = await judged("custom_yaml", reply, spec=S4)
    assert (result.grade, result.score, result.pass_eval) == (grade, score, passing)


@pytest.mark.parametrize("reply", ["Because it disagrees", "A good answer", "Between A and", "", "F"])
async def test_a_choice_inside_words_is_invalid(reply: str) -> None:
    """A letter within a word or an article is no choice; the score is null, not False."""
    result = await judged("custom_yaml", reply, reply, spec=S4)
    assert (result.status, result.score, result.label) == ("invalid", None, None)


async def test_classify_reads_from_the_first_line() -> None:
    """Choice first, reasoning after it."""
    spec = S4 | {"eval_type": "classify_cot"}
    assert (await judged("custom_yaml", "A\nunlike choice B", spec=spec)).grade == "A"


async def test_a_threshold_of_zero_works_and_reverse_turns_the_scale() -> None:
    """Threshold 0 passes a score of 0; reverse passes at or below it and normalizes to 1 - score."""
    assert (await judged("custom_yaml", "D", spec=S4 | {"threshold": 0})).passing is True
    turned = await judged("custom_yaml", "A", spec=S4 | {"reverse_score": 1})
    assert turned.passing is False
    assert turned.normalized == pytest.approx(0.2)


async def test_braces_in_data_stay_and_numbers_are_read_without_choices() -> None:
    """An answer with a placeholder in it is data; the last number of the last line is the score."""
    case = Case(query="q", response="{ideal} {0} {{x}}", reference="secret")
    spec = {"prompt": "Mark 0 to 10: {completion}", "scale": (0, 10), "threshold": 7}
    result = await judged("custom_yaml", "3 points\nSo 8", case=case, spec=spec)
    assert (result.score, result.normalized, result.passing) == (8.0, 0.8, True)
    assert "{ideal} {0} {{x}}" in result.calls[0].prompt
    assert "secret" not in result.calls[0].prompt


async def test_enumerated_choices_and_scores_from_strings() -> None:
    """from_n with scores from_strings: choice "2" scores 2."""
    spec = {"prompt": "{completion}", "choice_strings": "from_n", "n": 3, "choice_scores": "from_strings"}
    assert (await judged("custom_yaml", "I choose 2", spec=spec)).score == 2.0
    letters = {"prompt": "{completion}", "choice_strings": "from_n_abc", "n": 2}
    result = await judged("custom_yaml", "b", spec=letters)
    assert (result.label, result.score, result.status) == ("b", None, "ok")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"promt": "x"}, "promt"),
        ({"eval_type": "guess"}, "eval_type"),
        ({"choice_scores": {"A": 1}}, "choice_scores"),
        ({"prompt": ""}, "prompt"),
    ],
)
def test_a_wrong_specification_names_its_key(change: dict[str, Any], match: str) -> None:
    """Unknown keys and values are refused when the file is read."""
    with pytest.raises(ConfigurationError, match=match):
        get_evaluator("custom_yaml", spec=S4 | change)


async def test_a_specification_can_be_a_file_and_the_closing_is_in_the_language(tmp_path: Path) -> None:
    """A path is read as YAML; the instruction on how to answer follows the language."""
    path = tmp_path / "tone.yaml"
    path.write_text("prompt: '{completion}'\nchoice_strings: [polite, rude]\n", encoding="utf-8")
    result = await judged("custom_yaml", "polite", spec=path, language="zh")
    assert result.label == "polite"
    assert "最后一行" in result.calls[0].prompt
