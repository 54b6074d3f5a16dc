"""Answers about quality, cost and traffic over a range of time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from ragpulse_collector.api.answers import Answer, Judged, ScoredTrace


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


class Measured(Estimate):
    """An estimate with its missing part: selected answers without a result."""

    missing: int = 0
    asked: float = 0.0
    """The answers that it represents: scored ones by their weights, and missing ones."""
    replayed: int = 0
    """Scores of replays, among `n`."""
    missing_share: float = 0.0
    bounds: list[float] | None = None
    """The value if all missing answers failed, and if all passed."""
    least: float | None = None
    """The interval that decides: `lo` and `hi` with all missing answers failed, and passed."""
    most: float | None = None
    words: str = ""


class Point(Measured):
    """A point of a series; null where nothing was measured."""

    t: datetime


class Series(Answer):
    """The points of one group, evaluator version and judge."""

    online_since: datetime | None = None
    """The first score of this version and judge by a rule; points before it are from replays."""
    group: dict[str, Any]
    version: str | None
    judge: str | None
    points: list[Point]


class Metrics(Answer):
    """A metric over request time."""

    name: str
    unit: str | None
    step: float
    from_: datetime = Field(alias="from")
    to: datetime
    series: list[Series]
    markers: list[Any]
    other_groups: int = 0
    """Groups beyond the largest, which are one series `(other)`."""
    left_out: int = 0
    """Values of `feedback:NAME` outside the scale of that name."""


class ManyMetrics(Answer):
    """One answer for each metric, where the request names several."""

    metrics: list[Metrics]


class CoverageRow(Answer):
    """The outcomes of the units of one evaluator."""

    evaluator: str
    eligible: int
    selected: int
    scored: int
    skipped: int
    invalid: int
    error: int
    dropped: int
    uncovered_share: float


class Coverage(Answer):
    """Eligible, selected, scored and dropped units."""

    coverage: list[CoverageRow]
    queued: int


class Headline(Judged, Measured):
    """The quality of one evaluator in a range."""

    previous: Interval | None
    verdict: Literal["better", "worse", "undecided"] | None
    clear_share: float | None
    """The share of answers with pass or fail; null where the evaluator has none."""
    wording: str | None
    """That this share moved, where it surely did: then the wording of the answers changed."""


class OtherScores(Answer):
    """Scores of one name as they are: of people, sent ones, or on a scale of their own."""

    name: str
    n: int
    mean: float | None
    least: float | None
    most: float | None
    labels: Any
    """The most frequent labels with their numbers."""


class Level(Answer):
    """A value between two changes with its interval (none for p95 and cost) and its number of answers."""

    value: float
    lo: float | None
    hi: float | None
    n: int


class Change(Answer):
    """A level shift of a metric; `sureness` is its size in standard errors, `cause` the prompt that started then."""

    metric: str
    unit: str
    t: datetime
    before: Level
    after: Level
    sureness: float
    worse: bool
    cause: str | None


class Overview(Answer):
    """The headline of a range, read at `as_of`; `only=traffic` omits quality and coverage."""

    as_of: datetime
    newest_span: datetime | None
    lag_s: float | None
    n_traces: int
    error_rate: float | None
    error_interval: list[float | None] | None
    n_answers: int
    """Requests that are known to be answered or not."""
    n_empty: int
    n_refused: int
    latency_p95: float | None
    """Milliseconds."""
    cost_usd: float | None
    cost_unknown_share: float | None
    tokens: int
    quality: list[Headline] = []
    coverage: list[CoverageRow] = []
    queued: int = 0
    dropped: int = 0
    changes: list[Change] = []
    others: list[OtherScores] = []


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
