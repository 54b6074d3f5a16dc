"""Answers about quality, cost and traffic over a range of time."""

from __future__ import annotations

from typing import Literal

from ragpulse_collector.api.answers import Answer, ScoredTrace


class Interval(Answer):
    """An estimate with its 95 % interval."""

    value: float | None
    lo: float | None
    hi: float | None


class Estimate(Interval):
    """An estimate with its number of units."""

    n: int
    n_eff: float
    users: int | None = None
    reason: str | None = None


class Exemplars(Answer):
    """The traces behind a point."""

    worst: list[ScoredTrace]
    median: list[ScoredTrace]
    best: list[ScoredTrace]


class Agreement(Answer):
    """The agreement of a version of an evaluator with people."""

    version: str | None
    judge: str | None
    n: int
    drawn: int
    kappa: float | None
    lo: float | None
    hi: float | None
    sensitivity: float | None
    sensitivity_lo: float | None = None
    sensitivity_hi: float | None = None
    specificity: float | None
    specificity_lo: float | None = None
    specificity_hi: float | None = None
    judged: float | None
    corrected: Interval | None
    note: str | None


class Calibration(Answer):
    """An evaluator against people's labels."""

    evaluator: str
    versions: list[Agreement]


class Suggestion(ScoredTrace):
    """A trace worth a label, and its inclusion probability."""

    label_pi: float


class Suggestions(Answer):
    """Traces worth a label."""

    traces: list[Suggestion]


class Target(Interval):
    """A target and whether it is met."""

    metric: str
    min: float | None
    max: float | None
    unit: str | None
    n: int | None
    state: Literal["met", "missed", "undecided"]
    refused: str | None
    """Why a pass rate is no target here: too many answers are unclear."""


class Targets(Answer):
    """The targets of metrics."""

    targets: list[Target]
