"""Finds the level shifts of a range: one per metric, ranked by size over uncertainty."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Protocol

from ragpulse_collector.analysis.answers import COUNTING, Marker, Place
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes.lines import nearest
from ragpulse_collector.analysis.changes.news import SURE, standard_errors, usual_level, usual_text
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.traffic import failing
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.statistics import Interval, Uncertain, change_points, minus, wilson

__all__ = ["Shift", "changes"]

_MAX_POINTS = 60
"""Above this number neighbouring buckets are joined: the time of the search grows with its square."""
_LEAST_ANSWERS, _LEAST_BUCKETS = 20, 2
"""The fewest answers and buckets of a level."""
_SUREST = 1000.0
"""The sureness of a shift between levels without spread."""
_LEAST_SHARE, _LEAST_RATIO = 0.02, 0.1
"""The smallest relevant shift: with many answers even a tiny shift is sure."""


@dataclass(frozen=True, slots=True)
class Level(Uncertain):
    """A value between two changes with its interval (none for p95 and cost) and its number of answers."""

    value: float = 0.0
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A level shift of a metric."""

    metric: str
    unit: str
    t: datetime
    before: Level
    after: Level
    sureness: float
    """The size in standard errors."""
    worse: bool
    usually: str | None = None
    """The usual level and what it is the level of, where weeks or days are known: `0.93 (the same hours of ...)`."""
    cause: str | None
    """The prompt version that started within a bucket of the shift, which then is its time.

    It serves the requests that changed, and no others changed.
    """
    mix: None = None
    """Always null."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A shift between two neighbouring parts of a series."""

    parts: tuple[slice, slice]
    before: Level
    after: Level
    sureness: float
    worse: bool

    def times(self, buckets: Sequence[_Timed]) -> tuple[datetime, datetime, datetime]:
        """Return the start of the first bucket before, of the first after, and of the last."""
        before, after = self.parts
        return buckets[before.start].start, buckets[after.start].start, buckets[after.stop - 1].start


class _Timed(Protocol):
    @property
    def start(self) -> datetime: ...


_Measure = Callable[[slice], tuple[Interval | None, int]]
"""Returns the interval of several buckets, and their number of answers."""


@dataclass(frozen=True, slots=True)
class _Series:
    """A metric by bucket, in order of time: values and weights."""

    metric: str
    unit: str
    low_is_worse: bool
    buckets: Sequence[_Timed]
    values: Sequence[float]
    weights: Sequence[float]
    measures: Sequence[_Measure]
    """Every one must be sure of a shift, the cheapest first; the last one is reported."""
    reported: Callable[[slice], float] | None = None
    """Returns the reported value, where the search uses another one."""
    added: Callable[[float], str] | None = None
    """Returns SQL for what a request adds to the metric, or to a share beyond a level: see `usual_level`."""


def changes(snapshot: Snapshot) -> list[Shift]:
    """Return the largest level shift of each metric, the surest first; versions of an evaluator are never compared."""
    markers = snapshot.markers()
    shifts = (_shift(series, snapshot, markers) for series in (*_quality(snapshot), *_traffic(snapshot)))
    return sorted(filter(None, shifts), key=lambda shift: -shift.sureness)


