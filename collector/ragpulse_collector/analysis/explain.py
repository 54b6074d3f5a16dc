"""The requests behind a chart: what differs between a selected box and the rest, and the worst and best of a bucket."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.window import Window, duration_s, instant, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import retrievals, shared_documents
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import trace_rows
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import benjamini_hochberg, effective_n, two_proportion

__all__ = ["column_of", "exemplars", "explain"]

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
    source, parameters, worst_is_high = _source(store, name, window, params)
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


def _source(store: Store, name: str, window: Window, params: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
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


_MOST_ROWS = 20_000
_COLUMNS, _ROWS = 60, 20
_ATTRIBUTES = ("service", "environment", "name", "model", "prompt_name", "prompt_version", "variant", "error")
_SCRIPTS = ("Hiragana", "Katakana", "Hangul", "Han", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Thai", "Greek")
_SCRIPT = (
    "CASE WHEN strlen(query) = length(query) THEN 'Latin' "
    + " ".join(f"WHEN regexp_matches(query, '\\p{{{name}}}') THEN '{name}'" for name in _SCRIPTS)
    + " WHEN query IS NOT NULL THEN 'Latin' END"
)
"""What a question is written in: sure, where a guess at its language would not be."""
_LEAST = 5
"""An attribute value seen fewer times than this among the selected is noise."""
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Row:
    """One request: when, its value, the weight it stands for, and its attributes."""

    trace_id: str
    at: datetime
    value: float
    weight: float
    attributes: tuple[tuple[str, str], ...]


def explain(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET explain`: `metric`, `from`, `to`, the box `sel_from sel_to sel_lo sel_hi`, filters.

    Shares are weighted by 1/pi where the metric is sampled; p is that of a two-proportion test on effective numbers,
    adjusted for the many values looked at (Benjamini-Hochberg). Over 20,000 requests a random sample is read.
    """
    now = clock()
    window, keep = window_of({"width": _COLUMNS, **params}, now=now), filter_of(params, skip=("name",))
    metric = str(params.get("metric") or params.get("name") or "latency_p50")
    rows = _read(store, metric, window, keep)
    inside = _box(params, now)
    selected, baseline = [row for row in rows if inside(row)], [row for row in rows if not inside(row)]
    held = _held(store, rows, [row.trace_id for row in selected], window) if selected and baseline else {}
    return {
        "metric": metric,
        "n_selected": len(selected),
        "n_baseline": len(baseline),
        "sampled": len(rows) >= _MOST_ROWS,
        "heatmap": _heatmap(rows, window),
        "attributes": _compare(selected, baseline, held) if selected and baseline else [],
    }


def _read(store: Store, metric: str, window: Window, keep: Filter) -> list[_Row]:
    family, _, evaluator = metric.partition(":")
    if evaluator and family in MEASURES:
        sample = sample_of(store, evaluator, window.parameters, keep, columns=(*_ATTRIBUTES, "query"))
        source, parameters = (
            f"SELECT trace_id, request_time AS start_time, {MEASURES[family]} AS y, pi, {', '.join(_ATTRIBUTES)}, query"
            f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0",
            sample.parameters,
        )
    else:
        source, parameters = (
            f"SELECT trace_id::UUID AS trace_id, start_time, {column_of(metric)} AS y,"
            f" coalesce(upstream_pi, 1) AS pi, {', '.join(_ATTRIBUTES)}, query FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql}",
            {**window.parameters, **keep.parameters},
        )
    rows = store.read(
        f"SELECT trace_id, start_time, y, pi, {', '.join(_ATTRIBUTES)}, {_SCRIPT}, length(query) FROM ({source})"
        f" WHERE y IS NOT NULL USING SAMPLE reservoir({_MOST_ROWS} ROWS) REPEATABLE (1)",
        parameters,
    ).rows
    return [_Row(row[0].hex, row[1], float(row[2]), 1.0 / row[3], tuple(_told(row[4:]))) for row in rows]


def _told(values: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Attribute and value of everything that is known of a request; lengths in doublings."""
    for name, value in zip(_ATTRIBUTES, values, strict=False):
        if value is not None:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)
    script, length = values[-2:]
    if script:
        yield "query script", script
    if length:
        low = 2 ** int(math.log2(length))
        yield "query length", f"{low}..{2 * low - 1}"


def _box(params: Mapping[str, Any], now: datetime) -> Callable[[_Row], bool]:
    first, last = (instant(params.get(name), now=now) for name in ("sel_from", "sel_to"))
    low, high = (_number(params, name) for name in ("sel_lo", "sel_hi"))

    def inside(row: _Row) -> bool:
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


def _held(
    store: Store, rows: Sequence[_Row], selected: Sequence[str], window: Window
) -> dict[tuple[str, str], set[str]]:
    """What a request may have several of, with the traces that have it: retrievers, how much they found, documents."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    searches = retrievals(store, [row.trace_id for row in rows], window.parameters).rows
    for trace, name, n in searches:
        found["retriever", str(name)].add(trace.hex)
        if n is not None:
            found["contexts retrieved", str(n)].add(trace.hex)
    for doc, traces in _documents(store, selected, window).items():
        found["document", doc] = traces
    return found


def _documents(store: Store, trace_ids: Sequence[str], window: Window) -> dict[str, set[str]]:
    """The documents that the selected requests share (each in at least five), with every trace that retrieved them."""
    rows = shared_documents(store, trace_ids, window.parameters, least=_LEAST).rows
    found: dict[str, set[str]] = defaultdict(set)
    for doc, trace in rows:
        found[doc].add(trace.hex)
    return found


def _heatmap(rows: Sequence[_Row], window: Window) -> dict[str, Any]:
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


def _compare(
    selected: Sequence[_Row], baseline: Sequence[_Row], held: Mapping[tuple[str, str], set[str]]
) -> list[dict[str, Any]]:
    sides = [_shares(side, held) for side in (selected, baseline)]
    totals = [sum(row.weight for row in side) for side in (selected, baseline)]
    sizes = [effective_n([row.weight for row in side]) for side in (selected, baseline)]
    found: list[dict[str, Any]] = []
    for (attribute, value), (n, weight) in sides[0].items():
        if n < _LEAST:
            continue
        other_n, other_weight = sides[1].get((attribute, value), (0, 0.0))
        share, other = weight / totals[0], other_weight / totals[1]
        test = two_proportion(round(share * sizes[0]), round(sizes[0]), round(other * sizes[1]), round(sizes[1]))
        found.append(
            {
                "attribute": attribute,
                "value": value,
                "selected": {"n": n, "share": share},
                "baseline": {"n": other_n, "share": other},
                "lift": share / other if other else None,
                "p": 1.0 if test is None or test.p is None else test.p,
            }
        )
    for one, adjusted in zip(found, benjamini_hochberg([one["p"] for one in found]), strict=True):
        one["p_adjusted"] = adjusted
        del one["p"]
    found.sort(key=lambda one: (one["p_adjusted"], -abs(one["selected"]["share"] - one["baseline"]["share"])))
    return found[:_SHOWN]


def _shares(rows: Sequence[_Row], held: Mapping[tuple[str, str], set[str]]) -> dict[tuple[str, str], tuple[int, float]]:
    found: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for row in rows:
        for key in (*row.attributes, *(key for key, traces in held.items() if row.trace_id in traces)):
            n, weight = found[key]
            found[key] = (n + 1, weight + row.weight)
    return found
