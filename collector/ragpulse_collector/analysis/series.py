"""`GET metrics`: one metric over request time, each point with its interval, n and missing verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

from ragpulse_collector.analysis.answers import GroupValue, Marker, Place, extended
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.calibration import LabelledJudge, Version, correct, error_of, labelled_judges
from ragpulse_collector.analysis.quality import Bucket, Figures, Measured
from ragpulse_collector.analysis.quality.buckets import FAILURES
from ragpulse_collector.analysis.quality.coverage import DecisionCounts
from ragpulse_collector.analysis.traffic import check_metric, is_estimated, known_traffic, traffic_of
from ragpulse_collector.store.queries.scores import FEEDBACK, off_scale
from ragpulse_collector.store.queries.traces import public_name
from ragpulse_collector.words import few_errors

__all__ = [
    "CoveragePoint",
    "Line",
    "ManySeries",
    "MetricSeries",
    "Point",
    "QualityLine",
    "QualityPoint",
    "TrafficPoint",
    "series",
]

_COVERAGE, _CONFIDENCE = "coverage", 0.95
Group = tuple[GroupValue, ...]


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
AnyPoint = TypeVar("AnyPoint", TrafficPoint, CoveragePoint)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """A metric over request time."""

    name: str
    unit: str
    step: int
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    until: datetime
    """The end of the last bucket."""
    series: Sequence[QualityLine] | Sequence[Line]
    markers: Sequence[Marker]
    other_groups: int
    """Groups beyond the largest, which are one line `(other)`."""
    left_out: int | None
    """Values of `feedback:NAME` outside the scale of that name; null for other metrics."""


@dataclass(frozen=True, slots=True)
class ManySeries:
    """One answer for each metric, where the request names several."""

    metrics: Sequence[MetricSeries]


def series(snapshot: Snapshot, metric: str, *, corrected: bool = False, alone: bool = True) -> MetricSeries:
    """Answer `GET metrics` for one metric; raises Invalid for an unknown name.

    A bucket without a measurement has value null; counts of requests are 0 between the first and the last request.
    A percentile has its interval where it is asked for `alone`: of several, one would hide the others.
    `corrected` moves the points of a quality metric by the judge's error against people's labels. A line starts with
    scores of replays and continues with those of a rule. The largest groups are answered, all others together as
    `(other)`.
    """
    family, _, evaluator = metric.partition(":")
    check_metric(metric, ())
    lines: Sequence[QualityLine] | Sequence[Line]
    if of_traffic := traffic_of(metric):
        lines, unit, markers = _traffic(snapshot, metric, alone=alone), of_traffic.unit, snapshot.shown_markers()
    elif family == _COVERAGE:
        lines, unit, markers = _coverage(snapshot, evaluator), "share", snapshot.shown_markers()
    else:
        asked = corrected and family == "quality"
        judges = labelled_judges(snapshot.store, snapshot.query, evaluator) if asked else None
        lines = _quality(snapshot, snapshot.quality(evaluator, family), judges)
        unit = "score" if family in ("score", FEEDBACK) else "share"
        markers = snapshot.shown_markers(evaluator, family)
    window = snapshot.window
    return MetricSeries(
        name=metric,
        unit=unit,
        step=window.step_s,
        from_=window.first,
        to=window.last,
        until=max(window.last, window.end(window.starts()[-1])),
        series=lines,
        markers=markers,
        other_groups=snapshot.other_groups,
        left_out=off_scale(snapshot.store, evaluator, window.parameters, snapshot.filters)
        if family == FEEDBACK
        else None,
    )


def _traffic(snapshot: Snapshot, name: str, *, alone: bool) -> list[Line]:
    points = defaultdict[Group, dict[datetime, TrafficPoint]](dict)
    for point, group in _means(snapshot, name) if known_traffic(name).each else _totals(snapshot, name, alone):
        points[group][point.t] = point
    if not points and not snapshot.groups:
        points[()] = {}
    starts = {start for points_of_group in points.values() for start in points_of_group}
    first, last = (min(starts), max(starts)) if starts else (snapshot.window.last, snapshot.window.first)
    gaps = [
        TrafficPoint(t=start, value=0.0 if known_traffic(name).count and first <= start <= last else None)
        for start in snapshot.window.starts()
    ]
    return _lines(snapshot, points, gaps)


def _means(snapshot: Snapshot, name: str) -> Iterator[tuple[TrafficPoint, Group]]:
    means = snapshot.failing() if name == "error_rate" else snapshot.means(name)
    buckets = snapshot.traffic() if known_traffic(name).of else ()
    unknown = {Place(bucket.start, bucket.group): bucket.unknown_share(name) for bucket in buckets}
    for place, sums in means.items():
        if place.start is not None:
            figures, estimated = Figures.of_sums(sums), is_estimated(sums)
            exact = name == "error_rate" and not estimated
            words = few_errors(round((figures.value or 0.0) * figures.n), figures.n) if exact else None
            more = {"unknown_share": unknown.get(place, 0.0), "estimated": estimated, "words": words}
            yield extended(TrafficPoint, figures, t=place.start, **more), place.group


def _totals(snapshot: Snapshot, name: str, alone: bool) -> Iterator[tuple[TrafficPoint, Group]]:
    intervals = snapshot.percentiles(name) if alone and known_traffic(name).quantile else {}
    for bucket in snapshot.traffic():
        value = bucket.values[name]
        seconds = snapshot.seconds_covered(bucket.start) if name == "throughput" else 1.0
        read = intervals.get((bucket.start, *bucket.group))
        ends = read(_CONFIDENCE) if read else None
        point = TrafficPoint(
            t=bucket.start,
            value=None if value is None else value / seconds,
            lo=ends.lo if ends else None,
            hi=ends.hi if ends else None,
            n=bucket.n,
            n_eff=float(bucket.n),
            unknown_share=bucket.unknown_share(name),
            estimated=bucket.estimated,
        )
        yield point, bucket.group


Judges = Mapping[Version, LabelledJudge] | None
"""Those whose labels correct the points; None where the judge's figures were asked for."""