def _shift(series: _Series, snapshot: Snapshot, markers: Sequence[Marker]) -> Shift | None:
    size = max(1, math.ceil(len(series.values) / _MAX_POINTS))
    starts = range(0, len(series.values), size)
    if len(starts) < 2 * _LEAST_BUCKETS:
        return None
    weights = [math.fsum(series.weights[start : start + size]) for start in starts]
    values = [_mean(series.values[start : start + size], series.weights[start : start + size]) for start in starts]
    cuts = _sure_cuts(series, [0, *(starts[index] for index in change_points(values, weights)), len(series.values)])
    steps = [_between(series, *cuts[index : index + 3]) for index in range(len(cuts) - 2)]
    best = max(filter(None, steps), key=lambda step: step.sureness, default=None)
    if best is None:
        return None
    times = best.times(series.buckets)
    last = min(snapshot.window.end(times[2]), snapshot.window.last)
    added = series.added(best.before.value) if series.added else None
    usual = usual_level(snapshot, series.metric, times[1], last, added)
    if usual and not (usual.sure and (usual.after > usual.before) == (best.after.value > best.before.value)):
        return None
    within = 1.5 * timedelta(seconds=snapshot.window.bucket_s * size)
    time, rises = times[1], best.worse != series.low_is_worse
    near = (marker for marker in markers if abs(marker.t - time) <= within)
    causes = (marker for marker in near if _serves_the_change(marker, series.metric, snapshot, times, rises))
    cause = nearest(causes, time, within)
    return Shift(
        metric=series.metric,
        unit=series.unit,
        t=cause.t if cause else time,
        before=best.before,
        after=best.after,
        sureness=best.sureness,
        worse=best.worse,
        usually=usual_text(series.metric, usual) if usual and not added else None,
        cause=cause.text if cause else None,
    )


def _serves_the_change(
    marker: Marker, metric: str, snapshot: Snapshot, times: tuple[datetime, datetime, datetime], rises: bool
) -> bool:
    """Return whether the change is in the requests of a prompt's name and services, and in no others.

    Another count of requests moves the traffic only.
    """
    if marker.kind == COUNTING:
        return ":" not in metric
    served = "list_contains($served::VARCHAR[], coalesce(service, '')) AND prompt_name IS NOT DISTINCT FROM $prompt"
    parameters = {"served": list(marker.services), "prompt": marker.prompt}
    others, own = (
        _series_of(metric, snapshot.narrowed(Filter(sql, parameters))) for sql in (f"NOT ({served})", f"({served})")
    )
    if others is None:
        return True
    elsewhere, here = _move(others, times), None if own is None else _move(own, times)
    return not _is_sure(elsewhere, rises) and (here is None or _is_sure(here, rises))


def _is_sure(move: Interval | None, rises: bool) -> bool:
    return move is not None and (move.lo > 0.0 if rises else move.hi < 0.0)


def _move(series: _Series, times: tuple[datetime, datetime, datetime]) -> Interval | None:
    """Return the difference between the same two spans of time; None where a span has too few answers."""
    starts = [bucket.start for bucket in series.buckets]
    first, middle, stop = bisect_left(starts, times[0]), bisect_left(starts, times[1]), bisect_right(starts, times[2])
    if min(middle - first, stop - middle) < _LEAST_BUCKETS:
        return None
    (before, n), (after, m) = (series.measures[-1](part) for part in (slice(first, middle), slice(middle, stop)))
    return None if before is None or after is None or min(n, m) < _LEAST_ANSWERS else minus(after, before)


def _sure_cuts(series: _Series, cuts: list[int]) -> list[int]:
    """Return the cuts between levels that surely differ; others are removed, the smallest first."""

    def step(index: int) -> float:
        first, middle, last = cuts[index - 1 : index + 2]
        parts = (slice(first, middle), slice(middle, last))
        before, after = (_mean(series.values[part], series.weights[part]) for part in parts)
        return abs(after - before)

    while unsure := [
        index for index in range(1, len(cuts) - 1) if _between(series, *cuts[index - 1 : index + 2]) is None
    ]:
        cuts.remove(cuts[min(unsure, key=step)])
    return cuts


def _between(series: _Series, first: int, middle: int, last: int) -> _Step | None:
    """Return the shift between two neighbouring levels; None where it is small, unsure, or has too few answers."""
    if min(middle - first, last - middle) < _LEAST_BUCKETS:
        return None
    parts, step = (slice(first, middle), slice(middle, last)), None
    for measure in series.measures:
        step = _step_between(series, parts, measure)
        if step is None:
            return None
    return step


