"""`GET metrics`: one metric over request time, each point with its interval and what it rests on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.cache import Snapshot, Snapshots, snapshot_of
from ragpulse_collector.analysis.calibration import assist, correct
from ragpulse_collector.analysis.quality import NO_POINT, point
from ragpulse_collector.analysis.selection import Window, iso
from ragpulse_collector.analysis.traffic import NAMES, Clustered, Decided, TrafficBucket, check_metric
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import public_name
from ragpulse_collector.store.rows import utc_now

__all__ = ["series"]

_COVERAGE = "coverage"
_SKIPPED = ("name",)
"""Here `name` is the metric, not a filter."""


def series(
    store: Store,
    params: Mapping[str, Any],
    *,
    clock: Callable[[], datetime] = utc_now,
    snapshots: Snapshots | None = None,
) -> dict[str, Any]:
    """Answer `GET metrics`: `name`, `from`, `to`, `step`, `group_by`, `width`, `corrected`, `assisted_by` and filters.

    Raises ValueError for an unknown name or a malformed parameter. A bucket in which nothing was measured has value
    null; counts of requests are 0 between the first and the last request. With `corrected` the points of a quality
    metric are moved by what people's labels show the judge to be wrong by; with `assisted_by` (an evaluator that scored
    everything) they are made more precise by what that says of the answers not judged. `replayed_where` names the
    conditions of replays in a line: their scores represent those traces only. A line begins with what a replay scored
    and goes on with what a rule scores: `online_since` is where, and `replayed` of a point counts scores of replays.
    With `snapshots` it shares what was read
    for others. A list of names is answered by `{"metrics": [...]}`: a page asks once, not a dozen times.
    """
    name = params.get("name") or ""
    if isinstance(name, list):
        each = ({**params, "name": str(one)} for one in name)
        return {"metrics": [series(store, one, clock=clock, snapshots=snapshots) for one in each]}
    family, _, evaluator = str(name).partition(":")
    measured = bool(evaluator) and family in MEASURES
    seen = bool(evaluator) and family == _COVERAGE
    check_metric(str(name), ())
    check = _assistant(params, family, evaluator)
    asked = snapshots.of(params, skip=_SKIPPED) if snapshots else snapshot_of(store, params, now=clock(), skip=_SKIPPED)
    window = asked.window
    if measured:
        found, unit = _quality(asked, family, evaluator), "score" if family == "score" else "share"
        markers = asked.markers(evaluator, family)
        if check:
            assist(store, evaluator, check, window, asked.keep, asked.groups, found)
        elif family == "quality" and _corrected(params):
            correct(store, evaluator, window, asked.keep, found)
    elif seen:
        found, unit, markers = _coverage(asked, evaluator), "share", asked.markers()
    else:
        found, unit, markers = _traffic(asked, name), NAMES[name].unit, asked.markers()
    ends = {"from": iso(window.first), "to": iso(window.last)}
    return {"name": name, "unit": unit, "step": window.step_s, **ends, "series": found, "markers": markers}


def _corrected(params: Mapping[str, Any]) -> bool:
    return str(params.get("corrected", "")).lower() in ("true", "1")


def _assistant(params: Mapping[str, Any], family: str, evaluator: str) -> str:
    """The evaluator that `assisted_by` names, or nothing; raises ValueError where none can assist."""
    check = str(params.get("assisted_by") or "")
    if check and family != "quality":
        raise ValueError("assisted_by goes with quality:<evaluator>: only there do both share the scale from 0 to 1")
    if check and check == evaluator:
        raise ValueError(f"{check} cannot assist itself: name a check that scored every answer")
    if check and _corrected(params):
        raise ValueError("either corrected or assisted_by: no interval of both together is known to hold")
    return check


def _traffic(asked: Snapshot, name: str) -> list[dict[str, Any]]:
    window, groups = asked.window, asked.groups
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    if name == "error_rate":
        for (at, *group), share in asked.failing().items():
            if at is not None:
                found[tuple(group)][at] = _share(share)
    else:
        for one in asked.traffic():
            seconds = asked.covered_s(one.at) if name == "throughput" else 1.0
            found[one.group][one.at] = _traffic_point(one, name, seconds)
    if not found and not groups:
        found[()] = {}
    empty = point(None) | {"value": 0.0 if NAMES[name].count else None}
    seen = [at for points in found.values() for at in points]
    return [
        _line(groups, key, None, None, _filled(window, points, empty, seen=seen))
        for key, points in sorted(found.items(), key=lambda item: str(item[0]))
    ]


def _traffic_point(one: TrafficBucket, name: str, seconds: float) -> dict[str, Any]:
    value, n = one.values[name], one.values["n"]
    more = {"unknown_share": one.unknown_share(name), "estimated": one.values["estimated"]}
    if name == "throughput":
        value = value / seconds
    return point(None) | more | {"value": None if value is None else float(value), "n": n, "n_eff": float(n)}


def _share(one: Clustered) -> dict[str, Any]:
    estimate = one.moments.estimate() if one.moments else None
    return point(estimate, identified=one.identified) | {"unknown_share": 0.0, "estimated": one.estimated}


def _quality(asked: Snapshot, family: str, evaluator: str) -> list[dict[str, Any]]:
    window, groups = asked.window, asked.groups
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    since: dict[tuple[Any, ...], datetime] = {}
    for one in asked.quality(evaluator, family):
        line = (one.group, one.version, one.judge)
        found[line][one.at] = one.point()
        if one.first is not None:
            since[line] = min(one.first, since.get(line, one.first))
    return [
        _line(groups, group, version, judge, _filled(window, points, NO_POINT))
        | {"replayed_where": sorted(where for of, where in asked.scopes() if of == version)}
        | {"online_since": iso(since.get((group, version, judge)))}
        for (group, version, judge), points in sorted(
            found.items(), key=lambda item: (str(item[0][0]), min(item[1]), str(item[0]))
        )
    ]


def _coverage(asked: Snapshot, evaluator: str) -> list[dict[str, Any]]:
    """The share of eligible units with an online score; n: how many were eligible; counts: where the others are."""
    verdicts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for one in asked.quality(evaluator):
        verdicts[one.group, one.at].update(one.online)
    found: dict[tuple[Any, ...], dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for part in asked.decided():
        if part.evaluator == evaluator:
            found[part.group][part.at] = _seen(part, verdicts[part.group, part.at])
    empty = point(None) | {"counts": {}, "dropped": 0}
    return [
        _line(asked.groups, group, None, None, _filled(asked.window, points, empty))
        for group, points in sorted(found.items(), key=lambda item: str(item[0]))
    ]


def _seen(one: Decided, verdicts: Mapping[str, int]) -> dict[str, Any]:
    """A unit that two versions scored is still one."""
    counts = {status: verdicts.get(status, 0) for status in ("skipped", "invalid", "error")}
    counts |= {"unselected": max(0, one.eligible - one.selected - one.uncovered), "uncovered": one.uncovered}
    value = min(1.0, verdicts.get("ok", 0) / one.eligible)
    return point(None) | {"value": value, "n": one.eligible, "counts": counts, "dropped": one.dropped}


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
    seen: Sequence[datetime] = (),
) -> list[dict[str, Any]]:
    """One point a bucket; a bucket without rows is a gap, or what `empty` says between the first and last one seen."""
    gap = {**empty, "value": None}
    first, last = (min(seen), max(seen)) if seen else (window.last, window.first)
    return [{"t": iso(at), **(points.get(at) or (empty if first <= at <= last else gap))} for at in window.starts()]
