"""`GET metrics`: one metric over request time, each point with its interval, n and missing verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.cache import Snapshot, Snapshots, snapshot_of
from ragpulse_collector.analysis.calibration import assist, correct
from ragpulse_collector.analysis.quality import NO_POINT, point
from ragpulse_collector.analysis.selection import Window, iso
from ragpulse_collector.analysis.traffic import NAMES, ClusteredMean, DecisionCounts, TrafficBucket, check_metric
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.scores import FEEDBACK, MEASURES, off_scale
from ragpulse_collector.store.queries.traces import public_name

__all__ = ["series"]

_COVERAGE = "coverage"
_NOT_FILTERS = ("name",)
"""Here `name` is the metric, not a filter."""


def series(
    store: Store,
    params: Mapping[str, Any],
    *,
    clock: Callable[[], datetime] = utc_now,
    snapshots: Snapshots | None = None,
) -> dict[str, Any]:
    """Answer `GET metrics`: `name`, `from`, `to`, `step`, `group_by`, `width`, `corrected`, `assisted_by` and filters.

    Raises Invalid for an unknown name or a malformed parameter. A bucket without a measurement has value null;
    counts of requests are 0 between the first and the last request. `corrected` moves the points of a quality metric by
    the judge's error against people's labels; `assisted_by` (an evaluator that scored everything) narrows them.
    `replayed_where` names the conditions of replays in a series: their scores represent those traces only. A series
    starts with scores of replays and continues with those of a rule from `online_since`; `replayed` of a point counts
    scores of replays. `left_out` of `feedback:NAME` counts values outside the scale of their name. The largest groups
    are answered, all others together as `(other)`: `other_groups` counts them. With `snapshots` it shares data with
    other requests. A list of names gives `{"metrics": [...]}`.
    """
    name = params.get("name") or ""
    if isinstance(name, list):
        questions = ({**params, "name": str(question)} for question in name)
        return {"metrics": [series(store, question, clock=clock, snapshots=snapshots) for question in questions]}
    family, _, evaluator = str(name).partition(":")
    is_quality = bool(evaluator) and family in MEASURES
    is_coverage = bool(evaluator) and family == _COVERAGE
    check_metric(str(name), ())
    check = _assistant(params, family, evaluator)
    snapshot = (
        snapshots.of(params, skip=_NOT_FILTERS)
        if snapshots
        else snapshot_of(store, params, now=clock(), skip=_NOT_FILTERS)
    )
    window = snapshot.window
    if is_quality:
        all_series, unit = _quality(snapshot, family, evaluator), "score" if family in ("score", FEEDBACK) else "share"
        markers = snapshot.markers(evaluator, family)
        if check:
            assist(store, evaluator, check, window, snapshot.filters, snapshot.groups, all_series)
        elif family == "quality" and _corrected(params):
            correct(store, evaluator, window, snapshot.filters, all_series)
    elif is_coverage:
        all_series, unit, markers = _coverage(snapshot, evaluator), "share", snapshot.markers()
    else:
        all_series, unit, markers = _traffic(snapshot, name), NAMES[name].unit, snapshot.markers()
    left_out = (
        {"left_out": off_scale(store, evaluator, window.parameters, snapshot.filters)} if family == FEEDBACK else {}
    )
    ends = {"from": iso(window.first), "to": iso(window.last)}
    answer = {"name": name, "unit": unit, "step": window.step_s, **ends, "series": all_series, "markers": markers}
    return answer | {"other_groups": snapshot.other_groups, **left_out}


def _corrected(params: Mapping[str, Any]) -> bool:
    return str(params.get("corrected", "")).lower() in ("true", "1")


def _assistant(params: Mapping[str, Any], family: str, evaluator: str) -> str:
    """Return the evaluator of `assisted_by`, or an empty text; raises Invalid where it cannot assist."""
    check = str(params.get("assisted_by") or "")
    if check and family != "quality":
        raise Invalid("assisted_by goes with quality:<evaluator>: only there do both share the scale from 0 to 1")
    if check and check == evaluator:
        raise Invalid(f"{check} cannot assist itself: name a check that scored every answer")
    if check and _corrected(params):
        raise Invalid("either corrected or assisted_by: no interval of both together is known to hold")
    return check


def _traffic(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    window, groups = snapshot.window, snapshot.groups
    points_by_group: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    if name == "error_rate":
        for (start, *group), share in snapshot.failing().items():
            if start is not None:
                points_by_group[tuple(group)][start] = _share(share)
    elif NAMES[name].each:
        unknown = {(bucket.start, *bucket.group): bucket.unknown_share(name) for bucket in snapshot.traffic()}
        for (start, *group), mean in snapshot.means(name).items():
            points_by_group[tuple(group)][start] = _share(mean) | {"unknown_share": unknown.get((start, *group), 0.0)}
    else:
        for bucket in snapshot.traffic():
            seconds = snapshot.seconds_covered(bucket.start) if name == "throughput" else 1.0
            points_by_group[bucket.group][bucket.start] = _traffic_point(bucket, name, seconds)
    if not points_by_group and not groups:
        points_by_group[()] = {}
    empty = point(None) | {"value": 0.0 if NAMES[name].count else None}
    starts = [start for points in points_by_group.values() for start in points]
    return [
        _line(groups, key, None, None, _filled(window, points, empty, starts=starts))
        for key, points in sorted(points_by_group.items(), key=lambda item: str(item[0]))
    ]


def _traffic_point(bucket: TrafficBucket, name: str, seconds: float) -> dict[str, Any]:
    value, n = bucket.values[name], bucket.values["n"]
    more = {"unknown_share": bucket.unknown_share(name), "estimated": bucket.values["estimated"]}
    if name == "throughput":
        value = value / seconds
    return point(None) | more | {"value": None if value is None else float(value), "n": n, "n_eff": float(n)}


def _share(rate: ClusteredMean) -> dict[str, Any]:
    estimate = rate.moments.estimate() if rate.moments else None
    return point(estimate, identified=rate.identified) | {"unknown_share": 0.0, "estimated": rate.estimated}


def _quality(snapshot: Snapshot, family: str, evaluator: str) -> list[dict[str, Any]]:
    window, groups = snapshot.window, snapshot.groups
    points_by_series: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    since: dict[tuple[Any, ...], datetime] = {}
    for bucket in snapshot.quality(evaluator, family):
        key = (bucket.group, bucket.version, bucket.judge)
        points_by_series[key][bucket.start] = bucket.point()
        if bucket.first is not None:
            since[key] = min(bucket.first, since.get(key, bucket.first))
    return [
        _line(groups, group, version, judge, _filled(window, points, NO_POINT))
        | {
            "replayed_where": sorted(
                where for version_of_replay, where in snapshot.scopes() if version_of_replay == version
            )
        }
        | {"online_since": iso(since.get((group, version, judge)))}
        for (group, version, judge), points in sorted(
            points_by_series.items(), key=lambda item: (str(item[0][0]), min(item[1]), str(item[0]))
        )
    ]


def _coverage(snapshot: Snapshot, evaluator: str) -> list[dict[str, Any]]:
    """Return the share of eligible units with an online score; n counts eligible units, `counts` the others."""
    verdicts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for bucket in snapshot.quality(evaluator):
        verdicts[bucket.group, bucket.start].update(bucket.online)
    points_by_group: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for decisions in snapshot.decided():
        if decisions.evaluator == evaluator:
            points_by_group[decisions.group][decisions.start] = _coverage_point(
                decisions, verdicts[decisions.group, decisions.start]
            )
    empty = point(None) | {"counts": {}, "dropped": 0}
    return [
        _line(snapshot.groups, group, None, None, _filled(snapshot.window, points, empty))
        for group, points in sorted(points_by_group.items(), key=lambda item: str(item[0]))
    ]


def _coverage_point(decisions: DecisionCounts, verdicts: Mapping[str, int]) -> dict[str, Any]:
    """Return the point of a bucket; a unit that two versions scored counts once."""
    counts = {status: verdicts.get(status, 0) for status in ("skipped", "invalid", "error")}
    counts |= {
        "unselected": max(0, decisions.eligible - decisions.selected - decisions.uncovered),
        "uncovered": decisions.uncovered,
    }
    value = min(1.0, verdicts.get("ok", 0) / decisions.eligible)
    return point(None) | {"value": value, "n": decisions.eligible, "counts": counts, "dropped": decisions.dropped}


def _line(
    groups: Iterable[str], key: Iterable[Any], version: str | None, judge: str | None, points: list[dict[str, Any]]
) -> dict[str, Any]:
    group = dict(zip(map(public_name, groups), key, strict=True))
    return {"group": group, "version": version, "judge": judge, "points": points}


def _filled(
    window: Window,
    points: Mapping[datetime, dict[str, Any]],
    empty: Mapping[str, Any],
    *,
    starts: Sequence[datetime] = (),
) -> list[dict[str, Any]]:
    """Return a point per bucket; without rows a gap, or `empty` between the first and the last of `starts`."""
    gap = {**empty, "value": None}
    first, last = (min(starts), max(starts)) if starts else (window.last, window.first)
    return [
        {"t": iso(start), **(points.get(start) or (empty if first <= start <= last else gap))}
        for start in window.starts()
    ]
