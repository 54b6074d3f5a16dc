"""Answers about quality, cost and traffic over a range of time."""

from __future__ import annotations

from typing import Any, Literal

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


class Explanation(Answer):
    """The attributes that are more common in a selection than outside."""

    metric: str
    n_selected: int
    n_baseline: int
    sampled: bool
    dip: dict[str, Any] | None
    """The period that `bad` selected."""
    bars: list[dict[str, Any]]
    """Requests and bad requests of each bucket."""
    heatmap: dict[str, Any]
    attributes: list[dict[str, Any]]


class Side(Estimate):
    """One side of a comparison; rates are null where the evaluator has no pass or fail."""

    name: str
    fail_rate: float | None
    unclear_rate: float | None


class Comparison(Answer):
    """Two sides and whether they differ."""

    evaluator: str
    a: Side
    b: Side
    difference: Interval | None
    effect_size: float | None
    test: dict[str, Any] | None
    verdict: str
    paired: bool
    wording: str | None
    """That the evaluator decides another share of b than of a: the wording changed."""
    shared: int
    """Common answers of both sides; common questions where the requests differ."""
    flips: list[Any]
    also: list[Any]
    by: str | None
    strata: list[Any]


class Document(Answer):
    """A retrieved document and the quality of its answers."""

    id: str
    source: str | None = None
    """The document that the passage was cut from, as its metadata name it."""
    retrieved: int


class Documents(Answer):
    """Quality by retrieved document."""

    evaluator: str
    documents: list[Document]
    never_used: int
    total: int


class Attribution(Answer):
    """Failures by retrieval and by generation."""

    evaluators: Any
    cells: list[dict[str, Any]]
    other_groups: int = 0


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
