"""Conditions of monitors, and the metric each watches: read over one window, with an interval."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of
from ragpulse_collector.analysis.traffic import NAMES, by_user, covered
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, public_name, with_columns
from ragpulse_evaluators.statistics import Moments, clopper_pearson

__all__ = [
    "LOOKS",
    "Condition",
    "Read",
    "Reading",
    "State",
    "absent",
    "confidence_for",
    "decide",
    "group_key",
    "parse",
    "quality_reading",
    "readings",
]

State = Literal["ok", "firing", "undecided", "no data"]
LOOKS = 4
"""A threshold is looked at this often per window."""
_YEAR_S = 365.25 * 86_400
_CONDITION = re.compile(r"(<|>)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\Z")


@dataclass(frozen=True, slots=True)
class Condition:
    """`< 0.85`, `> 3000`, `change` or `no data`."""

    sign: Literal["<", ">", "change", "no data"]
    limit: float = 0.0


def parse(text: str) -> Condition:
    """Read a condition; raises ValueError that shows how to write one."""
    word = text.strip()
    if word == "change":
        return Condition("change")
    if word == "no data":
        return Condition("no data")
    match = _CONDITION.match(text.strip())
    if match is None:
        raise ValueError(f"condition {text!r}: write '< 0.85', '> 3000', 'change' or 'no data'")
    return Condition("<" if match[1] == "<" else ">", float(match[2]))


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric in one window with its interval at the monitor's confidence; None where nothing was measured."""

    value: float | None
    lo: float | None
    hi: float | None
    n: float | None = None
    """Answers or requests behind it."""
    moments: Moments | None = None
    """What its values add up to where they are shares or scores from 0 to 1."""
    missing: float = 0.0
    """The share of the answers that have no verdict."""


def confidence_for(false_alarms_per_year: float, window_s: float, *, looks: float = LOOKS) -> float:
    """The two-sided confidence at which a year of so many looks a window falls to one side at most so often, in sum."""
    return 1.0 - 2.0 * min(0.25, false_alarms_per_year * window_s / (looks * _YEAR_S))


def decide(condition: Condition, sharp: Reading, easy: Reading, before: State) -> State:
    """The next state from two intervals: the sharp one must lie wholly beyond the limit to fire.

    Hysteresis: a firing monitor recovers only once the easier interval lies wholly on the good side.
    """
    if sharp.value is None:
        return before if before == "firing" else "no data"
    if sharp.lo is None or sharp.hi is None or easy.lo is None or easy.hi is None:
        return before if before == "firing" else "undecided"
    below = condition.sign == "<"
    if sharp.hi < condition.limit if below else sharp.lo > condition.limit:
        return "firing"
    recovered = easy.lo >= condition.limit if below else easy.hi <= condition.limit
    if before == "firing":
        return "ok" if recovered else "firing"
    return "ok" if recovered else "undecided"


Read = Callable[[float], Reading]
"""A metric that was measured, read at a confidence."""
_MANY = 1e6
"""Trials of which a Poisson count is a share."""


def readings(
    store: Store, metric: str, window: Window, options: Mapping[str, Any], condition: Condition
) -> dict[str, Read]:
    """The metric over the whole window per group (a JSON object as text), to be read at any confidence."""
    keep, groups = filter_of(options), dimensions(options)
    family, _, evaluator = metric.partition(":")
    if family == "coverage":
        seen = estimates(store, evaluator, window.whole, keep)
        row = next((row for row in covered(store, window, keep, seen) if row["evaluator"] == evaluator), None)
        return {} if row is None else {"{}": partial(_exact, row["scored"], row["selected"])}
    if family in MEASURES:
        found = estimates(store, evaluator, window.whole, keep, groups=groups, family=family)
        lines = {one.group: [other for other in found if other.group == one.group] for one in found}
        newest = {group: current(line) for group, line in lines.items()}
        return {group_key(groups, group): partial(quality_reading, one) for group, one in newest.items() if one}
    return _traffic(store, metric, window, keep, groups, condition)


def group_key(groups: Sequence[str], values: Sequence[Any]) -> str:
    """Name a group as states do: a JSON object."""
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
    within = one.moments.least >= 0.0 and one.moments.most <= 1.0
    return Reading(found.estimate, lo, hi, found.n, one.moments if within else None, one.missing_share)


