"""The time after a moment against an equal time before: which part of the change to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ragpulse_collector.analysis.compare.mix import MixChange, mix_change
from ragpulse_collector.analysis.exemplars import ChartedRequest
from ragpulse_collector.analysis.quality import current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, auto_step
from ragpulse_collector.analysis.why.cost import cost_change
from ragpulse_collector.analysis.why.means import errors_change, is_sure, steps_change
from ragpulse_collector.analysis.why.parts import BeforeAfter
from ragpulse_collector.analysis.why.values import Owners, values_change
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import first_span

_WIDTH = 60


def around(store: Store, query: Query, at: datetime) -> Query | None:
    """Return the query over two equal times, as long as both are known; None for a moment without one of them."""
    first, last = first_span(store), min(query.window.last, query.now)
    if first is None or not first < at < last:
        return None
    length = min(last - at, at - first)
    step = auto_step(2 * length.total_seconds(), _WIDTH)
    return replace(query, window=Window(at - length, at + length, step))


def change_at(
    store: Store, query: Query, metric: str, at: datetime, rows: Sequence[ChartedRequest], owners: Owners
) -> BeforeAfter:
    """Return what moved a metric: factors of cost, steps of latency, types of errors, else attributes of its rows."""
    family = metric.partition("_")[0]
    if family == "cost":
        return cost_change(store, query, at)
    if family == "latency":
        return steps_change(store, query, at, metric)
    errors = family in ("error", "errors")
    found = errors_change(store, query, at) if errors else values_change(rows, owners, query, at)
    return replace(found, mix=_mix(store, query, "error_rate" if errors else metric, found))


def _mix(store: Store, query: Query, metric: str, found: BeforeAfter) -> MixChange | None:
    """Return the other mix of requests that explains a sure change of quality or of the error rate."""
    family, _, evaluator = metric.partition(":")
    move, before, after = found.change, Window(found.from_, found.at, 0), Window(found.at, found.to, 0)
    if move.value is None or not is_sure(move.lo, move.hi) or family not in ("quality", "error_rate"):
        return None
    newest = current(estimates(store, evaluator, after, query.filters)) if evaluator else None
    version, judge = newest.series if newest else (None, None)
    return mix_change(store, query, metric, move.value, before, after, version=version, judge=judge)
