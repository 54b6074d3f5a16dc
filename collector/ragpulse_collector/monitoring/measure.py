"""The conditions of monitors and targets, and the reading of a metric over one window, with an interval."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.quality.coverage import coverage_rows
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.traffic import by_user, known_traffic, traffic_of, weighted_quantile
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import FINER, KEPT
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, public_name, with_columns
from ragpulse_evaluators.statistics import Moments, clopper_pearson

LOOKS = 4
"""Looks at a threshold per window."""
_YEAR_S = 365.25 * 86_400
_MIN_ALPHA = 1e-12
"""The smallest error of one side: a smaller one has no quantile."""
_CONDITION = re.compile(r"(<|>)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\Z")


@dataclass(frozen=True, slots=True)
class Condition:
    """`< 0.85`, `> 3000`, `change` or `no data`."""

    sign: Literal["<", ">", "change", "no data"]
    limit: float = 0.0


def parse(text: str) -> Condition:
    """Read a condition; raises Invalid that shows how to write one."""
    match word := text.strip():
        case "change" | "no data":
            return Condition(word)
    match = _CONDITION.match(word)
    if match is None:
        raise Invalid(f"condition {text!r}: write '< 0.85', '> 3000', 'change' or 'no data'")
    return Condition("<" if match[1] == "<" else ">", float(match[2]))


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric in one window with its interval; None where nothing was measured."""

    value: float | None
    lo: float | None
    hi: float | None
    n: float | None = None
    """Answers or requests behind it."""


def confidence_for(false_alarms_per_year: float, window_s: float, *, looks: float = LOOKS) -> float:
    """Return the two-sided confidence at which one side fails at most so often in a year of looks."""
    return 1.0 - 2.0 * max(_MIN_ALPHA, min(0.25, false_alarms_per_year * window_s / (looks * _YEAR_S)))


def decide(condition: Condition, strict: Reading, lenient: Reading, before: State) -> State:
    """Return the next state from two intervals: the strict interval must lie wholly beyond the limit to fire.

    Hysteresis: a firing monitor recovers only once the lenient interval lies wholly on the good side.
    """
    if strict.value is None:
        return "no data"
    if strict.lo is None or strict.hi is None or lenient.lo is None or lenient.hi is None:
        return before if before == "firing" else "undecided"
    below = condition.sign == "<"
    if strict.hi < condition.limit if below else strict.lo > condition.limit:
        return "firing"
    recovered = lenient.lo >= condition.limit if below else lenient.hi <= condition.limit
    if before == "firing":
        return "ok" if recovered else "firing"
    return "ok" if recovered else "undecided"


@dataclass(frozen=True, slots=True)
class Watched:
    """The traces and groups that a monitor watches."""

    filters: Filter
    groups: tuple[str, ...]
    others: int
    """The groups that are one, `(other)`."""

    def query(self, window: Window) -> Query:
        """Return what a look at a range covers."""
        return Query(window=window, filters=self.filters, groups=self.groups, now=window.last)


Read = Callable[[float], Reading]
"""Returns the reading of a measured metric at a confidence."""
_MIN_TRIALS = 1e6
"""The trials of the binomial that stands for a Poisson count."""


def readings(store: Store, metric: str, query: Query, condition: Condition) -> dict[str, Read]:
    """Return the metric over the whole window per group (a JSON object as text), readable at any confidence."""
    family, _, evaluator = metric.partition(":")
    if family == "coverage":
        buckets_of_window = estimates(store, evaluator, query.window.whole, query.filters)
        rows = coverage_rows(store, query.window, query.filters, buckets_of_window)
        row = next((row for row in rows if row.evaluator == evaluator), None)
        return {} if row is None else {"{}": partial(_exact, row.scored, row.selected)}
    found = readings_by_bucket(store, metric, query.whole, condition).get(query.window.first, {})
    if not found and family not in MEASURES and not query.groups:
        return {"{}": lambda _: absent(metric)}
    return found


