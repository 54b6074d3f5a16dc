"""Every figure with its interval: a metric over the buckets and groups of a query, readable at any confidence.

Traffic, quality, rates, counts, sums and percentiles come from here; monitors and targets decide by them. What a metric
is says one row of `traffic.NAMES` or of `MEASURES`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Bucket, Figures, current, estimates
from ragpulse_collector.analysis.quality.coverage import decision_counts
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.traffic import Traffic, adding, by_user, known_traffic, traffic_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, ESTIMATED, FINER, quantiles
from ragpulse_collector.store.protocol import Parameters
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, public_name
from ragpulse_evaluators.statistics import Moments, clopper_pearson
from ragpulse_evaluators.statistics.distributions import regularized_beta


@dataclass(frozen=True, slots=True)
class Condition:
    """`< 0.85`, `> 3000`, `change` or `no data`."""

    sign: Literal["<", ">", "change", "no data"]
    limit: float = 0.0


Read = Callable[[float], Figures]
"""Returns the reading of a measured metric at a confidence."""
_MIN_TRIALS = 1e6
"""The trials of the binomial that stands for a Poisson count."""


_NO_LIMIT = Condition("change")


def readings(store: Store, metric: str, query: Query, condition: Condition) -> dict[str, Read]:
    """Return the metric over the whole window per group (a JSON object as text), readable at any confidence."""
    past = _past(store, metric, query) if is_total(metric) else {}
    amounts = {group: amount for group, (amount, _) in past.items()}
    found = readings_by_bucket(store, metric, query.whole, condition, amounts).get(query.window.first, {})
    silent = {
        group_key(query.groups, group): partial(absent, metric, amount / windows)
        for group, (amount, windows) in past.items()
    }
    if not query.groups and traffic_of(metric):
        silent.setdefault("{}", partial(absent, metric, NEVER))
    return {**silent, **found}


_PAST = 28
"""The windows before that show how much a user adds at once."""
NEVER = 1.0 / (_PAST + 1)
"""The amount of a group that has been silent for all of them: together they are one zero."""


def _past(store: Store, metric: str, query: Query) -> dict[tuple[GroupValue, ...], tuple[float, float]]:
    """Return what a user typically added to a count in such windows before, and since how many nothing came, by group.

    A service that has been silent for several windows is surer to be than one that was for the last.
    """
    window, length = query.window, query.window.last - query.window.first
    past = Window(window.first - _PAST * length, window.first, max(1, round(length.total_seconds())), window.zone)
    of_traffic, keys = known_traffic(metric), ("t", *query.groups)
    source = adding(_added(metric, of_traffic), past, query.filters, (*query.groups, *of_traffic.labels))
    parameters = {**past.parameters, **query.filters.parameters}
    amounts = _typical((group, sums) for (_, *group), sums in by_user(store, source, keys, parameters).items())
    columns = "".join(f", {group}" for group in query.groups)
    latest = store.read(f"SELECT max(start_time){columns} FROM ({source}) GROUP BY ALL HAVING count(*) > 0", parameters)
    return {
        tuple(group): (amounts[tuple(group)], max(1.0, (window.last - last) / length)) for last, *group in latest.rows
    }


def _typical(
    sums_by_group: Iterable[tuple[Sequence[GroupValue], Moments]],
) -> dict[tuple[GroupValue, ...], float]:
    """Return Σs²/Σs of what a user added to each window, by group."""
    squares, added = (
        defaultdict[tuple[GroupValue, ...], float](float),
        defaultdict[tuple[GroupValue, ...], float](float),
    )
    for group, sums in sums_by_group:
        squares[tuple(group)] += sums.cluster_ss
        added[tuple(group)] += sums.wy
    return {group: squares[group] / total if total > 0.0 else 1.0 for group, total in added.items()}


def readings_by_bucket(
    store: Store,
    metric: str,
    query: Query,
    condition: Condition,
    amounts: Mapping[tuple[GroupValue, ...], float] = MappingProxyType({}),
) -> dict[datetime, dict[str, Read]]:
    """Return the metric by the start of each bucket and by group, from few queries.

    `amounts` is what a user typically adds to a count, by group. Without it several buckets show it, or the one does:
    then its users may be so few that each request has to stand alone.
    """
    family, _, evaluator = metric.partition(":")
    if family == "coverage":
        return _coverage(store, evaluator, query)
    if family not in MEASURES:
        if known_traffic(metric).quantile is None:
            return _traffic(store, metric, query, condition, amounts)
        places: dict[datetime, dict[str, Read]] = defaultdict(dict)
        for (at, *values), read in percentiles(store, metric, query, condition).items():
            places[at][group_key(query.groups, values)] = read
        return places
    by_place: dict[tuple[datetime, tuple[GroupValue, ...]], list[Bucket]] = defaultdict(list)
    for bucket in finest_estimates(store, evaluator, query.window, query.filters, query.groups, family, condition):
        by_place[bucket.start, bucket.group].append(bucket)
    by_bucket: dict[datetime, dict[str, Read]] = defaultdict(dict)
    for (start, group), buckets in by_place.items():
        if newest := current(buckets):
            by_bucket[start][group_key(query.groups, group)] = partial(quality_reading, newest)
    return by_bucket


def _coverage(store: Store, evaluator: str, query: Query) -> dict[datetime, dict[str, Read]]:
    """Return the share of the selected answers that were scored online."""
    window, filters, groups = query.window, query.filters, query.groups
    scored, found = Counter[tuple[Any, ...]](), defaultdict[datetime, dict[str, Read]](dict)
    for bucket in estimates(store, evaluator, window, filters, groups=groups):
        scored[bucket.start, bucket.group] += bucket.online.get("ok", 0)
    for one in decision_counts(store, window, filters, groups):
        if one.evaluator == evaluator:
            k = min(scored[one.start, one.group], one.selected)
            found[one.start][group_key(groups, one.group)] = partial(_exact, k, one.selected)
    return found


def finest_estimates(
    store: Store, evaluator: str, window: Window, filters: Filter, groups: tuple[str, ...], family: str,
    condition: Condition,
) -> list[Bucket]:  # fmt: skip
    """Estimate a measure of quality; of a small team's answers those of a session are dependent, at last none."""

    def read(cluster: str) -> dict[tuple[Any, ...], Bucket]:
        found = estimates(store, evaluator, window, filters, groups=groups, family=family, cluster=cluster)
        return {(one.start, one.group, one.series): one for one in found}

    return [*_finest(read, lambda bucket: bucket.moments, condition).values()]


