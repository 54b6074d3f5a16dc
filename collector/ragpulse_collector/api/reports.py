"""Answers about quality, cost and traffic over a range of time."""

from __future__ import annotations

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


class Suggestion(ScoredTrace):
    """A trace worth a label, and its inclusion probability."""

    label_pi: float


class Suggestions(Answer):
    """Traces worth a label."""

    traces: list[Suggestion]