def _exact(k: float, n: float, confidence: float) -> Reading:
    """Clopper and Pearson's (1934) interval of k in n, also for fractional numbers: never surer than it says.

    A bounded score varies at most as much as a yes-or-no one with its mean, so it may be treated as one.
    """
    found = clopper_pearson(k, n, confidence=confidence)
    return Reading(None, None, None) if found is None else Reading(found.estimate, found.lo, found.hi, n)


def _traffic(
    store: Store, metric: str, window: Window, keep: Filter, groups: tuple[str, ...], condition: Condition
) -> dict[str, Read]:
    """The value as the series shows it; its interval counts the requests of one user as dependent.

    Those of a session where fewer than five users asked: an outage must page a small team, too.
    """
    quantile, of = _quantile(metric), NAMES[metric].of
    column = "ttft_ms" if metric.startswith("ttft") else "latency_ms"
    y = f"({column} > $limit)::INTEGER" if quantile else of or ("error::INTEGER" if "error" in metric else "1")
    pi = "1.0" if quantile or metric == "error_rate" else "coalesce(upstream_pi, 1)"
    listed = "".join(f", {group}" for group in groups)
    source = f"SELECT *, {pi} AS pi, {y} AS y FROM {with_columns('traces', groups)}"
    source += f" WHERE start_time >= $first AND start_time < $last AND {keep.sql}"
    parameters = {**window.parameters, **keep.parameters, **({"limit": condition.limit} if quantile else {})}
    values = store.read(f"SELECT {NAMES[metric].sql}, count(*){listed} FROM ({source}) GROUP BY ALL", parameters).rows
    seen = {group: one.moments for group, one in by_user(store, source, groups, parameters).items()}
    if any(one is not None and one.trials() is None for one in seen.values()):
        sessions = by_user(store, source, groups, parameters, cluster=_SESSION)
        seen = {group: sessions[group].moments if one and one.trials() is None else one for group, one in seen.items()}

    def read(value: float | None, n: int, sums: Moments | None, confidence: float) -> Reading:
        if value is None or sums is None:
            return replace(absent(metric), n=n)
        if quantile is not None:
            reading = _beyond(value, _share(sums, confidence), quantile, condition.limit)
        elif metric == "error_rate":
            reading = _share(sums, confidence)
        else:
            reading = _total(value, sums, confidence, window.bucket_s if metric == "throughput" else 1.0)
        return replace(reading, n=n)

    return {group_key(groups, group): partial(read, value, n, seen[tuple(group)]) for value, n, *group in values}


_SESSION = "coalesce(hash(session_id), hash(trace_id))"


def _share(seen: Moments, confidence: float) -> Reading:
    trials = seen.trials(confidence) or seen.w**2 / seen.cluster_ww
    return replace(_exact(seen.mean * trials, trials, confidence), moments=seen)


def absent(metric: str) -> Reading:
    """Return the reading of a group without requests: nothing was measured, but a count or a sum is 0."""
    counted = metric in NAMES and (NAMES[metric].count or NAMES[metric].of)
    return Reading(0.0, 0.0, 0.0, 0) if counted else Reading(None, None, None, 0)


def _quantile(metric: str) -> float | None:
    return {"p50": 0.5, "p95": 0.95, "p99": 0.99}.get(metric.rpartition("_")[2])


def _beyond(value: float, share: Reading, quantile: float, limit: float) -> Reading:
    """A quantile lies beyond a limit iff more than 1-q of the requests do: the interval of that share decides.

    The bounds only say on which side of the limit the quantile is; between them it stays open.
    """
    if share.lo is None or share.hi is None:
        return Reading(None, None, None)
    beyond, within = share.lo > 1.0 - quantile, share.hi < 1.0 - quantile
    least, most = min(value, limit), max(value, limit)
    return Reading(value, math.nextafter(limit, math.inf) if beyond else least, limit if within else most)


def _total(value: float, seen: Moments, confidence: float, per: float) -> Reading:
    """A count or a sum with the exact interval of a Poisson count, in units of what one user typically adds."""
    each = seen.cluster_ss / seen.wy if seen.wy > 0.0 else 1.0
    many = max(_MANY, _MANY * seen.wy / each)
    found = clopper_pearson(seen.wy / each, many, confidence=confidence)
    assert found is not None
    lo, hi = (float(end or 0.0) * many * each / per for end in (found.lo, found.hi))
    return Reading(value, lo, hi)
