"""Answers that are labels, against scikit-learn."""

from __future__ import annotations

import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators import Case, EvaluationResult, evaluate_sync


def measured(name: str, cases: list[Case], **params: object) -> EvaluationResult:
    """The one result of a metric over a set."""
    results = evaluate_sync(cases, [name], params={name: params})[name]
    assert len(results) == 1
    return results[0]


def labelled(pairs: list[tuple[str, str]]) -> list[Case]:
    """Cases whose answers are labels."""
    return [Case(response=said, reference=wanted) for said, wanted in pairs]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("xyz")), min_size=1, max_size=25))
def test_label_metrics_agree_with_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    """Accuracy, macro precision, recall and F1 over three classes, an absent class counting 0."""
    said, wanted = (list(values) for values in zip(*pairs, strict=True))
    cases = labelled(pairs)
    assert measured("accuracy", cases).score == pytest.approx(sklearn.metrics.accuracy_score(wanted, said))
    scores = sklearn.metrics.precision_score, sklearn.metrics.recall_score, sklearn.metrics.f1_score
    for name, function in zip(("precision", "recall", "f1"), scores, strict=True):
        expected = function(wanted, said, average="macro", zero_division=0)
        assert measured(name, cases).score == pytest.approx(expected)


def test_yes_and_no_are_binary_and_a_positive_label_can_be_named() -> None:
    """Precision of "yes" is 1/2, of "no" 1; the f1 comes along."""
    cases = labelled([("yes", "yes"), ("Yes.", "no"), ("no", "no")])
    assert measured("precision", cases).score == 0.5
    assert measured("recall", cases).score == 1.0
    assert measured("precision", cases, positive="no").score == 1.0
    assert measured("recall", cases).parts["f1"] == pytest.approx(2 / 3)


def test_cases_without_reference_are_left_out_and_counted() -> None:
    """Accuracy over two of three; over none it is skipped."""
    cases = [*labelled([("a", "a"), ("b", "a")]), Case(response="c")]
    found = measured("accuracy", cases)
    assert (found.score, found.parts["cases"], found.parts["skipped"]) == (0.5, 2, 1)
    assert measured("accuracy", [Case(response="c")]).status == "skipped"
    assert measured("accuracy", []).status == "skipped"


def test_roc_auc_ranks_numbers_against_labels() -> None:
    """Three of four pairs in order; text that is not a number is invalid, and so is one kind alone."""
    cases = labelled([("0.9", "1"), ("0.4", "1"), ("0.5", "0"), ("0.1", "0")])
    assert measured("roc_auc", cases).score == 0.75
    assert measured("roc_auc", labelled([("high", "1"), ("0.1", "0")])).status == "invalid"
    assert measured("roc_auc", cases[:2]).status == "invalid"
