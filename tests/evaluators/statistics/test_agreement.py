"""Correlations, kappas, alpha and AUC against scipy, scikit-learn, statsmodels and krippendorff."""

from __future__ import annotations

import warnings
from typing import Literal

import krippendorff
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import statsmodels.stats.inter_rater
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.statistics import (
    cohen_kappa,
    fleiss_kappa,
    kendall,
    krippendorff_alpha,
    pearson,
    ranks,
    roc_auc,
    spearman,
)

grades = st.integers(1, 5)
pairs = st.lists(st.tuples(grades, st.integers(-3, 3)), min_size=2, max_size=40)


def series(found: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    """Two series with many ties."""
    return [float(a) for a, _ in found], [float(a + b) for a, b in found]


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_correlations_agree_with_scipy(found: list[tuple[int, int]]) -> None:
    """Pearson, Spearman and Kendall's τ-b are scipy's; a constant series is None where scipy gives NaN."""
    x, y = series(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [scipy.stats.pearsonr(x, y)[0], scipy.stats.spearmanr(x, y)[0], scipy.stats.kendalltau(x, y)[0]]
    ours = [pearson(x, y), spearman(x, y), kendall(x, y)]
    assert [np.nan if value is None else value for value in ours] == pytest.approx(expected, abs=1e-9, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_ranks_agree_with_scipy(values: list[float]) -> None:
    """Ties share the mean of their ranks."""
    assert ranks(values) == pytest.approx(scipy.stats.rankdata(values).tolist())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(grades, grades), min_size=2, max_size=40), st.sampled_from([None, "linear", "quadratic"]))
def test_cohen_kappa_agrees_with_scikit_learn(
    found: list[tuple[int, int]], weights: Literal["linear", "quadratic"] | None
) -> None:
    """Plain and weighted kappa are scikit-learn's."""
    a, b = map(list, zip(*found, strict=True))
    ours = cohen_kappa(a, b, weights=weights)
    if ours is None:
        assert set(a) == set(b)
        assert len(set(a)) == 1
    else:
        assert ours == pytest.approx(sklearn.metrics.cohen_kappa_score(a, b, weights=weights), abs=1e-9)


def test_a_constant_judge_has_kappa_zero() -> None:
    """Always saying pass agrees 9 times of 10 with people and still knows nothing."""
    assert cohen_kappa([1] * 10, [1] * 9 + [0]) == pytest.approx(0.0)
    assert pearson([1.0] * 10, [1.0] * 9 + [0.0]) is None


def test_weighted_kappa_needs_the_whole_scale_where_a_grade_was_never_given() -> None:
    """2 against 4 is two steps apart on 1..5, although nobody gave a 3."""
    a, b = [1, 2, 4, 5], [1, 4, 2, 5]
    assert cohen_kappa(a, b, weights="linear", labels=[1, 2, 3, 4, 5]) != cohen_kappa(a, b, weights="linear")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=15))
def test_fleiss_kappa_agrees_with_statsmodels(votes: list[list[int]]) -> None:
    """Four raters, three categories."""
    table = [[row.count(category) for category in range(3)] for row in votes]
    ours = fleiss_kappa(table)
    if ours is None:
        assert len({vote for row in votes for vote in row}) == 1
    else:
        assert ours == pytest.approx(statsmodels.stats.inter_rater.fleiss_kappa(np.array(table)), abs=1e-9)


def test_fleiss_kappa_refuses_unequal_votes() -> None:
    """Three votes on one subject and two on another are a mistake."""
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[3, 0], [1, 1]])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.none() | grades, min_size=3, max_size=3), min_size=3, max_size=12),
    st.sampled_from(["nominal", "ordinal", "interval", "ratio"]),
)
def test_krippendorff_alpha_agrees_with_the_package(
    units: list[list[int | None]], level: Literal["nominal", "ordinal", "interval", "ratio"]
) -> None:
    """Three raters with missing ratings, every level of measurement."""
    ratings = list(zip(*units, strict=True))
    ours = krippendorff_alpha(ratings, level=level)
    if ours is not None:
        data = np.array([[np.nan if v is None else float(v) for v in row] for row in ratings])
        expected = krippendorff.alpha(data, level_of_measurement=level)
        assert ours == pytest.approx(expected, abs=1e-9)


def test_alpha_of_nothing_rated_twice_is_none() -> None:
    """No pair of ratings, or no difference at all: undefined."""
    assert krippendorff_alpha([[1, None], [None, 2]]) is None
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_roc_auc_agrees_with_scikit_learn(found: list[tuple[int, bool]]) -> None:
    """Ties count half; one kind alone has no AUC."""
    scores, labels = [float(s) for s, _ in found], [label for _, label in found]
    ours = roc_auc(scores, labels)
    if ours is None:
        assert len(set(labels)) == 1
    else:
        assert ours == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores))


def test_series_of_different_length_are_refused() -> None:
    """A pair without a partner is a mistake, not a truncation."""
    with pytest.raises(ValueError, match="one length"):
        spearman([1.0, 2.0], [1.0])
