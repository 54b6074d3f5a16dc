"""Reads what a monitor watches: a metric over one window with an interval, or in buckets against a baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import NormalDist, median
from typing import Any

from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of
from ragpulse_collector.analysis.traffic import NAMES, covered
from ragpulse_collector.monitoring.conditions import Condition, Reading
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, public_name, with_columns
from ragpulse_evaluators.registry import nearest
from ragpulse_evaluators.statistics import Estimate, clopper_pearson

__all__ = ["Track", "absent", "check_change", "check_metric", "quality_reading", "readings", "tracks"]

CHANGES = frozenset({"requests", "errors", "error_rate"})
"""The metrics of the traffic whose changes are tested by counts."""
_LEAST_BUCKETS = 8
_EXPECTED = 5.0
"""Buckets are joined until so many passes and so many failures are expected in each: below it the normal law is off."""


_FAMILIES = (*MEASURES, "coverage")


def check_metric(metric: str, evaluators: Collection[str] = ()) -> None:
    """Raise ValueError unless the metric can be watched; `evaluators` are the known names.

    Another name than those is taken as that of scores which somebody sends, unless it looks like a slip.
    """
    family, colon, evaluator = metric.partition(":")
    if not colon and metric in NAMES:
        return
    if not evaluator or family not in _FAMILIES:
        possible = (*NAMES, *(f"{name}:<evaluator>" for name in _FAMILIES))
        hint = nearest(metric, possible) or f"; possible: {', '.join(possible)}"
        raise ValueError(f"no metric {metric!r}{hint}")
    name = evaluator.partition("@")[0]
    slip = "" if name in evaluators else nearest(name, evaluators, cutoff=0.8)
    if slip:
        raise ValueError(f"no evaluator {name!r}{slip}")


def check_change(metric: str) -> None:
    """Raise ValueError for a metric whose changes have no test with a known rate of false alarms."""
    if metric.partition(":")[0] not in MEASURES and metric not in CHANGES:
        raise ValueError(
            f"'change' is not offered for {metric}: its spread depends on the day's rhythm, so that false alarms could"
            f" not be promised; write a limit ('> 3000'), or watch {', '.join(sorted(CHANGES))} or a quality metric"
        )


def readings(
    store: Store, metric: str, window: Window, options: Mapping[str, Any], condition: Condition, confidence: float
) -> dict[str, Reading]:
    """The metric over the whole window per group (a JSON object as text), with its interval."""
    keep, groups = filter_of(options), dimensions(options)
    family, _, evaluator = metric.partition(":")
    if family == "coverage":
        seen = estimates(store, evaluator, window.whole, keep)
        row = next((row for row in covered(store, window, keep, seen) if row["evaluator"] == evaluator), None)
        return {"{}": _exact(row["scored"], row["selected"], confidence) if row else Reading(None, None, None)}
    if family in MEASURES:
        found = estimates(store, evaluator, window.whole, keep, groups=groups, family=family)
        lines = {one.group: [other for other in found if other.group == one.group] for one in found}
        newest = {group: current(line) for group, line in lines.items()}
        return {_key(groups, group): quality_reading(one, confidence) for group, one in newest.items() if one}
    return _traffic(store, metric, window, keep, groups, condition, confidence)


def _key(groups: Sequence[str], values: Sequence[Any]) -> str:
    return json.dumps(dict(zip(map(public_name, groups), values, strict=True)), sort_keys=True, default=str)


def quality_reading(one: Bucket, confidence: float) -> Reading:
    """The value with bounds that hold far out in the tails, where alerts with a small false-alarm rate live.

    They hold whatever the missing answers would have said.
    """
    found = one.estimate_at(confidence)
    if found is None or one.moments is None:
        return Reading(None, None, None)
    lo, hi = one.limits(found)
    if one.bounded and lo is not None:
        p, trials = min(1.0, max(0.0, found.estimate)), one.moments.trials(confidence) or 0.0
        exact = _exact(p * trials, trials, confidence)
        if exact.lo is not None and exact.hi is not None:
            lo, hi = one.widened(exact.lo, exact.hi)
    return Reading(found.estimate, lo, hi, found.n)


def _exact(k: float, n: float, confidence: float) -> Reading:
    """Clopper and Pearson's (1934) interval of k in n, also for fractional numbers: never surer than it says.

    A bounded score varies at most as much as a yes-or-no one with its mean, so it may be treated as one.
    """
    found = clopper_pearson(k, n, confidence=confidence)
    return Reading(None, None, None) if found is None else Reading(found.estimate, found.lo, found.hi, n)


def _traffic(
    store: Store,
    metric: str,
    window: Window,
    keep: Filter,
    groups: tuple[str, ...],
    condition: Condition,
    confidence: float,
) -> dict[str, Reading]:
    quantile = _quantile(metric)
    column = "ttft_ms" if metric.startswith("ttft") else "latency_ms"
    rows = store.read(
        f"SELECT {NAMES[metric].sql}, count({column}), count(*) FILTER ({column} > $limit), count(*),"
        f" sum({NAMES[metric].of or 0} ** 2){''.join(f', {group}' for group in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {**window.parameters, **keep.parameters, "limit": condition.limit},
    ).rows
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    found: dict[str, Reading] = {}
    for value, n, above, count, squares, *group in rows:
        if quantile is not None:
            reading = _beyond(value, n, above, quantile, condition.limit, confidence)
        elif metric == "error_rate":
            reading = _exact(value, count, confidence)
        else:
            reading = _total(metric, value, squares, z, (window.last - window.first).total_seconds())
        found[_key(groups, group)] = replace(reading, n=count)
    return found


def absent(metric: str) -> Reading:
    """Return the reading of a group without requests: nothing was measured, but a count or a sum is 0."""
    counted = metric in NAMES and (NAMES[metric].count or NAMES[metric].of)
    return Reading(0.0, 0.0, 0.0, 0) if counted else Reading(None, None, None, 0)


def _quantile(metric: str) -> float | None:
    return {"p50": 0.5, "p95": 0.95, "p99": 0.99}.get(metric.rpartition("_")[2])


def _beyond(value: float | None, n: int, above: int, quantile: float, limit: float, confidence: float) -> Reading:
    """A quantile lies beyond a limit iff more than 1-q of the requests do: the interval of that share decides.

    The bounds only say on which side of the limit the quantile is; between them it stays open.
    """
    share = _exact(above, n, confidence)
    if value is None or share.lo is None or share.hi is None:
        return Reading(None, None, None)
    beyond, within = share.lo > 1.0 - quantile, share.hi < 1.0 - quantile
    least, most = min(value, limit), max(value, limit)
    return Reading(value, math.nextafter(limit, math.inf) if beyond else least, limit if within else most)


def _total(metric: str, value: float | None, squares: float | None, z: float, seconds: float) -> Reading:
    """A count varies like Poisson's; a sum of costs or tokens by the root of its squares."""
    if value is None:
        return absent(metric)
    half = z * math.sqrt(squares if NAMES[metric].of and squares else max(value, 1.0))
    scale = seconds if metric == "throughput" else 1.0
    return Reading(value / scale, max(0.0, value - half) / scale, (value + half) / scale)


