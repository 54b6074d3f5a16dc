"""Judges judged: calibration, unit tests, alignment and biases, with judges whose faults are known."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import scipy.stats
import sklearn.metrics
from pydantic import BaseModel

from ragpulse_evaluators import Case, EvaluationResult, JudgeCall, ScriptedJudge, evaluator, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judges.protocol import Message, transcript
from ragpulse_evaluators.meta import (
    FAILURE_MODES,
    UnitTest,
    align,
    builtin_tests,
    calibrate,
    length_bias,
    meta_evaluate,
    position_bias,
    read_tests,
    satisfies,
    self_consistency,
)

METRICS = ("answer_relevancy", "completeness", "faithfulness", "usefulness")


class Replying:
    """A judge that makes its reply from the prompt."""

    def __init__(self, reply: Callable[[str], str]) -> None:
        self.id = "replying"
        self._reply = reply

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        del schema, logprobs
        prompt = transcript(messages)
        return [JudgeCall(prompt=prompt, completion=self._reply(prompt), model=self.id)] * n


def pair_reply(metric: str, grade: float | None) -> str:
    """GroUSE's pair form."""
    answer = {f"{metric}_justification": "seen", metric: grade}
    return json.dumps({"answer_1": answer, "answer_2": answer})


def asked_for(prompt: str) -> str:
    """Which of the four metrics a prompt asks for."""
    return next(metric for metric in METRICS if f'"{metric}_justification"' in prompt)


def knowing(prompt: str) -> str:
    """The reply of a judge that knows the unit tests by heart."""
    metric = asked_for(prompt)
    seen = [test for test in builtin_tests() if test.actual_output in prompt and str(test.expected_output) in prompt]
    test = max(seen, key=lambda found: len(found.actual_output) + (found.input in prompt))
    wanted = str(test.conditions.get(metric, "==3"))
    return pair_reply(metric, None if "None" in wanted else float(wanted.strip("<>=")))


def test_own_unit_tests_cover_seven_modes_in_two_languages() -> None:
    """At least 80 cases of failure, both splits of both languages, no subject in two splits."""
    tests = builtin_tests()
    modes = Counter(test.mode for test in tests if test.mode in FAILURE_MODES)
    assert len(modes) == 7
    assert min(modes.values()) >= 12
    assert modes.total() >= 80
    assert len({test.id for test in tests}) == len(tests)
    for language in ("en", "zh"):
        splits = {
            split: {t.input for t in tests if t.language == language and t.split == split}
            for split in ("train", "test")
        }
        assert splits["train"]
        assert splits["test"]
        assert not splits["train"] & splits["test"]


def test_own_unit_tests_are_well_made() -> None:
    """Citations point at references that exist, no two answers of a subject are equal, every condition is readable."""
    for test in builtin_tests():
        cited = [int(part.split("]")[0]) for part in test.actual_output.split("[")[1:]]
        assert all(1 <= number <= len(test.references) for number in cited), test.id
        assert all(satisfies(None, c) in (True, False) for c in test.conditions.values() if c)
    answers = Counter((test.actual_output, test.input) for test in builtin_tests())
    assert set(answers.values()) == {1}


@pytest.mark.parametrize(
    ("value", "condition", "met"),
    [
        (5.0, "==5", True),
        (4.0, ">=3", True),
        (2.0, "<=2", True),
        (3.0, ["<=4", ">2"], True),
        (None, "==None", True),
        (None, "<=2", False),
        (None, "!=5", False),
        (3.0, "==None", False),
        (3.0, "!=None", True),
    ],
)
def test_conditions_read_as_grouse_has_them(value: float | None, condition: str | list[str], met: bool) -> None:
    """None meets ==None only."""
    assert satisfies(value, condition) is met


def test_a_condition_that_cannot_be_read_is_refused() -> None:
    """A typing mistake is no failed test."""
    with pytest.raises(ConfigurationError, match=r"is like \"==5\""):
        satisfies(1.0, "about 3")


def test_a_judge_that_knows_the_answers_meets_every_condition() -> None:
    """The chain of six over the training split: all metrics 100 %, green."""
    report = meta_evaluate("grouse", judge=Replying(knowing), language="en")
    assert set(report.success) == {*METRICS, "positive_acceptance", "negative_rejection"}
    assert (report.total, report.verdict, report.failures) == (1.0, "green", ())
    assert report.n_tests == 30
    assert report["total"] == 1.0


def test_a_constant_judge_is_exposed() -> None:
    """Always 5 and 1: red, and the metrics that never vary are named."""
    always = Replying(lambda prompt: pair_reply(asked_for(prompt), {"a": 5, "c": 5}.get(asked_for(prompt)[0], 1)))
    report = meta_evaluate("grouse", judge=always, split="all", language="en")
    assert report.verdict == "red"
    assert {"answer_relevancy", "completeness", "faithfulness"} <= set(report.constant)
    assert report.by_mode["good"] == 1.0
    assert report.by_mode["wrongly_refuses"] < 0.5


