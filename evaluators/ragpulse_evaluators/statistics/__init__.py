"""Intervals, weighted estimates, agreement and comparisons: plain sequences in, floats or small dataclasses out.

Undefined is None, never NaN. The standard library suffices.
Which formula is used where, and why: docs/statistics.md.
"""

from __future__ import annotations

from ragpulse_evaluators.statistics.agreement import (
    cohen_kappa,
    fleiss_kappa,
    kendall,
    krippendorff_alpha,
    pearson,
    ranks,
    roc_auc,
    spearman,
)
from ragpulse_evaluators.statistics.comparison import (
    Cusum,
    Difference,
    Interval,
    Sequential,
    TestResult,
    benjamini_hochberg,
    change_points,
    compare_arms,
    cusum,
    cusum_run_length,
    cusum_threshold,
    fisher,
    mcnemar,
    minus,
    msprt,
    plus,
    two_proportion,
    verdict,
    wilcoxon,
)
from ragpulse_evaluators.statistics.correction import CorrectedEstimate, ppi_mean, rogan_gladen
from ragpulse_evaluators.statistics.distributions import normal_quantile, student_quantile
from ragpulse_evaluators.statistics.intervals import (
    bootstrap_ci,
    clopper_pearson,
    effective_n,
    hajek,
    mean_ci,
    needed_n,
    planned_half_width,
    weighted_mean,
    wilson,
)
from ragpulse_evaluators.statistics.moments import Moments
from ragpulse_evaluators.statistics.weighted import NOT_ENOUGH_USERS, Estimate, Uncertain

__all__ = [
    "NOT_ENOUGH_USERS",
    "CorrectedEstimate",
    "Cusum",
    "Difference",
    "Estimate",
    "Interval",
    "Moments",
    "Sequential",
    "TestResult",
    "Uncertain",
    "benjamini_hochberg",
    "bootstrap_ci",
    "change_points",
    "clopper_pearson",
    "cohen_kappa",
    "compare_arms",
    "cusum",
    "cusum_run_length",
    "cusum_threshold",
    "effective_n",
    "fisher",
    "fleiss_kappa",
    "hajek",
    "kendall",
    "krippendorff_alpha",
    "mcnemar",
    "mean_ci",
    "minus",
    "msprt",
    "needed_n",
    "normal_quantile",
    "pearson",
    "planned_half_width",
    "plus",
    "ppi_mean",
    "ranks",
    "roc_auc",
    "rogan_gladen",
    "spearman",
    "student_quantile",
    "two_proportion",
    "verdict",
    "weighted_mean",
    "wilcoxon",
    "wilson",
]
