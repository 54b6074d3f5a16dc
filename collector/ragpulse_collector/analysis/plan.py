"""How many traces to score for a wanted precision, and whether the quality is above a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.filters import filter_of
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.window import window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import mean_cost, sample_of
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import clustered_mean, needed_n

__all__ = ["check", "plan"]

MIN_HALF_WIDTH = 0.0001
_GUESS = 0.9
"""The pass rate assumed where nothing was measured yet; the least favourable one would be 0.5."""


def plan(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET plan`: `evaluator`, `half_width` (e.g. 0.02), `from` (default 7 days), filters.

    How many traces must be scored for an interval of ± half_width, which rate that is of a day's (and a week's)
    traffic, and what it costs at the mean cost so far (null where unknown).
    """
    name, half = str(params.get("evaluator") or ""), _half_width(params)
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    keep = filter_of(params)
    traces = store.read(
        f"SELECT count(*) FROM traces WHERE start_time >= $first AND start_time < $last AND {keep.sql}",
        {**window.parameters, **keep.parameters},
    ).rows[0][0]
    days = (window.last - window.first).total_seconds() / 86_400
    chosen = current(estimates(store, name, window, keep))
    rate, source, n = _needed(chosen, half)
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
        raise ValueError("half_width is a number like 0.02") from None
    if not MIN_HALF_WIDTH <= half < 0.5:
        raise ValueError(
            f"half_width is at least {MIN_HALF_WIDTH} and below 0.5: a narrower interval needs a hundred million scores"
        )
    return half


def _needed(chosen: Bucket | None, half: float) -> tuple[float, str, int]:
    """The rate assumed, where it is from, and n; graded scores go by their spread, weights by what they cost in n."""
    if chosen is None or chosen.estimate is None:
        return _GUESS, "nothing measured yet: assumed", needed_n(_GUESS, half)
    found = chosen.estimate
    rate = min(1.0, max(0.0, found.estimate))
    design = found.n / found.n_eff if found.n_eff else 1.0
    n = needed_n(rate, half)
    if found.se is not None and found.se > 0 and found.n > 1:
        spread = found.se**2 * found.n_eff
        if spread < 0.999 * rate * (1 - rate):
            n = math.ceil(spread * (1.96 / half) ** 2)
    return rate, "measured", math.ceil(n * design)


def check(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET check`: is the quality of `evaluator` at least `min` (0..1) since `from` (default 1 day)?

    `above` and `below` only where the whole 95 % interval lies on one side, else `undecided`. The interval counts the
    answers of one session as dependent where that widens it. Raises LookupError where nothing was scored.
    """
    name = str(params.get("evaluator") or "")
    limit = _limit(params)
    window = window_of({"width": 1, **params}, now=clock()).whole
    keep = filter_of(params)
    chosen = current(estimates(store, name, window, keep))
    if chosen is None or chosen.estimate is None:
        raise LookupError(f"{name} scored nothing in this window: start a replay, or look further back")
    lo, hi = _clustered(store, name, chosen, params, clock())
    verdict = "above" if lo is not None and lo >= limit else "below" if hi is not None and hi < limit else "undecided"
    told = {
        "evaluator": name,
        "version": chosen.version,
        "judge": chosen.judge,
        "min": limit,
        **chosen.point(),
        "lo": lo,
        "hi": hi,
        "verdict": verdict,
    }
    return told | {"markdown": _markdown(told)}


def _limit(params: Mapping[str, Any]) -> float:
    try:
        limit = float(params["min"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("min is a number between 0 and 1") from None
    if not 0 <= limit <= 1:
        raise ValueError("min lies between 0 and 1: it is compared with the normalized score")
    return limit


def _clustered(
    store: Store, name: str, chosen: Bucket, params: Mapping[str, Any], now: datetime
) -> tuple[float | None, float | None]:
    """The interval of the estimate, widened where answers within sessions are alike."""
    assert chosen.estimate is not None
    lo, hi = chosen.estimate.lo, chosen.estimate.hi
    window, keep = window_of({"width": 1, **params}, now=now).whole, filter_of(params)
    sample = sample_of(store, name, window.parameters, keep, columns=("session_id", "user_id"))
    rows = store.read(
        "SELECT normalized, pi, coalesce(user_id, session_id, trace_id::VARCHAR) FROM"
        f" ({sample.sql}) WHERE status = 'ok' AND normalized IS NOT NULL AND pi > 0"
        " AND version IS NOT DISTINCT FROM $own_version AND judge IS NOT DISTINCT FROM $own_judge",
        sample.parameters | {"own_version": chosen.version, "own_judge": chosen.judge},
    ).rows
    found = clustered_mean([row[0] for row in rows], [row[2] for row in rows], pi=[row[1] for row in rows])
    se = chosen.estimate.se
    if found is None or se is None or found.se <= se or lo is None or hi is None:
        return lo, hi
    wider = found.interval.within(0.0, 1.0)
    return min(lo, wider.lo), max(hi, wider.hi)


def _markdown(told: Mapping[str, Any]) -> str:
    value, lo, hi = (f"{told[key]:.3f}" if told[key] is not None else "?" for key in ("value", "lo", "hi"))
    sign = {"above": "≥", "below": "<", "undecided": "?"}[told["verdict"]]
    return (
        "| evaluator | quality (95 % interval) | n | limit | verdict |\n|---|---|---|---|---|\n"
        f"| {told['evaluator']} {told['version'] or ''} | {value} ({lo} to {hi}) | {told['n']}"
        f" | {sign} {told['min']} | **{told['verdict']}** |"
    )
