"""What a run found, in numbers."""

from __future__ import annotations

import pytest

from ragpulse_evaluators import Case, EvaluationResult, evaluate_sync
from ragpulse_evaluators.aggregate import summarize
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.statistics import mean_ci


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


def test_an_unreadable_part_leaves_out_that_part_only() -> None:
    """GroUSE's report: a sample whose faithfulness cannot be read still counts for completeness."""
    report = summarize(
        [
            result(score=1.0, normalized=1.0, parts={"completeness": 5.0, "faithfulness": 1.0}),
            result(status="invalid", parts={"completeness": 2.0}),
        ]
    )
    assert report.parts == {"completeness": 3.5, "faithfulness": 1.0}
    assert (report.mean, report.counts["invalid"]) == (1.0, 1)


@pytest.mark.parametrize(
    ("marks", "ends"),
    [
        ([(5.0, 1.0), (5.0, 1.0), (4.0, 0.75)], (1, 5)),  # 1 to 5
        ([(0.0, 1.0), (0.0, 1.0), (0.5, 0.5)], (0, 1)),  # reversed
        ([(30.0, None), (0.1, None), (0.2, None)], None),  # no ends
    ],
)
def test_the_interval_of_a_mean_stays_within_the_scale(
    marks: list[tuple[float, float | None]], ends: tuple[float, float] | None
) -> None:
    """No mean of marks from 1 to 5 is thought to be 5.3; seconds have no end."""
    interval = summarize([result(score=score, normalized=unit) for score, unit in marks]).mean_ci
    assert interval is not None
    assert interval.lo is not None
    assert interval.hi is not None
    free = mean_ci([score for score, _ in marks])
    assert free is not None
    assert (interval.lo, interval.hi) != (free.lo, free.hi) or ends is None
    assert ends is None or ends[0] <= interval.lo < interval.hi <= ends[1]


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