def _step_between(series: _Series, parts: tuple[slice, slice], measure: _Measure) -> _Step | None:
    (before, n), (after, m) = map(measure, parts)
    if before is None or after is None or min(n, m) < _LEAST_ANSWERS:
        return None
    move = minus(after, before)
    sureness = standard_errors(move)
    if sureness < SURE:
        return None
    was, is_now = _reported(series, parts[0], before, n), _reported(series, parts[1], after, m)
    size = (is_now.value - was.value) * math.copysign(1.0, move.value)
    if size < (_LEAST_SHARE if series.unit == "share" else _LEAST_RATIO * abs(was.value)):
        return None
    return _Step(
        parts=parts,
        before=was,
        after=is_now,
        sureness=min(sureness, _SUREST),
        worse=(move.value < 0) == series.low_is_worse,
    )


def _reported(series: _Series, part: slice, level: Interval, n: int) -> Level:
    if series.reported is not None:
        return Level(series.reported(part), None, None, n)
    return Level(level.value, level.lo, level.hi, n)


def _quality(snapshot: Snapshot, evaluator: str | None = None) -> list[_Series]:
    """Return a series per evaluator, or that of one: that of the version and judge in force."""
    by_evaluator: dict[str, list[Bucket]] = defaultdict(list)
    for bucket in snapshot.quality(evaluator):
        if bucket.estimate is not None and bucket.estimate.n_eff > 0 and not bucket.group:
            by_evaluator[bucket.evaluator].append(bucket)
    all_series = []
    for name, buckets in by_evaluator.items():
        newest = current(buckets)
        buckets_of_version = [bucket for bucket in buckets if newest and bucket.series == newest.series]
        buckets_of_version.sort(key=lambda bucket: bucket.start)
        figures = [
            (bucket.estimate.estimate, bucket.estimate.n_eff) for bucket in buckets_of_version if bucket.estimate
        ]
        values, weights = zip(*figures, strict=True)
        measures = (
            _spread(values, weights),
            _together(snapshot, buckets_of_version, partial(_judged, snapshot, buckets_of_version[0])),
        )
        all_series.append(_Series(f"quality:{name}", "share", True, buckets_of_version, values, weights, measures))
    return all_series


def _traffic(snapshot: Snapshot) -> list[_Series]:
    return [series for series in (read(snapshot) for read in _TRAFFIC.values()) if series.buckets]


def _series_of(metric: str, snapshot: Snapshot) -> _Series | None:
    """Return the series of one metric; None where there is no request with it."""
    read = _TRAFFIC.get(metric)
    found = _quality(snapshot, metric.partition(":")[2]) if read is None else [read(snapshot)]
    return next((series for series in found if series.buckets), None)


def _errors(snapshot: Snapshot) -> _Series:
    buckets = sorted((bucket for bucket in snapshot.traffic() if not bucket.group), key=lambda bucket: bucket.start)
    weights = [bucket.total("requests") for bucket in buckets]
    shares = [bucket.total("errors") / weight for bucket, weight in zip(buckets, weights, strict=True)]
    measures = _spread(shares, weights), _together(snapshot, buckets, partial(_failing, snapshot))
    return _Series("error_rate", "share", False, buckets, shares, weights, measures)


def _cost(snapshot: Snapshot) -> _Series:
    """Return the cost per request, capped at the range's 95th percentile; reported levels are not capped.

    Without a cap, a few expensive requests close together would be a change.
    """
    buckets = [bucket for bucket in snapshot.tails() if bucket.paid]
    weights = [bucket.paid / bucket.weight for bucket in buckets]
    means = [bucket.capped / bucket.paid for bucket in buckets]
    n = math.fsum(bucket.paid for bucket in buckets) or 1.0
    spread = max(
        0.0,
        math.fsum(bucket.squares for bucket in buckets) / n - (math.fsum(bucket.capped for bucket in buckets) / n) ** 2,
    )
    measure = _spread(means, weights, [math.sqrt(spread / weight) for weight in weights])

    def reported(part: slice) -> float:
        return math.fsum(bucket.cost for bucket in buckets[part]) / math.fsum(bucket.paid for bucket in buckets[part])

    added = "cost_usd".format
    return _Series("cost_usd", "USD", False, buckets, means, weights, [measure], reported, added)


