"""The headline: is it up, is it good, is it better than before, what does it cost, what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.coverage import covered, queued
from ragpulse_collector.metrics.estimate import point
from ragpulse_collector.metrics.filters import Filter, filter_of
from ragpulse_collector.metrics.good import cost_of_good
from ragpulse_collector.metrics.quality import Bucket, current, estimates, evaluators_in
from ragpulse_collector.metrics.window import Window, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Estimate, msprt

__all__ = ["overview", "shift"]

_TAU = 0.1
"""The size of movement the always-valid interval is tuned for."""


def overview(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET overview`: `from`, `to` and the common filters; quality against the window of equal length before."""
    now = clock()
    window, keep = window_of({"width": 1, **params}, now=now).whole, filter_of(params)
    rows = covered(store, window, keep)
    return {
        **_traffic(store, window, keep, now),
        "quality": [_headline(store, name, window, keep) for name in evaluators_in(store, window)],
        "dropped": sum(row["dropped"] for row in rows),
        "queued": queued(store, now=now),
        "coverage": rows,
        "cost_per_good_answer": cost_of_good(store, window, keep),
    }


def _traffic(store: Store, window: Window, keep: Filter, now: datetime) -> dict[str, Any]:
    n, errors, cost, unknown, tokens = store.read(
        "SELECT count(*), count(*) FILTER (error), sum(cost_usd), avg((cost_usd IS NULL)::INTEGER),"
        " sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) FROM traces"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql}",
        {**window.parameters, **keep.parameters},
    ).rows[0]
    newest = store.read("SELECT max(received_at), max(start_time) FROM raw.spans").rows[0]
    return {
        "newest_span": iso(newest[1]),
        "lag_s": None if newest[0] is None else max(0.0, (now - newest[0]).total_seconds()),
        "n_traces": n,
        "error_rate": errors / n if n else None,
        "cost_usd": cost,
        "cost_unknown_share": unknown,
        "tokens": tokens or 0,
    }


def _headline(store: Store, evaluator: str, window: Window, keep: Filter) -> dict[str, Any]:
    both = Window(window.before.first, window.last, 0, split=window.first)
    buckets = estimates(store, evaluator, both, keep)
    chosen = current([one for one in buckets if one.at == window.first])
    if chosen is None:
        empty = {"version": None, "judge": None, **point(None), "always": None, "passing_rate": None}
        return {"evaluator": evaluator, **empty, "previous": None, "verdict": None}
    earlier = _same([one for one in buckets if one.at < window.first], chosen)
    before = earlier.estimate if earlier else None
    return {
        "evaluator": evaluator,
        "version": chosen.version,
        "judge": chosen.judge,
        **chosen.point(),
        "always": _always(chosen.estimate),
        "passing_rate": chosen.passing_rate,
        "previous": None if before is None else {"value": before.estimate, "lo": before.lo, "hi": before.hi},
        "verdict": _verdict(chosen.estimate, before),
    }


def _always(found: Estimate | None) -> list[float] | None:
    """An interval for badges that are looked at all the time: it holds at every look at once (confidence sequence)."""
    if found is None:
        return None
    spread = found.se or math.sqrt(max(0.25 / (found.n_eff + 4.0), 1e-12))
    sequence = msprt(found.estimate, spread, _TAU)
    return None if sequence is None else [max(0.0, sequence.lo), min(1.0, sequence.hi)]


def _same(buckets: list[Bucket], chosen: Bucket) -> Bucket | None:
    """The bucket of the same version and judge: two versions are never compared as if they were one."""
    return next((one for one in buckets if (one.version, one.judge) == (chosen.version, chosen.judge)), None)


def shift(now: Estimate, before: Estimate) -> dict[str, float] | None:
    """The difference of two independent estimates with Newcombe's interval, which keeps each one's skew."""
    if None in (now.lo, now.hi, before.lo, before.hi):
        return None
    value = now.estimate - before.estimate
    down = math.hypot(now.estimate - (now.lo or 0.0), (before.hi or 0.0) - before.estimate)
    up = math.hypot((now.hi or 0.0) - now.estimate, before.estimate - (before.lo or 0.0))
    return {"value": value, "lo": value - down, "hi": value + up}


def _verdict(now: Estimate | None, before: Estimate | None) -> str | None:
    found = None if now is None or before is None else shift(now, before)
    if found is None:
        return None
    return "better" if found["lo"] > 0 else "worse" if found["hi"] < 0 else "undecided"
