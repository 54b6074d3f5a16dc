"""Intervals, weighted estimates, agreement and comparisons: plain sequences in, floats or small dataclasses out.

Undefined is None, never NaN. The standard library suffices, but for `bootstrap_ci`, which imports numpy when called.
Which formula is used where, and why: docs/statistics.md.
"""

from __future__ import annotations

from ragpulse_evaluators.statistics.intervals import (
    Estimate,
    bootstrap_ci,
    effective_n,
    hajek,
    mean_ci,
    needed_n,
    weighted_mean,
    wilson,
)

__all__ = [
    "Estimate",
    "bootstrap_ci",
    "effective_n",
    "hajek",
    "mean_ci",
    "needed_n",
    "weighted_mean",
    "wilson",
]