def _quality(snapshot: Snapshot, buckets_of_all: Sequence[Bucket], judges: Judges) -> list[QualityLine]:
    buckets_by_line = defaultdict[tuple[Group, Version], list[Bucket]](list)
    for bucket in buckets_of_all:
        buckets_by_line[bucket.group, bucket.series].append(bucket)
    gaps = [QualityPoint(t=start) for start in snapshot.window.starts()]
    return [
        _quality_line(snapshot, group, version, buckets, gaps, judges)
        for (group, version), buckets in sorted(
            buckets_by_line.items(),
            key=lambda item: (str(item[0][0]), min(bucket.start for bucket in item[1]), str(item[0])),
        )
    ]


def _quality_line(
    snapshot: Snapshot, group: Group, version: Version, buckets: Sequence[Bucket], gaps: Sequence[QualityPoint],
    judges: Judges,
) -> QualityLine:  # fmt: skip
    judge = judges.get(version) if judges else None
    error, drawn = error_of(judge) if judge else None, len(judge.drawn) if judge else 0
    points = {bucket.start: correct(bucket, error).measured_as(QualityPoint, t=bucket.start) for bucket in buckets}
    return QualityLine(
        group=_named(snapshot, group),
        version=version[0],
        judge=version[1],
        points=[points.get(gap.t, gap) for gap in gaps],
        replayed_where=sorted(where for replayed, where in snapshot.scopes() if replayed == version[0]),
        online_since=min((bucket.first for bucket in buckets if bucket.first is not None), default=None),
        labels=None if judges is None else drawn,
        labels_chosen=None if judges is None else len(judge.labelled) - drawn if judge else 0,
        corrected=None if judges is None else error is not None,
    )


def _coverage(snapshot: Snapshot, evaluator: str) -> list[Line]:
    """Return the share of eligible units with an online score; a unit that two versions scored counts once."""
    verdicts = defaultdict[Place, Counter[str]](Counter)
    for bucket in snapshot.quality(evaluator):
        verdicts[Place(bucket.start, bucket.group)].update(bucket.online)
    points = defaultdict[Group, dict[datetime, CoveragePoint]](dict)
    for decisions in snapshot.decided():
        if decisions.evaluator == evaluator:
            place = Place(decisions.start, decisions.group)
            points[decisions.group][decisions.start] = _coverage_point(decisions, verdicts[place])
    return _lines(snapshot, points, [CoveragePoint(t=start) for start in snapshot.window.starts()])


def _coverage_point(decisions: DecisionCounts, verdicts: Mapping[str, int]) -> CoveragePoint:
    unselected = decisions.eligible - decisions.selected - decisions.uncovered
    return CoveragePoint(
        t=decisions.start,
        value=min(1.0, verdicts.get("ok", 0) / decisions.eligible),
        n=decisions.eligible,
        counts={
            **{status: verdicts.get(status, 0) for status in FAILURES},
            "unselected": max(0, unselected),
            "uncovered": decisions.uncovered,
        },
        dropped=decisions.dropped,
    )


def _lines(
    snapshot: Snapshot, points: Mapping[Group, Mapping[datetime, AnyPoint]], gaps: Sequence[AnyPoint]
) -> list[Line]:
    """Return the line of each group; it has a point in each bucket, and shares those without rows with the others."""
    return [
        Line(group=_named(snapshot, group), points=[own.get(gap.t, gap) for gap in gaps])
        for group, own in sorted(points.items(), key=lambda item: str(item[0]))
    ]


def _named(snapshot: Snapshot, group: Group) -> Mapping[str, GroupValue]:
    return dict(zip(map(public_name, snapshot.groups), group, strict=True))
