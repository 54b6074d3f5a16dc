"""`GET metrics`: one metric over request time, each point with its interval and what it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.estimate import MOMENTS, Moments, point
from ragpulse_collector.metrics.filters import Filter, dimensions, filter_of
from ragpulse_collector.metrics.markers import markers
from ragpulse_collector.metrics.units import MEASURES, sample_of
from ragpulse_collector.metrics.window import Window, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import wilson

__all__ = ["NAMES", "series"]

_INVALID_SHARE = 0.05
"""Above this share of unreadable or failed verdicts a bucket shows bounds: long contexts fail more often."""


@dataclass(frozen=True, slots=True)
class _Traffic:
    """A metric of the traffic itself: SQL for its value, its unit, and whether an empty bucket is a true zero."""

    sql: str
    unit: str
    count: bool = False


_SCALED = "sum(1 / coalesce(upstream_pi, 1))"
NAMES: dict[str, _Traffic] = {
    "requests": _Traffic(_SCALED, "requests", True),
    "errors": _Traffic("sum(CASE WHEN error THEN 1 / coalesce(upstream_pi, 1) ELSE 0 END)", "requests", True),
    "error_rate": _Traffic("count(*) FILTER (error)", "share"),
    "latency_p50": _Traffic("quantile_cont(latency_ms, 0.5)", "ms"),
    "latency_p95": _Traffic("quantile_cont(latency_ms, 0.95)", "ms"),
    "latency_p99": _Traffic("quantile_cont(latency_ms, 0.99)", "ms"),
    "ttft_p50": _Traffic("quantile_cont(ttft_ms, 0.5)", "ms"),
    "ttft_p95": _Traffic("quantile_cont(ttft_ms, 0.95)", "ms"),
    "input_tokens": _Traffic("sum(input_tokens / coalesce(upstream_pi, 1))", "tokens"),
    "output_tokens": _Traffic("sum(output_tokens / coalesce(upstream_pi, 1))", "tokens"),
    "cost_usd": _Traffic("sum(cost_usd / coalesce(upstream_pi, 1))", "USD"),
    "throughput": _Traffic(_SCALED, "requests/s", True),
}
"""The metrics beside `quality:`, `score:` and `pass_rate:` of an evaluator."""


def series(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET metrics`: `name`, `from`, `to`, `step`, `group_by`, `width`, `corrected` and the common filters.

    Raises ValueError for an unknown name or a malformed parameter. A bucket in which nothing was measured has value
    null; counts of requests are 0 there.
    """
    name = str(params.get("name") or "")
    window = window_of(params, now=clock())
    groups, keep = dimensions(params), filter_of(store, params, skip=("name",))
    family, _, evaluator = name.partition(":")
    if evaluator and family in MEASURES:
        found = _quality(store, family, evaluator, window, keep, groups)
        unit = "score" if family == "score" else "share"
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
    listed = "".join(f", {group}" for group in groups)
    # A total of nothing but unknown parts is unknown; the share of unknown goes with every total.
    known = {"cost_usd": "cost_usd", "input_tokens": "input_tokens", "output_tokens": "output_tokens"}.get(name)
    unknown = f"avg(({known} IS NULL)::INTEGER)" if known else "0.0"
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {metric.sql}, count(*), {unknown},"
        f" bool_or(coalesce(upstream_pi, 1) < 1){listed}"
        f" FROM traces WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {**window.parameters, **keep.parameters},
    ).rows
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for at, value, n, unknown_share, estimated, *group in rows:
        found[tuple(group)][at] = _traffic_point(name, value, n, window) | {
            "unknown_share": unknown_share,
            "estimated": estimated,
        }
    empty = {"value": 0.0 if metric.count else None, "lo": None, "hi": None, "n": 0, "n_eff": 0.0}
    span = [at for points in found.values() for at in points]
    keys = found or ({(): {}} if not groups else {})
    return [
        _line(groups, key, None, None, _filled(window, found.get(key, {}), empty, inside=span))
        for key in sorted(keys, key=str)
    ]


