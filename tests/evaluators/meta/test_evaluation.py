"""Judges against unit tests, with judges whose faults are known."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest
from replying import Replying

from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.meta import (
    FAILURE_MODES,
    UnitTest,
    builtin_tests,
    meta_evaluate,
    read_tests,
    satisfies,
)

METRICS = ("answer_relevancy", "completeness", "faithfulness", "usefulness")


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


def test_unit_test_gives_the_case_an_evaluator_sees() -> None:
    """Question, answer, right answer and passages."""
    case = UnitTest(input="q", actual_output="a", expected_output="e", references=("c",)).case
    assert (case.query, case.response, case.reference, case.texts) == ("q", "a", "e", ("c",))
