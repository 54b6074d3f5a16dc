"""The worst, median and best requests of one bucket of a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.selection import Window, duration_s, filter_of, instant, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import trace_rows
from ragpulse_collector.store.rows import utc_now

__all__ = ["column_of", "exemplars", "source_of"]

_COUNT = 5


def column_of(metric: str) -> str:
    """The column of `traces` that a traffic metric is made of; latency stands for those that only count."""
    errors = "coalesce(error, false)::INTEGER"
    columns = {"latency": "latency_ms", "ttft": "ttft_ms", "error": errors, "errors": errors}
    same = ("cost_usd", "input_tokens", "output_tokens")
    return metric if metric in same else columns.get(metric.partition("_")[0], "latency_ms")


def exemplars(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET exemplars`: five worst, median and best traces of one bucket (`name`, `t`, `step`, filters)."""
    now = clock()
    name = str(params.get("name") or "")
    at = instant(params.get("t"), now=now)
    if at is None:
        window = window_of({"width": 1, **params}, now=now).whole
    else:
        step = duration_s(params.get("step") or 3600)
        window = window_of({"from": at, "to": at + timedelta(seconds=step), "width": 1}, now=now).whole
    source, parameters, worst_is_high = source_of(store, name, window, params)
    ends = store.read(
        f"SELECT arg_min(id, y, {_COUNT}), arg_max(id, y, {_COUNT}), median(y) FROM ({source})", parameters
    ).rows[0]
    low, high, middle = ends[0] or [], ends[1] or [], ends[2]
    near = (
        []
        if middle is None
        else store.read(
            f"SELECT id FROM ({source}) ORDER BY abs(y - $middle), id LIMIT {_COUNT}", {**parameters, "middle": middle}
        ).rows
    )
    ids = {
        "worst": high if worst_is_high else low,
        "median": [one for (one,) in near],
        "best": low if worst_is_high else high,
    }
    return {part: trace_rows(store, found) for part, found in ids.items()}


def source_of(store: Store, name: str, window: Window, params: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """A query for trace ids with what the metric is made of, its parameters, and whether high is worse."""
    keep = filter_of(params, skip=("name",))
    family, _, evaluator = name.partition(":")
    if not evaluator:
        column = column_of(name)
        sql = (
            f"SELECT trace_id AS id, {column} AS y FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} AND {column} IS NOT NULL"
        )
        return sql, {**window.parameters, **keep.parameters}, True
    if family not in MEASURES:
        raise ValueError(f"no metric {name!r}")
    sample = sample_of(store, evaluator, window.parameters, keep)
    sql = (
        "SELECT replace(trace_id::VARCHAR, '-', '') AS id, normalized AS y"
        f" FROM ({sample.sql}) WHERE status = 'ok' AND normalized IS NOT NULL"
    )
    return sql, sample.parameters, False
