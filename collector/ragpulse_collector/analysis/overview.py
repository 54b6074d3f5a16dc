"""The headline: is it up, is it good, is it better than before, what does it cost, what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.attribution import cost_of_good, good_by, good_share
from ragpulse_collector.analysis.cache import Snapshot, Snapshots, snapshot_of
from ragpulse_collector.analysis.changes import changes
from ragpulse_collector.analysis.quality import NO_POINT, Bucket, current
from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.analysis.traffic import summed
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import has_service, newest_span
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Estimate, Interval, always_valid, minus

__all__ = ["DEMO_SERVICE", "overview"]

DEMO_SERVICE = "demo"
"""The service of generated traffic: a page says that it is none of the user's."""
_TAU = 0.1
"""The size of movement the always-valid interval is tuned for."""


def overview(
    store: Store,
    params: Mapping[str, Any],
    *,
    clock: Callable[[], datetime] = utc_now,
    snapshots: Snapshots | None = None,
) -> dict[str, Any]:
    """Answer `GET overview`: `from`, `to` and the common filters; quality against the window of equal length before.

    `changes` are the level shifts inside the range, the surest first; `as_of` is when the figures were read.

    With `only` = `traffic` it says what the requests themselves tell: no scores are read for it. With `snapshots` the
    charts of the same range share what was read for it.
    """
    given = {"step": "auto", "width": 120, **params, "group_by": ()}
    asked = snapshots.of(given) if snapshots else snapshot_of(store, given, now=clock())
    traffic_answer = _traffic(asked)
    if params.get("only") == "traffic":
        return traffic_answer
    window, keep = asked.window.whole, asked.keep
    found, before = asked.whole(), asked.before()
    rows = summed(asked.decided(), found)
    names = sorted({one.evaluator for one in found})
    answers = sum(row["scored"] for row in rows)
    share: Estimate | None = asked.nearly("good", answers, lambda: good_share(store, window, keep, names))
    cost = cost_of_good(traffic_answer["cost_usd"], traffic_answer["n_traces"], share)
    return {
        **traffic_answer,
        "quality": [_headline(name, found, before) for name in names],
        "dropped": sum(row["dropped"] for row in rows),
        "queued": asked.queued(),
        "coverage": rows,
        "changes": asked.once("changes", lambda: changes(asked)),
        "cost_per_good_answer": cost and cost | {"evaluators": good_by(names)},
    }


def _traffic(asked: Snapshot) -> dict[str, Any]:
    buckets = [one.values for one in asked.traffic()]
    n, errors, known = (sum(one[name] for one in buckets) for name in ("n", "error_rate", "known_cost_usd"))
    costs = [one["cost"] for one in buckets if one["cost"] is not None]
    failed = asked.failing().get((None,))
    failing = Interval.of(failed.moments.estimate()) if failed and failed.moments else None
    received, started = newest_span(asked.store)
    return {
        "as_of": iso(asked.now),
        "demo": has_service(asked.store, DEMO_SERVICE, asked.window.parameters),
        "newest_span": iso(started),
        "lag_s": None if received is None else max(0.0, (asked.now - received).total_seconds()),
        "n_traces": n,
        "error_rate": errors / n if n else None,
        "error_interval": None if failing is None else [failing.lo, failing.hi],
        "latency_p95": asked.p95(asked.window.first, asked.window.last) if n else None,
        "cost_usd": math.fsum(costs) if costs else None,
        "cost_unknown_share": 1.0 - known / n if n else None,
        "tokens": sum(one["tokens"] or 0 for one in buckets),
    }


def _headline(evaluator: str, now: Sequence[Bucket], before: Sequence[Bucket]) -> dict[str, Any]:
    chosen = current(one for one in now if one.evaluator == evaluator)
    if chosen is None:
        empty = {"version": None, "judge": None, **NO_POINT, "always": None, "passing_rate": None}
        return {"evaluator": evaluator, **empty, "previous": None, "verdict": None}
    earlier = _same(before, chosen)
    was = earlier.estimate if earlier else None
    return {
        "evaluator": evaluator,
        "version": chosen.version,
        "judge": chosen.judge,
        **chosen.point(),
        "always": _always(chosen),
        "passing_rate": chosen.passing_rate,
        "previous": None if was is None else {"value": was.estimate, "lo": was.lo, "hi": was.hi},
        "verdict": _verdict(chosen, earlier),
    }


def _always(chosen: Bucket) -> list[float] | None:
    """An interval for badges that are looked at all the time."""
    held = None if chosen.estimate is None else always_valid(chosen.estimate, _TAU)
    return None if held is None else list(chosen.widened(held.lo, held.hi))


def _same(buckets: Sequence[Bucket], chosen: Bucket) -> Bucket | None:
    """The bucket of the same version and judge: two versions are never compared as if they were one."""
    line = (chosen.evaluator, chosen.version, chosen.judge)
    return next((one for one in buckets if (one.evaluator, one.version, one.judge) == line), None)


def _verdict(now: Bucket, before: Bucket | None) -> str | None:
    """Better or worse where the difference is sure, whatever the missing answers would have said."""
    a, b = now.interval, before.interval if before else None
    if a is None or b is None:
        return None
    found = minus(a, b)
    return "better" if found.lo > 0 else "worse" if found.hi < 0 else "undecided"