Figure = TypeVar("Figure", Bucket, Moments)


def _finest(
    read: Callable[[str], dict[tuple[Any, ...], Figure]], sums: Callable[[Figure], Moments | None], condition: Condition
) -> dict[tuple[Any, ...], Figure]:
    """Return what is read with the requests of one user dependent.

    With fewer than five users those of a session are, with fewer sessions none; so they are where everything is beyond
    the limit: an outage must page a small team too.
    """
    found = read(CLUSTER)
    for cluster in FINER:
        if few := [key for key, one in found.items() if _too_few(sums(one), condition)]:
            finer = read(cluster)
            found |= {key: finer[key] for key in few if key in finer}
    return found


def _too_few(sums: Moments | None, condition: Condition) -> bool:
    """Whether clusters give no interval, or would hide that all of their answers are alike, and beyond the limit."""
    if sums is None or sums.trials() is None:
        return sums is not None
    beyond = sums.mean < condition.limit if condition.sign == "<" else sums.mean > condition.limit
    return sums.least == sums.most and beyond and condition.sign in ("<", ">")


def group_key(groups: Sequence[str], values: Sequence[GroupValue]) -> str:
    """Return the key of a group in states: a JSON object."""
    return json.dumps(dict(zip(map(public_name, groups), values, strict=True)), sort_keys=True, default=str)


def quality_reading(bucket: Bucket, confidence: float) -> Figures:
    """Return the value with bounds that hold far out in the tails, as small false-alarm rates need.

    The bounds hold whatever the missing verdicts are.
    """
    estimate = bucket.estimate_at(confidence)
    if estimate is None or bucket.moments is None:
        return Figures()
    lo, hi = bucket.limits(estimate)
    if bucket.bounded and lo is not None:
        p, trials = min(1.0, max(0.0, estimate.estimate)), bucket.moments.trials(confidence) or 0.0
        exact = _exact(p * trials, trials, confidence)
        if exact.lo is not None and exact.hi is not None:
            lo, hi = bucket.widen(exact.lo, exact.hi)
    return Figures(value=estimate.estimate, lo=lo, hi=hi, n=estimate.n)


