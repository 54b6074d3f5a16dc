"""Plans how many traces to score, and checks quality against a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.calibration.decisive import decisive
from ragpulse_collector.analysis.limits import Decision, Limit, Measure, decided
from ragpulse_collector.analysis.quality import Bucket, changed_version, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.queries.scores import holds_versions, mean_cost, refuse_unclear
from ragpulse_evaluators.registry import default_registry
from ragpulse_evaluators.statistics import Estimate, Moments, needed_n

__all__ = ["Check", "Plan", "changed_meaning", "check", "plan"]

MIN_HALF_WIDTH = 0.0001
_LEAST_SPREAD = 0.001
_GUESS = 0.9
"""The assumed pass rate before anything was measured; 0.5 would be the least favourable."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of units to score for an interval of a given width; null where traffic or cost is unknown."""

    evaluator: str
    half_width: float
    assumed: float
    """The mean score that the number is for."""
    assumed_from: str
    n: int
    n_least: int | None
    """The range of `n`: the mean, and how alike answers of a user are, are known with an interval. Null without one."""
    n_most: int | None
    users: int | None
    """The users that these answers must come from; null where each answer counts as one of its own."""
    traces_per_day: float
    users_per_day: float
    """Different users of the range, per day."""
    rate_for_daily: float | None
    """Null also where a day has too few users at any rate."""
    rate_for_weekly: float | None
    days_at_full_rate: float | None
    cost_usd_each: float | None
    cost_usd: float | None
    cost_usd_per_day: float | None


def plan(store: Store, query: Query, evaluator: str, half_width: float) -> Plan:
    """Answer `GET plan`: how many traces must be scored for an interval of ± half_width (e.g. 0.02).

    Users are taken to ask as often, and answers of a user to be as alike, as in the range. Which rate that is of a
    day's (and a week's) traffic, and what it costs at the mean cost so far. Raises Invalid.
    """
    if not MIN_HALF_WIDTH <= half_width < 0.5:
        raise Invalid(
            f"half_width is at least {MIN_HALF_WIDTH} and below 0.5: a narrower interval needs a hundred million scores"
        )
    needed = _needed(current(estimates(store, evaluator, query.window, query.filters)), half_width)
    traces, users = store.read(
        f"SELECT count(*), count(DISTINCT {CLUSTER}) FROM traces"
        f" WHERE start_time >= $first AND start_time < $last AND {query.filters.sql}",
        query.parameters,
    ).rows[0]
    day = 86_400 / (query.window.last - query.window.first).total_seconds()
    a_day, users_a_day, n = traces * day, users * day, needed.n
    mean, unknown = mean_cost(store, evaluator)
    cost = None if unknown else mean
    return Plan(
        evaluator=evaluator,
        half_width=half_width,
        assumed=needed.mean,
        assumed_from=needed.source,
        n=n,
        n_least=needed.least,
        n_most=needed.most,
        users=needed.users,
        traces_per_day=a_day,
        users_per_day=users_a_day,
        rate_for_daily=_rate(needed, a_day, users_a_day),
        rate_for_weekly=_rate(needed, 7 * a_day, 7 * users_a_day),
        days_at_full_rate=max(n / a_day, (needed.users or 0) / users_a_day) if a_day else None,
        cost_usd_each=cost,
        cost_usd=None if cost is None else n * cost,
        cost_usd_per_day=None if cost is None or not a_day else min(n, a_day) * cost,
    )


@dataclass(frozen=True, slots=True)
class _Needed:
    """So many answers of so many users, at an assumed mean."""

    mean: float
    source: str
    n: int
    users: int | None = None
    least: int | None = None
    most: int | None = None