def _latency(snapshot: Snapshot) -> _Series:
    """Return p95, searched by the share of requests above the range's 90th percentile.

    The percentile of few requests lies below that of many: each quiet night would be fast. The slowest tenth also has
    more requests than the slowest twentieth.
    """
    buckets = [bucket for bucket in snapshot.tails() if bucket.n]
    weights = [bucket.n / bucket.weight for bucket in buckets]
    shares = [bucket.slow / bucket.n for bucket in buckets]

    def p95(part: slice) -> float:
        inside = buckets[part]
        return snapshot.p95(inside[0].start, snapshot.window.end(inside[-1].start))

    added = "CASE WHEN latency_ms IS NOT NULL THEN (latency_ms > {})::INTEGER END".format
    return _Series("latency_p95", "ms", False, buckets, shares, weights, [_slow(shares, weights)], p95, added)


_TRAFFIC = {"error_rate": _errors, "cost_usd": _cost, "latency_p95": _latency}


def _together(
    snapshot: Snapshot, buckets: Sequence[_Timed], read: Callable[[Window], tuple[Interval | None, int]]
) -> _Measure:
    """Measure several buckets read together: a user of many buckets counts once."""

    @cache
    def between(start: int, stop: int) -> tuple[Interval | None, int]:
        last = snapshot.window.end(buckets[stop - 1].start)
        return read(Window(max(buckets[start].start, snapshot.window.first), min(last, snapshot.window.last), 0))

    return lambda part: between(*part.indices(len(buckets))[:2])


def _judged(snapshot: Snapshot, bucket_like: Bucket, part: Window) -> tuple[Interval | None, int]:
    """Return the interval of the same version and judge, whatever the missing verdicts are."""
    buckets = estimates(snapshot.store, bucket_like.evaluator, part, snapshot.filters)
    matches = (bucket for bucket in buckets if bucket.series == bucket_like.series)
    return next(((bucket.interval, bucket.estimate.n) for bucket in matches if bucket.estimate), (None, 0))


def _failing(snapshot: Snapshot, part: Window) -> tuple[Interval | None, int]:
    sums = failing(snapshot.store, part, snapshot.filters, ()).get(Place(None, ()))
    return (Interval.of(sums.estimate()), sums.n) if sums else (None, 0)


def _slow(shares: Sequence[float], weights: Sequence[float]) -> _Measure:
    """Measure the slow share with Wilson's interval; bursts of slow requests count less."""

    def measure(part: slice) -> tuple[Interval | None, int]:
        n, p = math.fsum(weights[part]), _mean(shares[part], weights[part])
        spread = math.fsum(w * (share - p) ** 2 for share, w in zip(shares[part], weights[part], strict=True))
        bursts = spread / (p * (1.0 - p)) / max(1, len(shares[part]) - 1) if 0.0 < p < 1.0 else 1.0
        alone = n / max(1.0, bursts)
        return Interval.of(wilson(p * alone, alone)), round(n)

    return measure


def _spread(values: Sequence[float], weights: Sequence[float], errors: Sequence[float] = ()) -> _Measure:
    """Measure the mean; its error is that of the spread, at least that of the standard errors."""

    def measure(part: slice) -> tuple[Interval | None, int]:
        inside, weight = weights[part], math.fsum(weights[part])
        middle = _mean(values[part], inside)
        spread = math.fsum(w * (value - middle) ** 2 for value, w in zip(values[part], inside, strict=True))
        own_error = math.sqrt(math.fsum((w * se) ** 2 for w, se in zip(inside, errors[part], strict=False))) / weight
        return Interval.normal(middle, max(own_error, math.sqrt(spread / (len(inside) - 1) / weight))), round(weight)

    return measure


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
