"""The headline of a range: traffic, quality and its change, cost, and what is missing."""

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
from ragpulse_collector.analysis.traffic import sum_coverage
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.scores import other_scores
from ragpulse_collector.store.queries.traces import has_service, newest_span
from ragpulse_evaluators.statistics import Estimate, Interval, always_valid, minus

__all__ = ["DEMO_SERVICE", "overview"]

DEMO_SERVICE = "demo"
"""The service of generated traffic, which pages mark as a demo."""
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

    `changes` are the level shifts inside the range, the surest first; `others` are labels, people's scores, and scores
    on scales of their own; `as_of` is when the figures were read.

    With `only` = `traffic` no scores are read. With `snapshots` the charts of the same range share its data.
    """
    options = {"step": "auto", "width": 120, **params, "group_by": ()}
    snapshot = snapshots.of(options) if snapshots else snapshot_of(store, options, now=clock())
    traffic_answer = _traffic(snapshot)
    if params.get("only") == "traffic":
        return traffic_answer
    window, filters = snapshot.window.whole, snapshot.filters
    buckets, before = snapshot.whole(), snapshot.before()
    rows = sum_coverage(snapshot.decided(), buckets)
    names = sorted({bucket.evaluator for bucket in buckets})
    answers = sum(row["scored"] for row in rows)
    share: Estimate | None = snapshot.part_of_size("good", answers, lambda: good_share(store, window, filters, names))
    cost = cost_of_good(traffic_answer["cost_usd"], traffic_answer["n_traces"], share)
    return {
        **traffic_answer,
        "quality": [_headline(name, buckets, before) for name in names],
        "dropped": sum(row["dropped"] for row in rows),
        "queued": snapshot.queued(),
        "coverage": rows,
        "others": snapshot.part("others", lambda: other_scores(store, window.parameters, filters)),
        "changes": snapshot.part("changes", lambda: changes(snapshot)),
        "cost_per_good_answer": cost and cost | {"evaluators": good_by(names)},
    }


def _traffic(snapshot: Snapshot) -> dict[str, Any]:
    buckets = [bucket.values for bucket in snapshot.traffic()]
    n, errors, known_costs, known_answers, empty, refused = (
        sum(bucket[name] for bucket in buckets)
        for name in ("n", "error_rate", "known_cost_usd", "known_answer", "empty", "refused")
    )
    costs = [bucket["cost"] for bucket in buckets if bucket["cost"] is not None]
    failed = snapshot.failing().get((None,))
    failing = Interval.of(failed.moments.estimate()) if failed and failed.moments else None
    received, started = newest_span(snapshot.store)
    return {
        "as_of": iso(snapshot.now),
        "demo": has_service(snapshot.store, DEMO_SERVICE, snapshot.window.parameters),
        "newest_span": iso(started),
        "lag_s": None if received is None else max(0.0, (snapshot.now - received).total_seconds()),
        "n_traces": n,
        "error_rate": errors / n if n else None,
        "n_answers": known_answers,
        "n_empty": empty,
        "n_refused": refused,
        "error_interval": None if failing is None else [failing.lo, failing.hi],
        "latency_p95": snapshot.p95(snapshot.window.first, snapshot.window.last) if n else None,
        "cost_usd": math.fsum(costs) if costs else None,
        "cost_unknown_share": 1.0 - known_costs / n if n else None,
        "tokens": sum(bucket["tokens"] or 0 for bucket in buckets),
    }


def _headline(evaluator: str, now: Sequence[Bucket], before: Sequence[Bucket]) -> dict[str, Any]:
    bucket = current(candidate for candidate in now if candidate.evaluator == evaluator)
    if bucket is None:
        empty = {"version": None, "judge": None, **NO_POINT, "always": None, "passing_rate": None, "clear_share": None}
        return {"evaluator": evaluator, **empty, "previous": None, "verdict": None, "wording": None}
    earlier = _same(before, bucket)
    was = earlier.estimate if earlier else None
    return {
        "evaluator": evaluator,
        "version": bucket.version,
        "judge": bucket.judge,
        **bucket.point(),
        "always": _always(bucket),
        "passing_rate": bucket.passing_rate,
        "clear_share": bucket.clear_share,
        "previous": None if was is None else {"value": was.estimate, "lo": was.lo, "hi": was.hi},
        "verdict": _verdict(bucket, earlier),
        "wording": bucket.wording(earlier),
    }


def _always(bucket: Bucket) -> list[float] | None:
    """Return an interval that holds at every look."""
    interval = None if bucket.estimate is None else always_valid(bucket.estimate, _TAU)
    return None if interval is None else list(bucket.widen(interval.lo, interval.hi))


def _same(buckets: Sequence[Bucket], like: Bucket) -> Bucket | None:
    """Return the bucket of the same version and judge: two versions are never compared."""
    matches = (bucket for bucket in buckets if bucket.evaluator == like.evaluator and bucket.series == like.series)
    return next(matches, None)


def _verdict(now: Bucket, before: Bucket | None) -> str | None:
    """Return better or worse where the difference is sure, whatever the missing verdicts are."""
    a, b = now.interval, before.interval if before else None
    if a is None or b is None:
        return None
    difference = minus(a, b)
    return "better" if difference.lo > 0 else "worse" if difference.hi < 0 else "undecided"