def _exact(k: float, n: float, confidence: float) -> Figures:
    """Return Clopper and Pearson's (1934) interval of k in n, also for fractional numbers: it is conservative.

    A bounded score varies at most as much as a yes-or-no score with the same mean.
    """
    interval = clopper_pearson(k, n, confidence=confidence)
    if interval is None:
        return Figures()
    return Figures(value=interval.estimate, lo=interval.lo, hi=interval.hi, n=round(n))


def is_total(metric: str) -> bool:
    """Return whether a metric of the traffic is a count or a sum: without requests it is 0."""
    known = traffic_of(metric)
    return known is not None and known.each is None and known.quantile is None


def _added(metric: str, of_traffic: Traffic) -> str:
    """Return SQL for what a request adds to a mean, a count or a sum."""
    return of_traffic.each or of_traffic.of or ("error::INTEGER" if metric == "errors" else "1")


def _traffic(
    store: Store, metric: str, query: Query, condition: Condition, amounts: Mapping[tuple[GroupValue, ...], float]
) -> dict[datetime, dict[str, Read]]:
    """Return a mean, a count or a sum by bucket and group; the requests of one user are dependent."""
    of_traffic, window, groups = known_traffic(metric), query.window, query.groups
    is_mean, keys = of_traffic.each is not None, ("t", *groups)
    kept, columns = "y IS NOT NULL" if is_mean else "true", (*groups, *of_traffic.labels)
    source = adding(_added(metric, of_traffic), window, query.filters, columns, condition=kept)
    values = store.read(
        f"SELECT {of_traffic.sql or 'avg(y)'}, count(*), {', '.join(keys)} FROM ({source}) GROUP BY ALL",
        query.parameters,
    ).rows
    # Of a sum no limit is one of single requests.
    of_each = condition if is_mean else replace(condition, limit=0.0) if metric == "errors" else _NO_LIMIT
    if is_mean or not window.step_s:
        moments = _finest_sums(store, source, keys, query.parameters, of_each)
    else:
        moments = by_user(store, source, keys, query.parameters)
    typical = {**_typical((group, sums) for (_, *group), sums in moments.items()), **amounts}
    divisor = window.bucket_s if metric == "throughput" else 1.0

    def read(value: float | None, n: int, sums: Moments | None, amount: float, confidence: float) -> Figures:
        if value is None or sums is None:
            return replace(absent(metric, amount, confidence), n=n)
        if is_mean:
            return replace(_exact(sums.mean * (trials := _trials(sums, confidence)), trials, confidence), n=n)
        return replace(_total(value, sums.wy, amount, confidence, divisor), n=n)

    by_bucket: dict[datetime, dict[str, Read]] = defaultdict(dict)
    for value, n, start, *group in values:
        amount = typical.get(tuple(group), 1.0)
        by_bucket[start][group_key(groups, group)] = partial(read, value, n, moments.get((start, *group)), amount)
    for start in window.starts() if window.step_s and is_total(metric) else ():
        for name, amount in typical.items():
            by_bucket[start].setdefault(group_key(groups, name), partial(absent, metric, amount))
    return by_bucket


def _finest_sums(
    store: Store, source: str, keys: Sequence[str], parameters: Parameters, condition: Condition
) -> dict[tuple[Any, ...], Moments]:
    read = partial(by_user, store, source, keys, parameters)
    return _finest(lambda cluster: read(cluster=cluster), lambda sums: sums, condition)


def _trials(moments: Moments, confidence: float) -> float:
    return moments.trials(confidence) or moments.w**2 / moments.cluster_ww


def absent(metric: str, amount: float = 1.0, confidence: float = 0.95) -> Figures:
    """Return the reading of a group without requests: nothing was measured, but a count or a sum is 0.

    Its interval is that of a Poisson zero, in units of what a user typically adds.
    """
    return _total(0.0, 0.0, amount, confidence, 1.0) if is_total(metric) else Figures()


def _total(value: float, added: float, amount: float, confidence: float, divisor: float) -> Figures:
    """Return a count or a sum with the exact interval of a Poisson count, in units of what a user typically adds."""
    trials = max(_MIN_TRIALS, _MIN_TRIALS * added / amount)
    interval = clopper_pearson(added / amount, trials, confidence=confidence)
    assert interval is not None
    lo, hi = (float(end or 0.0) * trials * amount / divisor for end in (interval.lo, interval.hi))
    return Figures(value=value, lo=lo, hi=hi)