def _traffic_point(name: str, value: Any, n: int, window: Window) -> dict[str, Any]:
    if name == "error_rate":
        return point(wilson(value, n))
    if name == "throughput":
        value = value / window.step_s
    return {"value": None if value is None else float(value), "lo": None, "hi": None, "n": n, "n_eff": float(n)}


def _quality(
    store: Store, family: str, evaluator: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> list[dict[str, Any]]:
    sample = sample_of(store, evaluator, window, keep, columns=groups)
    y = f"(CASE WHEN status = 'ok' THEN {MEASURES[family]} END)"
    listed = "".join(f", {group}" for group in groups)
    rows = store.read(
        f"SELECT version, judge, {window.bucket('request_time')} AS t, {MOMENTS.format(y=y)},"
        " count(*) FILTER (status = 'skipped'), count(*) FILTER (status = 'invalid'),"
        " count(*) FILTER (status = 'error'),"
        f" coalesce(sum(1 / pi) FILTER (status IN ('invalid', 'error')), 0){listed}"
        f" FROM ({sample.sql}) WHERE pi IS NOT NULL GROUP BY ALL",
        sample.parameters,
    ).rows
    dropped = _dropped(store, evaluator, window, keep, groups)
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    bounded = family != "score"
    for version, judge, at, *rest in rows:
        group = tuple(rest[13:])
        lost = dropped.get((at, *group), (0, 0.0))
        found[(version, judge, *group)][at] = _quality_point(rest, lost, bounded=bounded)
    empty = point(None) | {"counts": {"skipped": 0, "invalid": 0, "error": 0}, "dropped": 0, "bounds": None}
    return [
        _line(groups, key[2:], key[0], key[1], _filled(window, points, empty))
        for key, points in sorted(found.items(), key=lambda item: (str(item[0][2:]), min(item[1]), str(item[0])))
    ]


def _quality_point(row: Sequence[Any], lost: tuple[int, float], *, bounded: bool) -> dict[str, Any]:
    moments = Moments.of(row[:9])
    skipped, invalid, error, missing = row[9:13]
    told = point(moments.estimate(bounds=(0.0, 1.0) if bounded else None) if moments else None)
    unread = invalid + error
    hatched = lost[0] > 0 or unread > _INVALID_SHARE * ((moments.n if moments else 0) + unread)
    away = missing + lost[1]
    bounds = None
    if hatched and bounded and away:
        wy, w = (moments.wy, moments.w) if moments else (0.0, 0.0)
        bounds = [wy / (w + away), (wy + away) / (w + away)]
    counts = {"skipped": skipped, "invalid": invalid, "error": error}
    return told | {"counts": counts, "dropped": lost[0], "bounds": bounds}


def _dropped(
    store: Store, evaluator: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[int, float]]:
    """Selected units that a cap left out, by bucket and group: how many, and what they weigh."""
    rows = store.read(
        f"SELECT {window.bucket('d.request_time')} AS t{''.join(f', t.{group}' for group in groups)}, count(*),"
        " sum(1 / d.pi) FROM raw.decisions d"
        f" JOIN (SELECT * FROM raw.trace_facts WHERE latest AND {keep.sql}) t ON t.trace_id = d.trace_id"
        " WHERE d.latest AND d.evaluator = $evaluator AND d.reason = 'budget' AND NOT d.sampled"
        # Pacing leaves out units whose u lies above pi: they were never selected. A cap drops selected ones.
        " AND d.pi > 0 AND d.u * coalesce(t.upstream_pi, 1) < d.pi"
        " AND d.request_time >= $first AND d.request_time < $last GROUP BY ALL",
        {"evaluator": evaluator, **window.parameters, **keep.parameters},
    ).rows
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}


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
    inside: Sequence[datetime] = (),
) -> list[dict[str, Any]]:
    """One point a bucket; a bucket without rows is a gap, or a zero between the first and last request."""
    gap = dict(empty) | {"value": None}
    first, last = (min(inside), max(inside)) if inside else (window.last, window.first)
    return [{"t": iso(at), **(points.get(at) or (empty if first <= at <= last else gap))} for at in window.starts()]
