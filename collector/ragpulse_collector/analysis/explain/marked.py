"""What differs between a marked stretch of a chart and the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.explain.attributes import compared, held_of
from ragpulse_collector.analysis.explain.requests import MOST_ROWS, Row, read
from ragpulse_collector.analysis.selection import Window, filter_of, instant, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now

__all__ = ["explain"]

_COLUMNS, _ROWS = 60, 20
_DIP = 4.0
"""A stretch of time is marked where its bad requests exceed the expected ones by so many standard deviations."""


def explain(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET explain`: `metric`, `from`, `to`, the box `sel_from sel_to sel_lo sel_hi`, `bad`, filters.

    `bad` selects failing answers, failed requests, or the highest tenth of a number; without a box it is that of the
    worst stretch of time, where there is one (`dip`). Attributes are in the order of lift, those that may be chance
    last; `explained_by` names an earlier one without which an attribute is not more common. Shares are weighted by 1/pi
    where the metric is sampled. p is that of a two-proportion test on effective numbers, in which requests of one user
    are dependent and few users prove nothing; it is adjusted for the many values looked at (Benjamini-Hochberg). Over
    20,000 requests a random sample is read.
    """
    now = clock()
    window, keep = window_of({"width": _COLUMNS, **params}, now=now), filter_of(params, skip=("name",))
    metric = str(params.get("metric") or params.get("name") or "latency_p50")
    rows = read(store, metric, window, keep)
    bars, box = _bars(rows, window), dict(params)
    dip = _dip(bars) if params.get("bad") else None
    if dip and not any(params.get(edge) for edge in ("sel_from", "sel_to")):
        box |= {"sel_from": dip[0], "sel_to": dip[1]}
    inside = _box(box, now)
    chosen = {at for at, row in enumerate(rows) if inside(row) and (row.bad or not params.get("bad"))}
    differ = bool(chosen) and len(chosen) < len(rows)
    held = held_of(store, rows, chosen, window) if differ else {}
    return {
        "metric": metric,
        "n_selected": len(chosen),
        "n_baseline": len(rows) - len(chosen),
        "sampled": len(rows) >= MOST_ROWS,
        "dip": dip and {"from": dip[0], "to": dip[1]},
        "bars": [{"t": iso(at), "n": n, "bad": bad} for at, n, bad in bars],
        "heatmap": _heatmap(rows, window),
        "attributes": compared(rows, chosen, held, without=metric.partition("_")[0]) if differ else [],
    }


def _bars(rows: Sequence[Row], window: Window) -> list[tuple[datetime, int, int]]:
    """Start, requests and bad ones of each time bucket."""
    starts, counts = list(window.starts()), [[0, 0] for _ in window.starts()]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        count = counts[min(len(starts) - 1, max(0, (row.at - starts[0]) // step))]
        count[0] += 1
        count[1] += row.bad
    return [(at, n, bad) for at, (n, bad) in zip(starts, counts, strict=True)]


def _dip(bars: Sequence[tuple[datetime, int, int]]) -> tuple[str | None, str | None] | None:
    """The stretch of buckets whose bad requests exceed the overall share most surely; None where none does."""
    total, bad = sum(n for _, n, _ in bars), sum(one for _, _, one in bars)
    if len(bars) < 2 or not 0 < bad < total:
        return None
    share, best = bad / total, (_DIP, 0, 0)
    for first in range(len(bars)):
        n = more = 0
        for last in range(first, len(bars)):
            n, more = n + bars[last][1], more + bars[last][2]
            if 0 < n < total:
                surplus = (more - n * share) / math.sqrt(n * share * (1 - share) * (1 - n / total))
                best = max(best, (surplus, first, last + 1))
    _, first, last = best
    if not last:
        return None
    return iso(bars[first][0]), iso(bars[min(last, len(bars) - 1)][0] if last < len(bars) else _end(bars))


def _end(bars: Sequence[tuple[datetime, int, int]]) -> datetime:
    return bars[-1][0] + (bars[-1][0] - bars[-2][0])


def _box(params: Mapping[str, Any], now: datetime) -> Callable[[Row], bool]:
    first, last = (instant(params.get(name), now=now) for name in ("sel_from", "sel_to"))
    low, high = (_number(params, name) for name in ("sel_lo", "sel_hi"))

    def inside(row: Row) -> bool:
        in_time = (first is None or row.at >= first) and (last is None or row.at < last)
        return in_time and (low is None or row.value >= low) and (high is None or row.value <= high)

    return inside


def _number(params: Mapping[str, Any], name: str) -> float | None:
    value = params.get(name)
    if value in (None, ""):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None


def _heatmap(rows: Sequence[Row], window: Window) -> dict[str, Any]:
    """Counts per time bucket and value bin; the last value bin also holds what lies beyond the 99th percentile."""
    starts = list(window.starts())
    if not rows:
        return {"x": [iso(at) for at in starts], "y": [], "cells": []}
    values = sorted(row.value for row in rows)
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.99))]
    width = (high - low) / _ROWS or 1.0
    cells = [[0] * _ROWS for _ in starts]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        x = min(len(starts) - 1, max(0, (row.at - starts[0]) // step))
        cells[x][min(_ROWS - 1, max(0, int((row.value - low) / width)))] += 1
    return {"x": [iso(at) for at in starts], "y": [low + width * index for index in range(_ROWS)], "cells": cells}
