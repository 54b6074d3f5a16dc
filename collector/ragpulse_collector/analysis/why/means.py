"""Latency by step, errors by type: means over all requests that add up to the whole."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.parts import BeforeAfter, Explained
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import PartMean, means_of_parts
from ragpulse_evaluators.statistics import Interval, normal_quantile

LEAST = 0.1
"""The smallest part of a change that is named."""
CHANCE = 0.025
"""The chance of a false part on one side, shared by all that were looked at."""


def steps_change(store: Store, query: Query, at: datetime, metric: str) -> BeforeAfter:
    """Return whose time grew, in milliseconds of the mean; of a high percentile the mean of the slowest tenth."""
    slow = metric in ("latency_p95", "latency_p99")
    return _change(store, query, at, "steps of the slowest tenth" if slow else "steps", "step")


def errors_change(store: Store, query: Query, at: datetime) -> BeforeAfter:
    """Return which types of errors became more or fewer, as shares of all requests."""
    return _change(store, query, at, "error types", "error type")


def _change(store: Store, query: Query, at: datetime, kind: str, attribute: str) -> BeforeAfter:
    sides: dict[str, dict[bool, PartMean]] = defaultdict(dict)
    for row in means_of_parts(store, kind, {**query.window.parameters, "at": at}, query.filters):
        sides[row.name][row.late] = row
    whole = _part("", "", sides.pop("", {}), 1)
    parts = [_part(attribute, name, means, len(sides)) for name, means in sides.items()]
    named = [part for part in parts if is_sure(part.lo, part.hi) and abs(part.amount) >= LEAST * abs(whole.amount)]
    return BeforeAfter(
        from_=query.window.first, at=at, to=query.window.last, before=whole.before, after=whole.after,
        change=Interval(whole.amount, whole.lo or 0.0, whole.hi or 0.0),
        parts=sorted(named, key=lambda part: -abs(part.amount)) if is_sure(whole.lo, whole.hi) else (),
    )  # fmt: skip


def _part(attribute: str, value: str, means: dict[bool, PartMean], looked_at: int) -> Explained:
    before, after = (means.get(late) or PartMean(value, late, 0.0, 0.0) for late in (False, True))
    half = normal_quantile(1.0 - CHANCE / looked_at) * math.sqrt(before.error + after.error)
    move = Interval.around(after.mean - before.mean, half)
    return Explained(
        attribute=attribute, value=value, before=before.mean, after=after.mean, amount=move.value,
        lo=move.lo, hi=move.hi,
    )  # fmt: skip


def is_sure(lo: float | None, hi: float | None) -> bool:
    """Return whether an interval lies on one side of zero."""
    return lo is not None and hi is not None and (lo > 0.0 or hi < 0.0)