def _needed(bucket: Bucket | None, half: float) -> _Needed:
    """Return how many answers, and of how many users, have an interval of ± half."""
    if bucket is None or bucket.moments is None or bucket.estimate is None or bucket.estimate.lo is None:
        return _Needed(_GUESS, "nothing measured yet: assumed", needed_n(_GUESS, half))
    moments = bucket.moments
    times = moments.times_needed(half)
    n, mean = math.ceil(moments.n * times), min(1.0, max(0.0, moments.mean))
    least, most = (math.ceil(n * factor) for factor in _range(moments, bucket.estimate))
    if moments.clusters >= moments.n:
        return _Needed(mean, "measured", n, least=least, most=most)
    asker = "session" if bucket.identified == 1 else "user"
    source = (
        f"measured: a {asker} asks {moments.n / moments.clusters:.1f} times, answers alike by {moments.likeness:.2f}"
    )
    return _Needed(mean, source, n, math.ceil(moments.clusters * times), least, most)


def _range(moments: Moments, estimate: Estimate) -> tuple[float, float]:
    """Return by how much fewer and more answers may be needed: as the measured spread and likeness may be off.

    The spread of scores with this mean lies between those at the ends of the mean's interval. The error of the likeness
    is Fisher's (1925), from as many users as there are.
    """
    mean, rho = min(1.0, max(0.0, moments.mean)), moments.likeness
    ends = [end for end in (estimate.lo, estimate.hi, mean) if end is not None]
    spreads = [max(end * (1.0 - end), _LEAST_SPREAD) for end in ends]
    if min(ends) < 0.5 < max(ends):
        spreads.append(0.25)
    spread = max(mean * (1.0 - mean), _LEAST_SPREAD)
    alike = moments.cluster_ww / moments.ww - 1.0
    if alike <= 0.0:
        return min(spreads) / spread, max(spreads) / spread
    each = 1.0 + alike
    error = 1.96 * (1.0 - rho) * (1.0 + alike * rho) * math.sqrt(2.0 / (each * alike * max(1, moments.clusters - 1)))
    designs = [1.0 + alike * min(1.0, max(0.0, rho + sign * error)) for sign in (-1.0, 1.0)]
    design = 1.0 + alike * rho
    return min(spreads) / spread * designs[0] / design, max(spreads) / spread * designs[1] / design


def _rate(needed: _Needed, answers: float, users: float) -> float | None:
    """Return the share of so many answers that is needed; None without answers, or where users are too few."""
    return min(1.0, needed.n / answers) if answers and (needed.users or 0) <= users else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Decision):
    """Whether quality is above a limit."""

    note: str | None
    """A warning where the evaluator changed in the range, or the store holds scores of a former meaning."""


def check(
    store: Store, query: Query, evaluator: str, limit: Limit, *, measure: Measure = "quality", corrected: bool = True
) -> Check:
    """Answer `GET check`: is the quality of an evaluator at least `limit.min`, or at most `limit.max`?

    `measure` names another metric of the evaluator (`fail_rate`, `unclear_rate`, `pass_rate`). `corrected` false
    decides by the judge's figure also where enough labels correct it.

    `above` and `below` only where the whole 95 % interval lies on one side, whatever the missing verdicts are, else
    `undecided`. Raises NotFound where nothing was scored.
    """
    refuse_unclear(store, f"{measure}:{evaluator}")
    buckets = estimates(store, evaluator, query.window, query.filters, family=measure)
    bucket = current(buckets)
    if bucket is None or bucket.estimate is None:
        missing = f" ({bucket.missing.note})" if bucket else ""
        raise NotFound(f"{evaluator} scored nothing in this window{missing}: start a replay, or look further back")
    found = decisive(store, query, bucket, evaluator=evaluator, family=measure, corrected=corrected)
    notes = filter(None, (changed_version(buckets, bucket), changed_meaning(store, evaluator)))
    return extended(
        Check,
        decided(found.measured, limit, (evaluator, bucket.version, bucket.judge), measure),
        note="; ".join(notes) or None,
    )


def changed_meaning(store: Store, evaluator: str) -> str | None:
    """Return how the meaning of an evaluator's scores changed, while scores of the old meaning are stored, or None.

    A limit may have been chosen for the old meaning.
    """
    name = evaluator.partition("@")[0]
    former = next((entry.former for entry in default_registry().entries if entry.name == name), {})
    stored = [meaning for label, meaning in former.items() if holds_versions(store, name, [label])]
    return f"{name} changed its meaning: {'; '.join(stored)}" if stored else None