def readings_by_bucket(
    store: Store, metric: str, query: Query, condition: Condition
) -> dict[datetime, dict[str, Read]]:
    """Return the metric (not coverage) by the start of each bucket and by group, from few queries."""
    family, _, evaluator = metric.partition(":")
    if family not in MEASURES:
        return _traffic(store, metric, query, condition)
    by_place: dict[tuple[datetime, tuple[GroupValue, ...]], list[Bucket]] = defaultdict(list)
    for bucket in finest_estimates(store, evaluator, query.window, query.filters, query.groups, family, condition):
        by_place[bucket.start, bucket.group].append(bucket)
    by_bucket: dict[datetime, dict[str, Read]] = defaultdict(dict)
    for (start, group), buckets in by_place.items():
        if newest := current(buckets):
            by_bucket[start][group_key(query.groups, group)] = partial(quality_reading, newest)
    return by_bucket


def finest_estimates(
    store: Store, evaluator: str, window: Window, filters: Filter, groups: tuple[str, ...], family: str,
    condition: Condition,
) -> list[Bucket]:  # fmt: skip
    """Estimate a measure of quality; of a small team's answers those of a session are dependent, at last none."""
    buckets = estimates(store, evaluator, window, filters, groups=groups, family=family)
    for cluster in FINER:
        if any(_too_few(bucket.moments, condition) for bucket in buckets):
            read = estimates(store, evaluator, window, filters, groups=groups, family=family, cluster=cluster)
            finer = {(one.start, one.group, one.series): one for one in read}
            buckets = [
                finer.get((one.start, one.group, one.series), one) if _too_few(one.moments, condition) else one
                for one in buckets
            ]
    return buckets


def _too_few(sums: Moments | None, condition: Condition) -> bool:
    """Whether clusters give no interval, or would hide that all of their answers are alike, and beyond the limit."""
    if sums is None or sums.trials() is None:
        return sums is not None
    beyond = sums.mean < condition.limit if condition.sign == "<" else sums.mean > condition.limit
    return sums.least == sums.most and beyond and condition.sign in ("<", ">")


def group_key(groups: Sequence[str], values: Sequence[GroupValue]) -> str:
    """Return the key of a group in states: a JSON object."""
    return json.dumps(dict(zip(map(public_name, groups), values, strict=True)), sort_keys=True, default=str)


def quality_reading(bucket: Bucket, confidence: float) -> Reading:
    """Return the value with bounds that hold far out in the tails, as small false-alarm rates need.

    The bounds hold whatever the missing verdicts are.
    """
    estimate = bucket.estimate_at(confidence)
    if estimate is None or bucket.moments is None:
        return Reading(None, None, None)
    lo, hi = bucket.limits(estimate)
    if bucket.bounded and lo is not None:
        p, trials = min(1.0, max(0.0, estimate.estimate)), bucket.moments.trials(confidence) or 0.0
        exact = _exact(p * trials, trials, confidence)
        if exact.lo is not None and exact.hi is not None:
            lo, hi = bucket.widen(exact.lo, exact.hi)
    return Reading(estimate.estimate, lo, hi, estimate.n)


def _exact(k: float, n: float, confidence: float) -> Reading:
    """Return Clopper and Pearson's (1934) interval of k in n, also for fractional numbers: it is conservative.

    A bounded score varies at most as much as a yes-or-no score with the same mean.
    """
    interval = clopper_pearson(k, n, confidence=confidence)
    return Reading(None, None, None) if interval is None else Reading(interval.estimate, interval.lo, interval.hi, n)