def test_an_unreadable_judge_parses_nothing() -> None:
    """Failed satisfies no condition, not even ==None."""
    report = meta_evaluate("grouse_faithfulness", judge=Replying(lambda prompt: "Hm."), language="en")
    assert (report.total, report.parsing_success, report.verdict) == (0.0, 0.0, "red")
    assert report.failures[0].failed


def test_single_metrics_and_own_unit_tests() -> None:
    """One condition without a metric's name belongs to whatever is tested; interval and explanation come along."""
    tests: list[dict[str, Any]] = [
        {"input": "q", "actual_output": "right", "expected_output": "right", "conditions": "==1"},
        {"input": "q", "actual_output": "wrong", "expected_output": "right", "conditions": {"exact_match": "==0"}},
        {"input": "q", "actual_output": "Right!", "expected_output": "right", "exact_match_condition": "==0"},
    ]
    report = meta_evaluate("exact_match", unit_tests=tests[1:])
    assert report.success == {"exact_match": 0.5}
    assert report.failures[0].answer == "Right!"
    assert meta_evaluate("exact_match", unit_tests=tests[:1]).total == 1.0
    with pytest.raises(ConfigurationError, match="no unit test"):
        meta_evaluate("exact_match")


async def test_inside_a_running_loop_the_report_is_awaited() -> None:
    """A notebook has a loop already."""
    pending: Any = meta_evaluate(
        "exact_match", unit_tests=[{"input": "q", "actual_output": "a", "conditions": "==None"}]
    )
    assert (await pending).total == 1.0


def test_a_report_is_plain_data() -> None:
    """As the command line prints it."""
    report = meta_evaluate("grouse_usefulness", judge=Replying(lambda prompt: "Hm."), language="zh", split="test")
    plain = json.loads(json.dumps(dataclasses.asdict(report)))
    assert plain["n_tests"] == 30
    assert plain["failures"][0]["language"] == "zh"
    assert "red" in str(report)


def test_unit_tests_are_read_from_files(tmp_path: Any) -> None:
    """JSON and JSON lines; a missing field is named."""
    row = {"input": "q", "actual_output": "a", "conditions": {"faithfulness": None, "completeness": "==5"}}
    (tmp_path / "tests.jsonl").write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    (tmp_path / "tests.json").write_text(json.dumps([row]), encoding="utf-8")
    assert read_tests(tmp_path / "tests.jsonl") == read_tests(str(tmp_path / "tests.json"))
    assert read_tests([row])[0].conditions == {"completeness": "==5"}
    with pytest.raises(ConfigurationError, match="actual_output"):
        read_tests([{"input": "q"}])


def test_calibration_agrees_with_scipy_and_scikit_learn() -> None:
    """Grades 1..5 of a judge that is near the truth."""
    generator = random.Random(5)
    human = [generator.randint(1, 5) for _ in range(80)]
    judge = [min(5, max(1, grade + generator.choice((-1, 0, 0, 0, 1)))) for grade in human]
    report = calibrate([float(grade) for grade in judge], human)
    assert report.pearson == pytest.approx(scipy.stats.pearsonr(judge, human)[0])
    assert report.spearman == pytest.approx(scipy.stats.spearmanr(judge, human)[0])
    assert report.kendall == pytest.approx(scipy.stats.kendalltau(judge, human)[0])
    assert report.kappa == pytest.approx(sklearn.metrics.cohen_kappa_score(judge, human, weights="quadratic"))
    assert report.verdict == "green"
    assert report.kappa_ci is not None
    assert float(report.kappa_ci.lo or 0) < float(report.kappa or 0) < float(report.kappa_ci.hi or 0)


def test_a_constant_judge_is_red_however_often_it_is_right() -> None:
    """Nine of ten right by always passing: kappa 0, correlations undefined, red."""
    report = calibrate([1.0] * 100, [1.0] * 90 + [0.0] * 10)
    assert (report.kappa, report.constant, report.verdict) == (0.0, True, "red")
    assert report.pearson is None
    assert (report.sensitivity, report.specificity) == (1.0, 0.0)
    assert "same score" in str(report)


def test_a_random_judge_is_red_and_few_labels_are_not_green() -> None:
    """Chance agreement is not agreement; ten labels show nothing."""
    generator = random.Random(6)
    human = [float(generator.random() < 0.5) for _ in range(200)]
    assert calibrate([generator.random() for _ in human], human).verdict == "red"
    few = calibrate(human[:10], human[:10])
    assert (few.kappa, few.verdict) == (1.0, "amber")
    assert "Not enough labels" in few.reasons[0]


def test_calibration_leaves_out_what_has_no_score_and_counts_it() -> None:
    """None, invalid results and missing labels are not zeros; results stand for their scores."""
    results = [EvaluationResult(score=1.0), EvaluationResult(status="invalid"), EvaluationResult(score=0.0)]
    report = calibrate([*results, 1.0], [True, True, False, None])
    assert (report.n, report.n_missing, report.kappa) == (2, 2, 1.0)
    assert calibrate([], []).verdict == "red"
    with pytest.raises(ValueError, match="one human score"):
        calibrate([1.0], [])


