"""Scores against those of people."""

from __future__ import annotations

import random

import pytest
import scipy.stats
import sklearn.metrics

from ragpulse_evaluators import EvaluationResult
from ragpulse_evaluators.meta import (
    calibrate,
)


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
