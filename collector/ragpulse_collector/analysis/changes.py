"""What changed in a range: the level shift of each stored series, ranked by its size over its uncertainty."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import Window, instant, iso
from ragpulse_collector.analysis.traffic import failing
from ragpulse_evaluators.statistics import Interval, change_points, minus, wilson

__all__ = ["changes"]

_MOST_POINTS = 60
"""Neighbouring buckets are joined above this many: the time that the search takes grows with their square."""
_LEAST_ANSWERS, _LEAST_BUCKETS = 20, 2
"""A level rests on at least so many."""
_SURE = 3.0
"""A shift smaller than this many standard errors is noise."""
_SUREST = 1000.0
"""Levels without any spread differ for sure."""
_LEAST_SHARE, _LEAST_RATIO = 0.02, 0.1
"""With many answers the smallest shift is sure: one that nobody would act on is left out."""


@dataclass(frozen=True, slots=True)
class _Series:
    """A metric by bucket, in order of time: what each bucket says, and its weight."""

    metric: str
    unit: str
    low_is_worse: bool
    buckets: Sequence[Any]
    values: Sequence[float]
    weights: Sequence[float]
    levels: Sequence[_Level]
    """The value of several buckets together, with its interval, and how many answers it rests on.

    All of them must be sure of a shift, the quickest first; the last one is shown.
    """
    shown: Callable[[slice], float] | None = None
    """The value that people know the metric by, where the search looks at another one."""


def changes(asked: Snapshot) -> list[dict[str, Any]]:
    """Return the largest level shift of each metric: `metric`, `unit`, `t`, `before`, `after`, `sureness`, `worse`.

    `sureness` is the size of the shift in standard errors; the surest comes first. `cause` names the prompt version
    that began within a bucket of the shift, which then is the time `t`. Versions of an evaluator are never compared.
    """
    marked = [(instant(one["t"], now=asked.now), one["text"]) for one in asked.markers()]
    found = (_shift(series, asked, marked) for series in (*_quality(asked), *_traffic(asked)))
    return sorted((one for one in found if one), key=lambda one: -one["sureness"])


def _shift(series: _Series, asked: Snapshot, marked: Sequence[tuple[Any, str]]) -> dict[str, Any] | None:
    size = max(1, math.ceil(len(series.values) / _MOST_POINTS))
    starts = range(0, len(series.values), size)
    if len(starts) < 2 * _LEAST_BUCKETS:
        return None
    weights = [math.fsum(series.weights[at : at + size]) for at in starts]
    values = [_mean(series.values[at : at + size], series.weights[at : at + size]) for at in starts]
    cuts = _sure(series, [0, *(starts[index] for index in change_points(values, weights)), len(series.values)])
    shifts = [_between(series, *cuts[index : index + 3]) for index in range(len(cuts) - 2)]
    best = max((one for one in shifts if one), key=lambda one: one["sureness"], default=None)
    if best is None:
        return None
    at = series.buckets[best.pop("at")].at
    step = timedelta(seconds=asked.window.bucket_s * size)
    near = [one for one in marked if one[0] and abs(one[0] - at) <= 1.5 * step]
    began, cause = min(near, key=lambda one: abs(one[0] - at), default=(at, None))
    return {"metric": series.metric, "unit": series.unit, "t": iso(began), "cause": cause, **best}


def _sure(series: _Series, cuts: list[int]) -> list[int]:
    """The cuts between levels that differ for sure; of the others the smallest goes first, and joins what it parted."""

    def step(at: int) -> float:
        first, middle, last = cuts[at - 1 : at + 2]
        parts = (slice(first, middle), slice(middle, last))
        before, after = (_mean(series.values[part], series.weights[part]) for part in parts)
        return abs(after - before)

    while unsure := [at for at in range(1, len(cuts) - 1) if _between(series, *cuts[at - 1 : at + 2]) is None]:
        cuts.remove(cuts[min(unsure, key=step)])
    return cuts


def _between(series: _Series, first: int, middle: int, last: int) -> dict[str, Any] | None:
    """The shift between two neighbouring levels; None where it is small, unsure, or rests on too little."""
    if min(middle - first, last - middle) < _LEAST_BUCKETS:
        return None
    parts, found = (slice(first, middle), slice(middle, last)), None
    for level in series.levels:
        found = _moved(series, parts, level(parts[0]), level(parts[1]))
        if found is None:
            return None
    return found


def _moved(
    series: _Series, parts: tuple[slice, slice], one: tuple[Interval | None, int], other: tuple[Interval | None, int]
) -> dict[str, Any] | None:
    (before, n), (after, m) = one, other
    if before is None or after is None or min(n, m) < _LEAST_ANSWERS:
        return None
    move = minus(after, before)
    error = (move.hi - move.lo) / 2 / 1.96
    if abs(move.value) < _SURE * error or not move.value:
        return None
    levels = _shown(series, parts[0], before, n), _shown(series, parts[1], after, m)
    size = (levels[1]["value"] - levels[0]["value"]) * math.copysign(1.0, move.value)
    if size < (_LEAST_SHARE if series.unit == "share" else _LEAST_RATIO * abs(levels[0]["value"])):
        return None
    return {
        "at": parts[1].start,
        "before": levels[0],
        "after": levels[1],
        "sureness": abs(move.value) / max(error, abs(move.value) / _SUREST),
        "worse": (move.value < 0) == series.low_is_worse,
    }


def _shown(series: _Series, part: slice, level: Interval, n: int) -> dict[str, Any]:
    if series.shown is not None:
        return {"value": series.shown(part), "lo": None, "hi": None, "n": n}
    return {"value": level.value, "lo": level.lo, "hi": level.hi, "n": n}


def _quality(asked: Snapshot) -> list[_Series]:
    """One series per evaluator: that of the version and judge in force."""
    lines: dict[str, list[Bucket]] = defaultdict(list)
    for one in asked.quality(None):
        if one.estimate is not None and one.estimate.n_eff > 0 and not one.group:
            lines[one.evaluator].append(one)
    found = []
    for evaluator, buckets in lines.items():
        newest = current(buckets)
        line = [one for one in buckets if newest and (one.version, one.judge) == (newest.version, newest.judge)]
        line.sort(key=lambda one: one.at)
        figures = [(one.estimate.estimate, one.estimate.n_eff) for one in line if one.estimate]
        values, weights = zip(*figures, strict=True)
        levels = _level(values, weights), _together(asked, line, partial(_judged, asked, line[0]))
        found.append(_Series(f"quality:{evaluator}", "share", True, line, values, weights, levels))
    return found


def _traffic(asked: Snapshot) -> list[_Series]:
    return [series for series in (_errors(asked), _cost(asked), _latency(asked)) if series.buckets]


def _errors(asked: Snapshot) -> _Series:
    line = sorted((one for one in asked.traffic() if not one.group), key=lambda one: one.at)
    weights = [float(one.values["n"]) for one in line]
    shares = [one.values["error_rate"] / one.values["n"] for one in line]
    levels = _level(shares, weights), _together(asked, line, partial(_failing, asked))
    return _Series("error_rate", "share", False, line, shares, weights, levels)


def _cost(asked: Snapshot) -> _Series:
    """The cost per request, of which no request counts for more than 95 % of the range's; the levels are told whole.

    A few expensive requests would make a change of any range in which they lie close together.
    """
    line = [one for one in asked.tails() if one.paid]
    weights = [float(one.paid) for one in line]
    means = [one.capped / one.paid for one in line]
    n = math.fsum(weights) or 1.0
    spread = max(0.0, math.fsum(one.squares for one in line) / n - (math.fsum(one.capped for one in line) / n) ** 2)
    level = _level(means, weights, [math.sqrt(spread / weight) for weight in weights])

    def shown(part: slice) -> float:
        return math.fsum(one.cost for one in line[part]) / math.fsum(weights[part])

    return _Series("cost_usd", "USD", False, line, means, weights, [level], shown)


def _latency(asked: Snapshot) -> _Series:
    """p95 by the share of each bucket's requests that is slower than 90 % of the range's; the levels are told as p95.

    The percentile of a few requests lies below that of many: with it, each night of little traffic would be fast. A
    tenth of the requests shows a shift that a twentieth is too few for.
    """
    line = [one for one in asked.tails() if one.n]
    weights = [float(one.n) for one in line]
    shares = [one.slow / one.n for one in line]
    step = timedelta(seconds=asked.window.bucket_s)

    def p95(part: slice) -> float:
        inside = line[part]
        return asked.p95(inside[0].at, inside[-1].at + step)

    return _Series("latency_p95", "ms", False, line, shares, weights, [_slow(shares, weights)], p95)


_Level = Callable[[slice], tuple[Interval | None, int]]


def _together(asked: Snapshot, line: Sequence[Any], read: Callable[[Window], tuple[Interval | None, int]]) -> _Level:
    """The level of several buckets; read for the few cuts there are, since a user of many buckets is one."""

    @cache
    def between(start: int, stop: int) -> tuple[Interval | None, int]:
        last = line[stop - 1].at + timedelta(seconds=asked.window.bucket_s)
        return read(Window(max(line[start].at, asked.window.first), min(last, asked.window.last), 0))

    return lambda part: between(*part.indices(len(line))[:2])


def _judged(asked: Snapshot, like: Bucket, part: Window) -> tuple[Interval | None, int]:
    """What the same version and judge say, whatever the missing answers would have said."""
    found = estimates(asked.store, like.evaluator, part, asked.keep)
    same = (one for one in found if (one.version, one.judge) == (like.version, like.judge))
    return next(((one.interval, one.estimate.n) for one in same if one.estimate), (None, 0))


def _failing(asked: Snapshot, part: Window) -> tuple[Interval | None, int]:
    found = failing(asked.store, part, asked.keep, ()).get((None,))
    moments = found.moments if found else None
    return (Interval.of(moments.estimate()), moments.n) if moments else (None, 0)


def _slow(shares: Sequence[float], weights: Sequence[float]) -> _Level:
    """The slow share of several buckets with Wilson's interval; slow requests that come in bursts count for fewer."""

    def level(part: slice) -> tuple[Interval | None, int]:
        n, p = math.fsum(weights[part]), _mean(shares[part], weights[part])
        spread = math.fsum(w * (share - p) ** 2 for share, w in zip(shares[part], weights[part], strict=True))
        bursts = spread / (p * (1.0 - p)) / max(1, len(shares[part]) - 1) if 0.0 < p < 1.0 else 1.0
        alone = n / max(1.0, bursts)
        return Interval.of(wilson(p * alone, alone)), round(n)

    return level


def _level(values: Sequence[float], weights: Sequence[float], errors: Sequence[float] = ()) -> _Level:
    """The mean of several buckets; its error is that of their spread, at least that of their own standard errors."""

    def level(part: slice) -> tuple[Interval | None, int]:
        inside, weight = weights[part], math.fsum(weights[part])
        middle = _mean(values[part], inside)
        spread = math.fsum(w * (value - middle) ** 2 for value, w in zip(values[part], inside, strict=True))
        own = math.sqrt(math.fsum((w * se) ** 2 for w, se in zip(inside, errors[part], strict=False))) / weight
        return Interval.normal(middle, max(own, math.sqrt(spread / (len(inside) - 1) / weight))), round(weight)

    return level


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
