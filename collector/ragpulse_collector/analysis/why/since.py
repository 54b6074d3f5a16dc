"""The time after a moment against an equal time before: which part of the change to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ragpulse_collector.analysis.exemplars import ChartedRequest
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, auto_step
from ragpulse_collector.analysis.why.cost import cost_change
from ragpulse_collector.analysis.why.means import errors_change, steps_change
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
    if family in ("error", "errors"):
        return errors_change(store, query, at)
    return values_change(rows, owners, query, at)