def test_groups_get_their_own_correlations() -> None:
    """Perfect within each system, useless across them; the constant group is counted as undefined."""
    judge = [1, 2, 3, 11, 12, 13, 5, 5]
    human = [11, 12, 13, 1, 2, 3, 4, 6]
    report = calibrate([float(v) for v in judge], [float(v) for v in human], groups=list("aaabbbcc"))
    assert report.by_group["pearson"] == pytest.approx(1.0)
    assert report.pearson is not None
    assert report.pearson < 0
    assert (report.n_groups, report.n_groups_undefined) == (3, 1)


def test_position_bias_is_seen_in_both_orders() -> None:
    """Eight of ten follow the first position; results of `pairwise` are read as they are."""
    swayed = position_bias([(1.0, 0.0)] * 8 + [(1.0, 1.0)] * 2)
    assert swayed is not None
    assert (swayed.consistent, swayed.first_preferred, swayed.second_preferred) == (0.2, 8, 0)
    assert swayed.p == pytest.approx(2 / 2**8)
    pairwise = EvaluationResult(evaluator="pairwise", parts={"first": "A", "flipped": "A", "position_bias": False})
    steady = position_bias([pairwise])
    assert steady is not None
    assert (steady.consistent, steady.p) == (1.0, None)
    assert position_bias([]) is None


async def test_position_bias_of_a_judge_that_always_takes_the_first() -> None:
    """Through the pairwise evaluator itself."""
    made = get_evaluator("pairwise", judge=ScriptedJudge(["1\nfirst"] * 4))
    results = [await made(Case(query="q", response=text, second_response="other")) for text in ("a", "b")]
    found = position_bias(results)
    assert found is not None
    assert (found.n, found.consistent, found.first_preferred) == (2, 0.0, 2)


def test_length_bias_is_what_people_do_not_reward() -> None:
    """Scores rise with length though people's do not."""
    lengths, human = list(range(20)), [1.0, 2.0] * 10
    found = length_bias([h + 0.1 * size for h, size in zip(human, lengths, strict=True)], lengths, human)
    assert found.with_error == pytest.approx(1.0)
    assert length_bias([1.0, 1.0], [1, 2]).with_score is None


def test_self_consistency_counts_flips() -> None:
    """One of four cases flips in one of three rounds: two of its three pairs disagree."""
    found = self_consistency([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, None]])
    assert found.flip_rate == pytest.approx((2 / 3) / 4)
    assert found.n == 4
    assert found.alpha is not None
    assert self_consistency([[0.6, 0.4], [0.9, 0.1]], threshold=0.5).flip_rate == 0.0
    assert self_consistency([[1.0]]).flip_rate is None


def learns(prompt: str) -> str:
    """Fails everything until an example shows an answer that passes; then only what is bad."""
    answers = [prompt.rfind(f"{kind} ") for kind in ("ok", "bad")]
    return "True" if "score: 1" in prompt and answers[0] > answers[1] else "False"


def test_alignment_picks_examples_and_reports_on_held_out_cases() -> None:
    """A judge that learns from its examples agrees better with people on cases it never saw."""
    made = get_evaluator("judge", judge=Replying(learns), question="Is the answer acceptable? True or False.")
    texts = [f"ok {number}" for number in range(12)] + [f"bad {number}" for number in range(12)]
    labelled = [(Case(query="q", response=text, reference="x"), text.startswith("ok")) for text in texts]
    aligned, report = align(made, labelled, seed=1)
    assert report.before.verdict == "red"
    assert report.after.kappa == 1.0
    assert report.improved
    assert report.kappa == 1.0
    assert aligned.version != made.version
    assert report.n_train + report.n_held_out == 24
    again, repeated = align(made, labelled, seed=1)
    assert (again.version, repeated.after) == (aligned.version, report.after)


def test_alignment_keeps_the_plain_judge_where_nothing_helps() -> None:
    """A judge deaf to examples stays as it is."""
    made = get_evaluator("judge", judge=Replying(lambda prompt: "True"))
    labelled = [(Case(query="q", response=str(i), reference="x"), i % 2) for i in range(12)]
    aligned, report = align(made, labelled)
    assert aligned is made
    assert (report.examples, report.after.constant, report.improved) == ((), True, False)


def test_alignment_refuses_what_cannot_be_trained() -> None:
    """A rule has no prompt, and a handful of labels no second half."""

    @evaluator
    def rule(response: str) -> bool:
        return bool(response)

    with pytest.raises(ConfigurationError, match="no examples"):
        align(rule, [(Case(response="x"), 1)] * 10)
    made = get_evaluator("judge", judge=ScriptedJudge([]))
    with pytest.raises(ConfigurationError, match="at least 8"):
        align(made, [(Case(response="x"), 1)] * 3)


def test_unit_test_gives_the_case_an_evaluator_sees() -> None:
    """Question, answer, right answer and passages."""
    case = UnitTest(input="q", actual_output="a", expected_output="e", references=("c",)).case
    assert (case.query, case.response, case.reference, case.texts) == ("q", "a", "e", ("c",))