def percentiles(
    store: Store, metric: str, query: Query, condition: Condition = _NO_LIMIT
) -> dict[tuple[Any, ...], Read]:
    """Return a percentile by bucket and group, weighted where an upstream sampler dropped requests.

    Where every request is beyond the limit, each stands alone: see `_finest`.
    """
    quantile = known_traffic(metric).quantile
    assert quantile is not None, metric
    (column, share), keys = quantile, ("t", *query.groups)
    known, shares = f"{column} IS NOT NULL", _positions(share)
    source = adding("NULL", query.window, query.filters, query.groups, condition=known)
    columns = ", ".join(keys)
    rows = store.read(
        f"SELECT {columns}, quantile_cont({column}, {shares}), count(*), {ESTIMATED} FROM ({source})"
        f" GROUP BY {columns}",
        query.parameters,
    ).rows
    values = {tuple(row[:-3]): row[-3] for row in rows}
    point = f"SELECT {columns}, [quantile_cont({column}, {share!r})] FROM ({source}) GROUP BY {columns}"
    if any(row[-1] for row in rows):
        weighted = store.read(quantiles(source, column, shares, keys=keys), query.parameters).rows
        values = {tuple(key): found for *key, found in weighted}
        point = quantiles(source, column, (share,), keys=keys)
    beyond = (
        f"SELECT s.* EXCLUDE (y), ({column} > p.points[1])::INTEGER AS y"
        f" FROM ({source}) s JOIN ({point}) p({columns}, points)"
        f" ON {' AND '.join(f's.{key} IS NOT DISTINCT FROM p.{key}' for key in keys)}"
    )
    moments, limit = _finest_sums(store, beyond, keys, query.parameters, _NO_LIMIT), condition.limit
    outages = {
        key for key, found in values.items()
        if (condition.sign == ">" and found[0] > limit) or (condition.sign == "<" and found[-1] < limit)
    }  # fmt: skip
    if outages:
        alone = by_user(store, beyond, keys, query.parameters, cluster=FINER[-1])
        moments |= {key: alone[key] for key in outages}
    return {
        (key := tuple(row[:-3])): partial(_percentile, share, shares, values[key], row[-2], moments[key])
        for row in rows
    }


def _positions(share: float) -> list[float]:
    """Return the shares at which values are read: the percentile's own, and closer and closer to it."""
    steps = [10 ** (-number / 8.0) for number in range(21)]
    return [*(share - share * step for step in steps), share, *(share + (1.0 - share) * step for step in steps[::-1])]


def _percentile(
    share: float, shares: Sequence[float], values: Sequence[float], n: int, sums: Moments, confidence: float
) -> Figures:
    value = values[len(shares) // 2]
    low, high = positions_of(share, round(_trials(sums, confidence), 2), confidence)
    lo, hi = (None if place is None else _between(shares, values, place) for place in (low, high))
    return Figures(value=value, lo=lo, hi=hi, n=n, n_eff=sums.w**2 / sums.ww)


def _between(shares: Sequence[float], values: Sequence[float], place: float) -> float:
    above = min(bisect_left(shares, place), len(shares) - 1)
    low, high = shares[above - 1] if above else 0.0, shares[above]
    part = (place - low) / (high - low) if above and high > low else 1.0
    return values[above] if not above else values[above - 1] + part * (values[above] - values[above - 1])


@lru_cache(maxsize=4096)
def positions_of(share: float, n: float, confidence: float) -> tuple[float | None, float | None]:
    """Return the shares of n answers between whose values a percentile lies; None where too few show an end.

    A value lies surely above where Clopper and Pearson's interval of the share up to it does, and so below.
    """
    tail = (1.0 - confidence) / 2.0

    def surely_above(part: float) -> bool:
        return regularized_beta(share, part * n, n - part * n + 1.0) <= tail

    def surely_below(part: float) -> bool:
        return regularized_beta(share, part * n + 1.0, n - part * n) >= 1.0 - tail

    wide = 8.0 * math.sqrt(share * (1.0 - share) / n)
    high = _first(surely_above, share, min(1.0, share + wide), 1.0) if share**n <= tail else None
    low = _first(surely_below, share, max(0.0, share - wide), 0.0) if (1.0 - share) ** n <= tail else None
    return low, high


def _first(holds: Callable[[float], bool], inside: float, near: float, outside: float) -> float:
    """Return the share next to `inside` from which on it holds, up to `outside`, by halving."""
    outside = near if holds(near) else outside
    for _ in range(11):
        middle = (inside + outside) / 2.0
        inside, outside = (inside, middle) if holds(middle) else (middle, outside)
    return outside
