"""From a point on a chart to the requests behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.metrics.filters import filter_of
from ragpulse_collector.metrics.rows import trace_rows
from ragpulse_collector.metrics.units import MEASURES, sample_of
from ragpulse_collector.metrics.window import Window, duration_s, instant, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now

__all__ = ["column_of", "exemplars"]

_COUNT = 5


def column_of(metric: str) -> str:
    """The column of `traces` that a traffic metric is made of; latency stands for those that only count."""
    columns = {"latency": "latency_ms", "ttft": "ttft_ms", "error": "error::INTEGER", "errors": "error::INTEGER"}
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
    ranked = _ranked(store, name, window, params)
    middle = sorted(ranked, key=lambda one: abs(2 * one[1] - one[2] - 1))[:_COUNT]
    ids = {
        "worst": [one[0] for one in ranked if one[1] <= _COUNT],
        "median": [one[0] for one in sorted(middle, key=lambda one: one[1])],
        "best": [one[0] for one in reversed(ranked) if one[1] > one[2] - _COUNT],
    }
    return {part: trace_rows(store, found) for part, found in ids.items()}


def _ranked(store: Store, name: str, window: Window, params: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Trace id, rank from the worst (1) and how many there are: only the ends and the middle."""
    keep = filter_of(store, params, skip=("name",))
    family, _, evaluator = name.partition(":")
    if not evaluator:
        column, parameters = column_of(name), {**window.parameters, **keep.parameters}
        source = (
            f"SELECT trace_id AS id, {column} AS y, start_time AS at_time FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} AND {column} IS NOT NULL"
        )
        order = "y DESC"
    elif family in MEASURES:
        sample = sample_of(store, evaluator, window, keep)
        parameters = sample.parameters
        source = (
            f"SELECT replace(trace_id::VARCHAR, '-', '') AS id, normalized AS y, request_time AS at_time"
            f" FROM ({sample.sql}) WHERE status = 'ok' AND normalized IS NOT NULL"
        )
        order = "y ASC"
    else:
        raise ValueError(f"no metric {name!r}")
    return store.read(
        f"SELECT id, row_number() OVER (ORDER BY {order}, at_time, id) AS place, count(*) OVER () AS n FROM ({source})"
        f" QUALIFY place <= {_COUNT} OR place > n - {_COUNT} OR abs(2 * place - n - 1) <= {_COUNT} ORDER BY place",
        parameters,
    ).rows