@dataclass(frozen=True, slots=True)
class Track:
    """A metric in buckets after its baseline: times, values, standard errors, and the level before."""

    group: str
    times: list[datetime]
    values: list[float]
    sigmas: list[float]
    target: float


def tracks(store: Store, metric: str, baseline: Window, recent: Window, options: Mapping[str, Any]) -> list[Track]:
    """Per group the recent buckets with their standard errors, and the baseline's level, where there is one."""
    keep, groups = filter_of(options), dimensions(options)
    family, _, evaluator = metric.partition(":")
    if family in MEASURES:
        before = estimates(store, evaluator, baseline.whole, keep, groups=groups, family=family)
        after = estimates(store, evaluator, recent, keep, groups=groups, family=family)
        levels = {(one.group, one.version, one.judge): one.estimate for one in before}
        found = [
            _quality_track(
                _key(groups, key[0]), level, [one for one in after if (one.group, one.version, one.judge) == key]
            )
            for key, level in levels.items()
            if level is not None
        ]
    else:
        before_rows, after_rows = (_buckets(store, metric, window, keep, groups) for window in (baseline, recent))
        found = [_traffic_track(key, before_rows[key], after_rows.get(key, [])) for key in before_rows]
    return [track for track in found if track is not None]


def _quality_track(group: str, level: Estimate, buckets: Sequence[Bucket]) -> Track | None:
    """Buckets in units of one answer's spread in the baseline: a bucket of equal scores is not infinitely sure."""
    target, kish = level.estimate, level.n_eff
    one = max(level.se or 0.0, 0.0) ** 2 * kish
    one = max(one, max(0.005, target * (1.0 - target)) * 0.25)
    times, values, sigmas = [], [], []
    weight, total, began = 0.0, 0.0, None
    need = min(target, 1.0 - target) if 0.0 < target < 1.0 else 0.005
    for bucket in buckets:
        if bucket.estimate is None:
            continue
        began = began or bucket.at
        weight += bucket.estimate.n_eff
        total += bucket.estimate.n_eff * bucket.estimate.estimate
        if weight * max(0.005, need) >= _EXPECTED:
            times.append(began)
            values.append(total / weight)
            sigmas.append(math.sqrt(one / weight + one / kish))
            weight, total, began = 0.0, 0.0, None
    return Track(group, times, values, sigmas, target)


def _buckets(
    store: Store, metric: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> dict[str, list[tuple[datetime, float]]]:
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {NAMES[metric].sql}, count(*){''.join(f', {g}' for g in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL ORDER BY t",
        {**window.parameters, **keep.parameters},
    ).rows
    found: dict[str, list[tuple[datetime, float]]] = {}
    for at, value, count, *group in rows:
        if value is not None:
            share = value / count if metric == "error_rate" else value
            found.setdefault(_key(groups, group), []).append((at, float(share)))
    return found


def _traffic_track(
    group: str, before: Sequence[tuple[datetime, float]], after: Sequence[tuple[datetime, float]]
) -> Track | None:
    """The spread is that of the baseline's own buckets, robustly: the day's rhythm is part of it."""
    if len(before) < _LEAST_BUCKETS:
        return None
    values = [value for _, value in before]
    target = median(values)
    sigma = 1.4826 * median(abs(value - target) for value in values)
    sigma = max(sigma, 0.01 * abs(target), 1e-9)
    return Track(group, [at for at, _ in after], [value for _, value in after], [sigma] * len(after), target)
