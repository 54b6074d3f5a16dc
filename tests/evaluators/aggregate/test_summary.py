"""What a run found, in numbers."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, EvaluationResult, evaluate_sync
from ragpulse_evaluators.aggregate import summarize
from ragpulse_evaluators.errors import ConfigurationError


def labelled(pairs: list[tuple[str, str]]) -> list[Case]:
    """Cases whose answers are labels."""
    return [Case(response=said, reference=wanted) for said, wanted in pairs]


def result(**fields: object) -> EvaluationResult:
    """A result of one evaluator."""
    return EvaluationResult.model_validate({"evaluator": "e", "version": "1", **fields})


def test_summary_never_averages_failures_in() -> None:
    """Invalid and skipped are counted; parsing success is below one."""
    report = summarize(
        [
            result(score=4.0, normalized=0.75, passing=True, parts={"faithfulness": 1}),
            result(score=2.0, normalized=0.25, passing=False, parts={"faithfulness": None}),
            result(status="invalid"),
            result(status="skipped"),
        ]
    )
    assert (report.mean, report.pass_rate, report.n) == (3.0, 0.5, 4)
    assert report.parsing_success == pytest.approx(2 / 3)
    assert report.counts == {"ok": 2, "skipped": 1, "invalid": 1, "error": 0}
    assert report.normalized is not None
    assert report.normalized.estimate == 0.5
    assert report.faithfulness == report.parts["faithfulness"] == 1.0
    assert "0.500" in str(report)


def test_summary_of_nothing_has_no_numbers() -> None:
    """None everywhere, never 0."""
    report = summarize([])
    assert (report.mean, report.pass_rate, report.parsing_success, report.normalized) == (None, None, None, None)
    with pytest.raises(AttributeError, match="has no 'usefulness'"):
        _ = report.usefulness


def test_summary_with_expectations_has_precision_recall_and_f1() -> None:
    """Verdicts pass, pass, fail against should, should not, should: P 1/2, R 1/2."""
    results = [result(passing=True), result(passing=True), result(passing=False)]
    report = summarize(results, expected=[True, False, True])
    assert (report.precision, report.recall, report.f1, report.accuracy) == pytest.approx((0.5, 0.5, 0.5, 1 / 3))


def test_summary_takes_what_evaluate_returns_and_refuses_to_pool() -> None:
    """One summary a name; two versions in one list are refused."""
    cases = labelled([("a", "a"), ("b", "a")])
    reports = summarize(evaluate_sync(cases, ["exact_match", "token_f1"]))
    assert reports["exact_match"].pass_rate == 0.5
    with pytest.raises(ConfigurationError, match="do not pool"):
        summarize([result(version="1"), result(version="2")])
