"""Reads an evaluator's estimates by group and bucket from the sums that the store adds up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality.buckets import FAILURES, Bucket, Missing
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.decisions import without_verdict
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_evaluators.statistics import Moments

__all__ = ["estimates", "estimates_and_whole"]

_PLAIN = (
    "count(*), count_if(source = 'online'), min(CASE WHEN source = 'online' THEN request_time END), max(request_time),"
    " sum(1 / pi), coalesce(sum(CASE WHEN passing THEN 1 / pi END), 0),"
    " coalesce(sum(CASE WHEN passing IS NOT NULL THEN 1 / pi END), 0), bool_or(identified),"
    " count(y) AS n, sum(y * (y * (1 / pi))) AS wyy, 1 / min(CASE WHEN y IS NOT NULL THEN pi END) AS heaviest,"
    " min(y) AS low, max(y) AS high, count_if(y > 0 AND y < 1) AS between"
)
"""Of the verdicts of one status: what `_Part` holds, and the moments in which users do not matter."""
_BY_USER = (
    "count(w) AS clusters, sum(w) AS w, sum(wy) AS wy, sum(ww) AS ww, sum(w * w) AS w2, sum(w * wy) AS ws,"
    " sum(wy * wy) AS s2, sum(wy * (wy / w)) AS means, sum(ww / w) AS own, max(w) AS largest"
)
_MOMENTS = "n, clusters, w, wy, wyy, ww, w2, ws, s2, means, own, heaviest, largest, low, high, between"
"""The fields of `statistics.Moments`."""


def estimates(
    store: Store,
    evaluator: str | None,
    window: Window,
    keep: Filter,
    *,
    groups: tuple[str, ...] = (),
    family: str = "quality",
) -> list[Bucket]:
    """Estimate `quality` (normalized), `score` (native) or `pass_rate` per group, version, judge and bucket.

    For one evaluator, or for all of them (None) in one pass. A bucket in which answers were selected and none has a
    verdict is there, too: everything is missing.
    """
    sample = sample_of(store, evaluator, window.parameters, keep, columns=groups)
    read = f"{_clustered(sample.sql, window, groups, family)} {_summed('line', ('t', *groups))}"
    rows = store.read(read, sample.parameters).rows
    return _buckets(rows, _missing(store, evaluator, window, keep, groups), len(groups), bounded=family != "score")


def estimates_and_whole(store: Store, window: Window, keep: Filter) -> tuple[list[Bucket], list[Bucket]]:
    """Estimate the quality of every evaluator by bucket, and over the whole window, from one pass over the scores.

    A user who asks in several buckets is one user of the window.
    """
    sample = sample_of(store, None, window.parameters, keep)
    read = f"{_clustered(sample.sql, window, (), 'quality')} {_summed('line', ('t',))}"
    rows = store.read(f"{read} UNION ALL {_summed('whole', ('NULL::TIMESTAMP AS t',))}", sample.parameters).rows
    lost, first = _missing(store, None, window, keep, ()), window.first
    in_all: dict[tuple[Any, ...], Missing] = {}
    for (evaluator, _), missing in lost.items():
        in_all[evaluator, first] = in_all.get((evaluator, first), Missing()) + missing
    whole = [(row[0], first, *row[2:]) for row in rows if row[1] is None]
    found = _buckets([row for row in rows if row[1] is not None], lost, 0, bounded=True)
    return found, _buckets(whole, in_all, 0, bounded=True)


def _clustered(sample: str, window: Window, groups: tuple[str, ...], family: str) -> str:
    """The verdicts, and what those of each user add up to by line: evaluator, bucket, group, version, judge and status.

    Most users ask once in a bucket, so that hardly anything is added up here: little is carried along.
    """
    line = "evaluator, version, judge, status"
    listed = "".join(f", {group}" for group in groups)
    return f"""
        WITH verdicts AS MATERIALIZED (
            SELECT {line}, {window.bucket("request_time")} AS t{listed}, cluster, pi, source, request_time, passing,
                   identified, CASE WHEN status = 'ok' THEN {MEASURES[family]} END AS y,
                   hash({line}) AS whole, hash({line}, t{listed}) AS line
            FROM ({sample}) WHERE pi IS NOT NULL),
        users AS MATERIALIZED (
            SELECT line, whole, cluster, sum(1 / pi) AS w, sum(y * (1 / pi)) AS wy, sum((1 / pi) * (1 / pi)) AS ww
            FROM verdicts WHERE y IS NOT NULL GROUP BY line, whole, cluster)"""


def _summed(line: str, place: tuple[str, ...]) -> str:
    """The sums of each line; `whole` lines join the users of all buckets."""
    users = "users"
    if line == "whole":
        users = "(SELECT whole, cluster, sum(w) AS w, sum(wy) AS wy, sum(ww) AS ww FROM users GROUP BY whole, cluster)"
    head = f"evaluator, {', '.join(place)}, version, judge, status"
    return f"""
        SELECT p.* EXCLUDE ({line}, n, wyy, heaviest, low, high, between), {_MOMENTS}
        FROM (SELECT {head}, {_PLAIN}, any_value({line}) AS {line} FROM verdicts GROUP BY ALL) p
        LEFT JOIN (SELECT {line}, {_BY_USER} FROM {users} GROUP BY {line}) u ON u.{line} = p.{line}"""


def _buckets(
    rows: Iterable[Sequence[Any]], lost: Mapping[tuple[Any, ...], Missing], groups: int, *, bounded: bool
) -> list[Bucket]:
    lines: dict[tuple[Any, ...], list[_Part]] = defaultdict(list)
    place = 4 + groups
    for row in rows:
        lines[tuple(row[:place])].append(_Part(*[*row[place : place + 9], Moments.of(row[place + 9 :])]))
    found = [_bucket(key, parts, lost.get(key[:-2], Missing()), bounded) for key, parts in lines.items()]
    found += _unseen(found, lost, bounded)
    return sorted(found, key=lambda one: (one.evaluator, one.at, str(one.group), one.last, str(one.version)))


@dataclass(frozen=True, slots=True)
class _Part:
    """The verdicts of one status in a bucket."""

    status: str
    n: int
    online: int
    first: datetime | None
    last: datetime
    weight: float
    passed: float
    called: float
    identified: bool
    moments: Moments | None


def _bucket(key: tuple[Any, ...], parts: Sequence[_Part], lost: Missing, bounded: bool) -> Bucket:
    evaluator, at, *group, version, judge = key
    answer = next((one for one in parts if one.status == "ok"), None)
    failed = [one for one in parts if one.status in ("invalid", "error")]
    return Bucket(
        evaluator=evaluator,
        group=tuple(group),
        version=version,
        judge=judge,
        at=at,
        moments=answer.moments if answer else None,
        counts=dict.fromkeys(FAILURES, 0) | {one.status: int(one.n) for one in parts if one.status in FAILURES},
        online={one.status: int(one.online) for one in parts if one.online},
        missing=replace(
            lost, failed=sum(int(one.n) for one in failed), weight=lost.weight + sum(one.weight for one in failed)
        ),
        first=answer.first if answer else None,
        last=max(one.last for one in parts),
        passed=answer.passed if answer else 0.0,
        called=answer.called if answer else 0.0,
        bounded=bounded,
        identified=any(one.identified for one in parts),
    )


def _unseen(found: Sequence[Bucket], lost: Mapping[tuple[Any, ...], Missing], bounded: bool) -> list[Bucket]:
    """Buckets without any verdict, as points of the line that was in force: the last one before, else the first."""
    seen = {(one.evaluator, one.at, *one.group) for one in found}
    missed = []
    for key, missing in lost.items():
        evaluator, at, *group = key
        lines = sorted((one for one in found if one.evaluator == evaluator), key=lambda one: one.last)
        lines = [one for one in lines if one.group == tuple(group)] or lines
        line = next((one for one in reversed(lines) if one.at <= at), lines[0] if lines else None)
        if key not in seen and missing.n:
            missed.append(
                Bucket(
                    evaluator=evaluator, group=tuple(group), version=line.version if line else None,
                    judge=line.judge if line else None, at=at, counts=dict.fromkeys(FAILURES, 0), online={},
                    missing=missing, last=at, bounded=bounded,
                )
            )  # fmt: skip
    return missed


def _missing(
    store: Store, evaluator: str | None, window: Window, keep: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], Missing]:
    """Selected units that have no verdict, by evaluator, bucket and group."""
    rows = store.read(
        f"SELECT d.evaluator, {window.bucket('d.request_time')} AS t{''.join(f', t.{group}' for group in groups)},"
        " count_if(NOT d.sampled), count_if(d.sampled), sum(1 / d.pi)"
        f" FROM ({without_verdict(evaluator)}) d"
        f" JOIN ({facts_of(keep, (*groups, 'upstream_pi'))}) t ON t.trace_id = d.trace_id"
        # Pacing leaves out units whose u lies above pi: they were never selected. A cap drops selected ones.
        " WHERE d.sampled OR d.u * coalesce(t.upstream_pi, 1) < d.pi GROUP BY ALL",
        {**({} if evaluator is None else {"evaluator": evaluator}), **window.parameters, **keep.parameters},
    ).rows
    return {tuple(row[:-3]): Missing(dropped=row[-3], pending=row[-2], weight=row[-1]) for row in rows}