def _traffic(store: Store, metric: str, query: Query, condition: Condition) -> dict[datetime, dict[str, Read]]:
    """Return the value of the series by bucket; the requests of one user are dependent.

    With fewer than five users those of a session are, with fewer sessions none; so they are where everything is beyond
    the limit: an outage must page a small team too.
    """
    of_traffic = known_traffic(metric)
    quantile, is_mean = of_traffic.quantile, of_traffic.each is not None
    value_sql = (
        f"({quantile[0]} > $limit)::INTEGER"
        if quantile
        else of_traffic.each or of_traffic.of or ("error::INTEGER" if metric == "errors" else "1")
    )
    window, groups = query.window, query.groups
    keys = ("t", *groups)
    source = f"SELECT *, {window.bucket('start_time')} AS t, {KEPT} AS pi, {value_sql} AS y"
    source += (
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {query.filters.sql}"
        f"{' AND y IS NOT NULL' if is_mean else ''}"
    )
    parameters = {**query.parameters, **({"limit": condition.limit} if quantile else {})}
    values = store.read(
        f"SELECT {of_traffic.sql or 'avg(y)'}, count(*), {', '.join(keys)} FROM ({source}) GROUP BY ALL", parameters
    ).rows
    means = by_user(store, source, keys, parameters)
    if quantile and any(mean.estimated for mean in means.values()):
        quantiles = weighted_quantile(store, source, *quantile, parameters, keys=keys)
        values = [(quantiles.get(tuple(row[2:])), *row[1:]) for row in values]
    moments = {group: mean.moments for group, mean in means.items()}
    of_each = Condition("change")  # of a sum no limit is one of single requests
    if quantile or is_mean or metric == "errors":
        limit = 1.0 - quantile[1] if quantile else condition.limit if is_mean else 0.0
        of_each = replace(condition, limit=limit)
    for cluster in FINER:
        if few := [group for group, sums in moments.items() if _too_few(sums, of_each)]:
            finer = by_user(store, source, keys, parameters, cluster=cluster)
            moments |= {group: finer[group].moments for group in few if group in finer}

    def read(value: float | None, n: int, sums: Moments | None, confidence: float) -> Reading:
        if value is None or sums is None:
            return replace(absent(metric), n=n)
        if quantile is not None:
            reading = _beyond(value, _share(sums, confidence), quantile[1], condition.limit)
        elif is_mean:
            reading = _share(sums, confidence)
        else:
            reading = _total(value, sums, confidence, window.bucket_s if metric == "throughput" else 1.0)
        return replace(reading, n=n)

    by_bucket: dict[datetime, dict[str, Read]] = defaultdict(dict)
    for value, n, start, *group in values:
        by_bucket[start][group_key(groups, group)] = partial(read, value, n, moments[start, *group])
    return by_bucket


def _share(moments: Moments, confidence: float) -> Reading:
    trials = moments.trials(confidence) or moments.w**2 / moments.cluster_ww
    return _exact(moments.mean * trials, trials, confidence)


def absent(metric: str) -> Reading:
    """Return the reading of a group without requests: nothing was measured, but a count or a sum is 0."""
    known = traffic_of(metric)
    counted = known is not None and (known.count or (known.of and not known.each))
    return Reading(0.0, 0.0, 0.0, 0) if counted else Reading(None, None, None, 0)


def _beyond(value: float, share: Reading, quantile: float, limit: float) -> Reading:
    """Return a quantile's reading: it lies beyond a limit iff more than 1-q of the requests do.

    The bounds only show on which side of the limit the quantile lies.
    """
    if share.lo is None or share.hi is None:
        return Reading(None, None, None)
    beyond, within = share.lo > 1.0 - quantile, share.hi < 1.0 - quantile
    low, high = min(value, limit), max(value, limit)
    return Reading(value, math.nextafter(limit, math.inf) if beyond else low, limit if within else high)


def _total(value: float, moments: Moments, confidence: float, divisor: float) -> Reading:
    """Return a count or a sum with the exact interval of a Poisson count, in units of what a user typically adds."""
    typical_amount = moments.cluster_ss / moments.wy if moments.wy > 0.0 else 1.0
    trials = max(_MIN_TRIALS, _MIN_TRIALS * moments.wy / typical_amount)
    interval = clopper_pearson(moments.wy / typical_amount, trials, confidence=confidence)
    assert interval is not None
    lo, hi = (float(end or 0.0) * trials * typical_amount / divisor for end in (interval.lo, interval.hi))
    return Reading(value, lo, hi)
