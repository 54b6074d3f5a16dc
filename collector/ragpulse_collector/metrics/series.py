"""`GET metrics`: one metric over request time, each point with its interval and what it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.calibration import correct
from ragpulse_collector.metrics.estimate import point
from ragpulse_collector.metrics.filters import Filter, dimensions, filter_of
from ragpulse_collector.metrics.markers import markers
from ragpulse_collector.metrics.quality import estimates
from ragpulse_collector.metrics.runs import shares
from ragpulse_collector.metrics.units import MEASURES
from ragpulse_collector.metrics.window import Window, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import wilson

__all__ = ["NAMES", "Traffic", "series"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """A metric of the traffic itself: SQL for its value, its unit, and whether an empty bucket is a true zero."""

    sql: str
    unit: str
    count: bool = False
    of: str | None = None
    """The column it adds up; the share of unknown values goes with every total."""


_SCALED = "sum(1 / coalesce(upstream_pi, 1))"
NAMES: dict[str, Traffic] = {
    "requests": Traffic(_SCALED, "requests", count=True),
    "errors": Traffic("sum(CASE WHEN error THEN 1 / coalesce(upstream_pi, 1) ELSE 0 END)", "requests", count=True),
    "error_rate": Traffic("count(*) FILTER (error)", "share"),
    "latency_p50": Traffic("quantile_cont(latency_ms, 0.5)", "ms"),
    "latency_p95": Traffic("quantile_cont(latency_ms, 0.95)", "ms"),
    "latency_p99": Traffic("quantile_cont(latency_ms, 0.99)", "ms"),
    "ttft_p50": Traffic("quantile_cont(ttft_ms, 0.5)", "ms"),
    "ttft_p95": Traffic("quantile_cont(ttft_ms, 0.95)", "ms"),
    "input_tokens": Traffic("sum(input_tokens / coalesce(upstream_pi, 1))", "tokens", of="input_tokens"),
    "output_tokens": Traffic("sum(output_tokens / coalesce(upstream_pi, 1))", "tokens", of="output_tokens"),
    "cost_usd": Traffic("sum(cost_usd / coalesce(upstream_pi, 1))", "USD", of="cost_usd"),
    "throughput": Traffic(_SCALED, "requests/s", count=True),
}
"""The metrics beside `quality:`, `score:` and `pass_rate:` of an evaluator."""


def series(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET metrics`: `name`, `from`, `to`, `step`, `group_by`, `width`, `corrected` and the common filters.

    Raises ValueError for an unknown name or a malformed parameter. A bucket in which nothing was measured has value
    null; counts of requests are 0 between the first and the last request. With `corrected` the points of a quality
    metric are moved by what people's labels show the judge to be wrong by. `replayed_where` names the conditions of
    replays in a line: their scores represent those traces only.
    """
    name = str(params.get("name") or "")
    window = window_of(params, now=clock())
    groups, keep = dimensions(params), filter_of(params, skip=("name",))
    family, _, evaluator = name.partition(":")
    if evaluator and family in MEASURES:
        found = _quality(store, family, evaluator, window, keep, groups)
        unit = "score" if family == "score" else "share"
        if family == "quality" and str(params.get("corrected", "")).lower() in ("true", "1"):
            correct(store, evaluator, window, keep, found)
    elif name in NAMES:
        found, unit = _traffic(store, name, window, keep, groups), NAMES[name].unit
    else:
        possible = ", ".join((*NAMES, *(f"{family}:<evaluator>" for family in MEASURES)))
        raise ValueError(f"no metric {name!r}; possible: {possible}")
    ends = {"from": iso(window.first), "to": iso(window.last)}
    told = markers(store, window, evaluator or None)
    return {"name": name, "unit": unit, "step": window.step_s, **ends, "series": found, "markers": told}


def _traffic(store: Store, name: str, window: Window, keep: Filter, groups: tuple[str, ...]) -> list[dict[str, Any]]:
    metric = NAMES[name]
    unknown = f"avg(({metric.of} IS NULL)::INTEGER)" if metric.of else "0.0"
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {metric.sql}, count(*), {unknown},"
        f" bool_or(coalesce(upstream_pi, 1) < 1){''.join(f', {group}' for group in groups)}"
        f" FROM traces WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {**window.parameters, **keep.parameters},
    ).rows
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for at, value, n, unknown_share, estimated, *group in rows:
        shown = _traffic_point(name, value, n, max(1.0, float(window.step_s)))
        found[tuple(group)][at] = shown | {"unknown_share": unknown_share, "estimated": estimated}
    if not found and not groups:
        found[()] = {}
    empty = point(None) | {"value": 0.0 if metric.count else None}
    seen = [at for points in found.values() for at in points]
    return [
        _line(groups, key, None, None, _filled(window, points, empty, seen=seen))
        for key, points in sorted(found.items(), key=lambda item: str(item[0]))
    ]


def _traffic_point(name: str, value: Any, n: int, seconds: float) -> dict[str, Any]:
    if name == "error_rate":
        return point(wilson(value, n))
    if name == "throughput":
        value = value / seconds
    return {"value": None if value is None else float(value), "lo": None, "hi": None, "n": n, "n_eff": float(n)}


def _quality(
    store: Store, family: str, evaluator: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for one in estimates(store, evaluator, window, keep, groups=groups, family=family):
        found[(one.group, one.version, one.judge)][one.at] = one.point()
    empty = point(None) | {"counts": {"skipped": 0, "invalid": 0, "error": 0}, "dropped": 0, "bounds": None}
    scopes = {(share.version, share.where) for share in shares(store, evaluator) if share.where}
    return [
        _line(groups, group, version, judge, _filled(window, points, empty))
        | {"replayed_where": sorted(where for of, where in scopes if of == version)}
        for (group, version, judge), points in sorted(
            found.items(), key=lambda item: (str(item[0][0]), min(item[1]), str(item[0]))
        )
    ]


def _line(
    groups: Iterable[str], key: Iterable[Any], version: str | None, judge: str | None, points: list[dict[str, Any]]
) -> dict[str, Any]:
    group = dict(zip(groups, key, strict=True))
    return {"group": group, "version": version, "judge": judge, "points": points}


def _filled(
    window: Window,
    points: Mapping[datetime, dict[str, Any]],
    empty: Mapping[str, Any],
    *,
    seen: Sequence[datetime] = (),
) -> list[dict[str, Any]]:
    """One point a bucket; a bucket without rows is a gap, or what `empty` says between the first and last one seen."""
    gap = {**empty, "value": None}
    first, last = (min(seen), max(seen)) if seen else (window.last, window.first)
    return [{"t": iso(at), **(points.get(at) or (empty if first <= at <= last else gap))} for at in window.starts()]
