"""Reads an evaluator's estimates by group and bucket from the sums that the store adds up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality.buckets import FAILURES, Bucket, Missing
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS
from ragpulse_collector.store.queries.decisions import without_verdict
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_evaluators.statistics import Moments

__all__ = ["estimates", "estimates_and_whole"]

_EACH = (
    "count(*) AS c_all, count_if(source = 'online') AS c_online,"
    " min(CASE WHEN source = 'online' THEN request_time END) AS c_first, max(request_time) AS c_last,"
    " sum(1 / pi) AS c_weight, coalesce(sum(CASE WHEN passing THEN 1 / pi END), 0) AS c_passed,"
    " coalesce(sum(CASE WHEN passing IS NOT NULL THEN 1 / pi END), 0) AS c_called, bool_or(identified) AS c_identified"
)
_ALL = (
    "sum(c_all), sum(c_online), min(c_first), max(c_last), sum(c_weight), sum(c_passed), sum(c_called),"
    " bool_or(c_identified)"
)
"""Beside the moments, of the verdicts of one status: of one cluster, and of all."""
_LEAST, _MOST = frozenset({"c_first", "c_rarest", "c_low"}), frozenset({"c_last", "c_high"})


def _joined(column: str) -> str:
    verb = "min" if column in _LEAST else "max" if column in _MOST else "sum"
    return f"{'bool_or' if column == 'c_identified' else verb}({column}) AS {column}"


_PEOPLE = (
    "SELECT evaluator, version, judge, status, cluster, "
    + ", ".join(map(_joined, re.findall(r"AS (c_\w+)", f"{_EACH}, {CLUSTER_SUMS}")))
    + " FROM clustered GROUP BY ALL"
)
"""The clusters of all buckets, each once."""


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
    listed = "".join(f", {group}" for group in groups)
    clustered = _clustered(sample.sql, window, listed, family)
    rows = store.read(_summed(f"({clustered})", f"t{listed}"), sample.parameters).rows
    return _buckets(rows, _missing(store, evaluator, window, keep, groups), len(groups), bounded=family != "score")


def estimates_and_whole(store: Store, window: Window, keep: Filter) -> tuple[list[Bucket], list[Bucket]]:
    """Estimate the quality of every evaluator by bucket, and over the whole window, from one pass over the scores.

    A user who asks in several buckets is one user of the window.
    """
    sample = sample_of(store, None, window.parameters, keep)
    rows = store.read(
        f"WITH clustered AS MATERIALIZED ({_clustered(sample.sql, window, '', 'quality')}) {_summed('clustered', 't')}"
        f" UNION ALL {_summed(f'({_PEOPLE})', 'NULL::TIMESTAMP AS t')}",
        sample.parameters,
    ).rows
    lost, first = _missing(store, None, window, keep, ()), window.first
    in_all: dict[tuple[Any, ...], Missing] = {}
    for (evaluator, _), missing in lost.items():
        in_all[evaluator, first] = in_all.get((evaluator, first), Missing()) + missing
    whole = [(row[0], first, *row[2:]) for row in rows if row[1] is None]
    found = _buckets([row for row in rows if row[1] is not None], lost, 0, bounded=True)
    return found, _buckets(whole, in_all, 0, bounded=True)


def _clustered(sample: str, window: Window, listed: str, family: str) -> str:
    """The query for what the verdicts of each cluster add up to, by evaluator, bucket, group, version and status."""
    y = f"(CASE WHEN status = 'ok' THEN {MEASURES[family]} END)"
    keys = f"evaluator, {window.bucket('request_time')} AS t{listed}, version, judge, status, cluster"
    return f"SELECT {keys}, {_EACH}, {CLUSTER_SUMS.format(y=y)} FROM ({sample}) WHERE pi IS NOT NULL GROUP BY ALL"


def _summed(clustered: str, place: str) -> str:
    return f"SELECT evaluator, {place}, version, judge, status, {_ALL}, {MOMENTS} FROM {clustered} GROUP BY ALL"


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
