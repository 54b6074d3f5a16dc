"""Plans how many traces to score, and checks quality against a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.selection import filter_of, range_of
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.scores import holds_versions, mean_cost, refuse_unclear
from ragpulse_dashboards.words import called
from ragpulse_evaluators.registry import default_registry
from ragpulse_evaluators.statistics import needed_n

__all__ = ["changed_meaning", "check", "plan"]

MIN_HALF_WIDTH = 0.0001
_GUESS = 0.9
"""The assumed pass rate before anything was measured; 0.5 would be the least favourable."""


def plan(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET plan`: `evaluator`, `half_width` (e.g. 0.02), `from` (default 7 days), filters.

    How many traces must be scored for an interval of ± half_width, which rate that is of a day's (and a week's)
    traffic, and what it costs at the mean cost so far (null where unknown).
    """
    name, half = str(params.get("evaluator") or ""), _half_width(params)
    window = range_of(params, now=clock(), back="7d")
    filters = filter_of(params)
    traces = store.read(
        f"SELECT count(*) FROM traces WHERE start_time >= $first AND start_time < $last AND {filters.sql}",
        {**window.parameters, **filters.parameters},
    ).rows[0][0]
    days = (window.last - window.first).total_seconds() / 86_400
    bucket = current(estimates(store, name, window, filters))
    rate, source, n = _needed(bucket, half)
    cost, unknown = mean_cost(store, name)
    a_day = traces / days
    return {
        "evaluator": name,
        "half_width": half,
        "assumed": rate,
        "assumed_from": source,
        "n": n,
        "traces_per_day": a_day,
        "rate_for_daily": None if not a_day else min(1.0, n / a_day),
        "rate_for_weekly": None if not a_day else min(1.0, n / (7 * a_day)),
        "days_at_full_rate": None if not a_day else n / a_day,
        "cost_usd_each": None if unknown else cost,
        "cost_usd": None if cost is None or unknown else n * cost,
        "cost_usd_per_day": None if cost is None or unknown or not a_day else min(n, a_day) * cost,
    }


def _half_width(params: Mapping[str, Any]) -> float:
    try:
        half = float(params.get("half_width") or "nothing")
    except ValueError:
        raise Invalid("half_width is a number like 0.02") from None
    if not MIN_HALF_WIDTH <= half < 0.5:
        raise Invalid(
            f"half_width is at least {MIN_HALF_WIDTH} and below 0.5: a narrower interval needs a hundred million scores"
        )
    return half


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


def check(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET check`: is the quality of `evaluator` at least `min` (0..1) since `from` (default 1 day)?

    `measure` names another metric of the evaluator (`fail_rate`, `unclear_rate`, `pass_rate`); `max` is a limit from
    above.

    `above` and `below` only where the whole 95 % interval lies on one side, whatever the missing verdicts are, else
    `undecided`. Raises NotFound where nothing was scored.
    """
    name = str(params.get("evaluator") or "")
    bound, limit = _limit(params)
    measure = str(params.get("measure") or "quality")
    refuse_unclear(store, f"{measure}:{name}")
    window = range_of(params, now=clock())
    bucket = current(estimates(store, name, window, filter_of(params), family=measure))
    if bucket is None or bucket.estimate is None:
        missing = f" ({bucket.missing.note})" if bucket else ""
        raise NotFound(f"{name} scored nothing in this window{missing}: start a replay, or look further back")
    lo, hi = bucket.limits(bucket.estimate)
    verdict = "above" if lo is not None and lo >= limit else "below" if hi is not None and hi < limit else "undecided"
    report = {
        "evaluator": name,
        "version": bucket.version,
        "judge": bucket.judge,
        "measure": measure,
        "min": limit if bound == "min" else None,
        "max": limit if bound == "max" else None,
        **bucket.point(),
        "verdict": verdict,
        "note": changed_meaning(store, name),
    }
    return report | {"markdown": _markdown(report)}


def changed_meaning(store: Store, evaluator: str) -> str | None:
    """Return how the meaning of an evaluator's scores changed, while scores of the old meaning are stored, or None.

    A limit may have been chosen for the old meaning.
    """
    name = evaluator.partition("@")[0]
    former = next((entry.former for entry in default_registry().entries if entry.name == name), {})
    stored = [meaning for label, meaning in former.items() if holds_versions(store, name, [label])]
    return f"{name} changed its meaning: {'; '.join(stored)}" if stored else None


def _limit(params: Mapping[str, Any]) -> tuple[str, float]:
    """Return the one limit that is given, `min` or `max`."""
    given = [(bound, params[bound]) for bound in ("min", "max") if params.get(bound) is not None]
    try:
        ((bound, text),) = given
        limit = float(text)
    except (TypeError, ValueError):
        raise Invalid("give min or max, a number between 0 and 1") from None
    if not 0 <= limit <= 1:
        raise Invalid(f"{bound} lies between 0 and 1: it is compared with the normalized score")
    return bound, limit


def _markdown(report: Mapping[str, Any]) -> str:
    sign = {"above": "≥", "below": "<", "undecided": "?"}[report["verdict"]]
    return (
        f"| evaluator | {report['measure']} (95 % interval) | limit | verdict |\n|---|---|---|---|\n"
        f"| {called(report['evaluator'])} {report['version'] or ''} | {report['words']}"
        f" | {sign} {report['min'] if report['max'] is None else report['max']} | **{report['verdict']}** |"
    )
