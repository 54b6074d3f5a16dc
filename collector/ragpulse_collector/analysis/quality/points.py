"""A metric over time as it is answered: lines of points, one line for each group, version and judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality.buckets import Figures, Measured

__all__ = ["CoveragePoint", "Line", "QualityLine", "QualityPoint", "TrafficPoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPoint(Figures):
    """A metric of the traffic in one bucket."""

    t: datetime
    unknown_share: float | None = None
    """The share of requests without a value."""
    estimated: bool | None = None
    """Whether an upstream sampler dropped requests."""
    words: str | None = None
    """Of an error rate of few errors: their number, `0 errors in 99,837`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePoint(Figures):
    """The share of eligible units with a score in one bucket; n counts eligible units, `counts` those without one."""

    t: datetime
    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPoint(Measured):
    """A metric of an evaluator in one bucket."""

    t: datetime
    assisted: None = None
    """Always null."""


Point = TrafficPoint | CoveragePoint | QualityPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The points of one group, evaluator version and judge."""

    group: Mapping[str, GroupValue]
    version: str | None = None
    judge: str | None = None
    points: Sequence[TrafficPoint] | Sequence[CoveragePoint] | Sequence[QualityPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLine(Line):
    """The points of one group, evaluator version and judge."""

    points: Sequence[QualityPoint]
    replayed_where: Sequence[str]
    """The conditions of replays: their scores represent those traces only."""
    online_since: datetime | None
    """The first score of this version and judge by a rule; points before it are from replays."""
    labels: int | None = None
    """Sampled labels, of which the correction is made; null where none was asked for."""
    labels_chosen: int | None = None
    corrected: bool | None = None
    assisted_by: None = None
    """Always null."""
