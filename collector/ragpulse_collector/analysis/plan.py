"""Plans how many traces to score, and checks quality against a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.quality import Bucket, Measured, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import holds_versions, mean_cost, refuse_unclear
from ragpulse_dashboards.words import called
from ragpulse_evaluators.registry import default_registry
from ragpulse_evaluators.statistics import needed_n

__all__ = ["Check", "Limit", "Plan", "changed_meaning", "check", "plan"]

MIN_HALF_WIDTH = 0.0001
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
    traces_per_day: float
    rate_for_daily: float | None
    rate_for_weekly: float | None
    days_at_full_rate: float | None
    cost_usd_each: float | None
    cost_usd: float | None
    cost_usd_per_day: float | None


def plan(store: Store, query: Query, evaluator: str, half_width: float) -> Plan:
    """Answer `GET plan`: how many traces must be scored for an interval of ± half_width (e.g. 0.02).

    Which rate that is of a day's (and a week's) traffic, and what it costs at the mean cost so far. Raises Invalid.
    """
    if not MIN_HALF_WIDTH <= half_width < 0.5:
        raise Invalid(
            f"half_width is at least {MIN_HALF_WIDTH} and below 0.5: a narrower interval needs a hundred million scores"
        )
    traces = store.read(
        f"SELECT count(*) FROM traces WHERE start_time >= $first AND start_time < $last AND {query.filters.sql}",
        query.parameters,
    ).rows[0][0]
    a_day = traces * 86_400 / (query.window.last - query.window.first).total_seconds()
    rate, source, n = _needed(current(estimates(store, evaluator, query.window, query.filters)), half_width)
    mean, unknown = mean_cost(store, evaluator)
    cost = None if unknown else mean
    return Plan(
        evaluator=evaluator,
        half_width=half_width,
        assumed=rate,
        assumed_from=source,
        n=n,
        traces_per_day=a_day,
        rate_for_daily=min(1.0, n / a_day) if a_day else None,
        rate_for_weekly=min(1.0, n / (7 * a_day)) if a_day else None,
        days_at_full_rate=n / a_day if a_day else None,
        cost_usd_each=cost,
        cost_usd=None if cost is None else n * cost,
        cost_usd_per_day=None if cost is None or not a_day else min(n, a_day) * cost,
    )


def _needed(bucket: Bucket | None, half: float) -> tuple[float, str, int]:
    """Return the assumed rate, its source, and n; spread of graded scores and unequal weights count."""
    if bucket is None or bucket.estimate is None:
        return _GUESS, "nothing measured yet: assumed", needed_n(_GUESS, half)
    estimate = bucket.estimate
    rate = min(1.0, max(0.0, estimate.estimate))
    design = estimate.n / estimate.n_eff if estimate.n_eff else 1.0
    n = needed_n(rate, half)
    if estimate.se is not None and estimate.se > 0 and estimate.n > 1:
        spread = estimate.se**2 * estimate.n_eff
        if spread < 0.999 * rate * (1 - rate):
            n = math.ceil(spread * (1.96 / half) ** 2)
    return rate, "measured", math.ceil(n * design)


@dataclass(frozen=True, slots=True)
class Limit:
    """The least or the greatest acceptable value; one of the two is None."""

    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, least: float | None, most: float | None) -> Limit:
        """Return the limit that is given; raises Invalid for none, for both, and outside 0 to 1."""
        if (least is None) == (most is None):
            raise Invalid("give min or max, a number between 0 and 1")
        limit = cls(least, most)
        if not 0 <= limit.value <= 1:
            bound = "min" if most is None else "max"
            raise Invalid(f"{bound} lies between 0 and 1: it is compared with the normalized score")
        return limit

    @property
    def value(self) -> float:
        """The one that is given."""
        value = self.max if self.min is None else self.min
        assert value is not None
        return value


Verdict = Literal["above", "below", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Measured):
    """Whether quality is above a limit."""

    evaluator: str
    version: str | None
    judge: str | None
    measure: str
    min: float | None
    max: float | None
    verdict: Verdict
    note: str | None
    """A warning where the store holds scores of a former meaning."""
    markdown: str


def check(store: Store, query: Query, evaluator: str, limit: Limit, *, measure: str = "quality") -> Check:
    """Answer `GET check`: is the quality of an evaluator at least `limit.min`, or at most `limit.max`?

    `measure` names another metric of the evaluator (`fail_rate`, `unclear_rate`, `pass_rate`).

    `above` and `below` only where the whole 95 % interval lies on one side, whatever the missing verdicts are, else
    `undecided`. Raises NotFound where nothing was scored.
    """
    refuse_unclear(store, f"{measure}:{evaluator}")
    bucket = current(estimates(store, evaluator, query.window, query.filters, family=measure))
    if bucket is None or bucket.estimate is None:
        missing = f" ({bucket.missing.note})" if bucket else ""
        raise NotFound(f"{evaluator} scored nothing in this window{missing}: start a replay, or look further back")
    verdict = _verdict(*bucket.limits(bucket.estimate), limit.value)
    return extended(
        Check,
        bucket.measured,
        evaluator=evaluator,
        version=bucket.version,
        judge=bucket.judge,
        measure=measure,
        min=limit.min,
        max=limit.max,
        verdict=verdict,
        note=changed_meaning(store, evaluator),
        markdown=_markdown(bucket, measure, limit.value, verdict),
    )


def _verdict(lo: float | None, hi: float | None, limit: float) -> Verdict:
    if lo is not None and lo >= limit:
        return "above"
    return "below" if hi is not None and hi < limit else "undecided"


def changed_meaning(store: Store, evaluator: str) -> str | None:
    """Return how the meaning of an evaluator's scores changed, while scores of the old meaning are stored, or None.

    A limit may have been chosen for the old meaning.
    """
    name = evaluator.partition("@")[0]
    former = next((entry.former for entry in default_registry().entries if entry.name == name), {})
    stored = [meaning for label, meaning in former.items() if holds_versions(store, name, [label])]
    return f"{name} changed its meaning: {'; '.join(stored)}" if stored else None


def _markdown(bucket: Bucket, measure: str, limit: float, verdict: Verdict) -> str:
    sign = {"above": "≥", "below": "<", "undecided": "?"}[verdict]
    return (
        f"| evaluator | {measure} (95 % interval) | limit | verdict |\n|---|---|---|---|\n"
        f"| {called(bucket.evaluator)} {bucket.version or ''} | {bucket.words} | {sign} {limit} | **{verdict}** |"
    )
