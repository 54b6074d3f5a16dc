"""An evaluator's estimates by group and bucket: what the series, the headline, the gate and the monitors read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragpulse_collector.analysis.quality.buckets import (
    FAILURES,
    Bucket,
    Figures,
    Measured,
    Missing,
    changed_version,
    current,
    markers_at,
    version_markers,
    wording_change,
)
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import BY_CLASS, CLUSTER
from ragpulse_collector.store.queries.decisions import without_verdict
from ragpulse_collector.store.queries.scores import MEASURES, feedback_name, measured, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_collector.store.views import UNCLEAR
from ragpulse_evaluators.statistics import Moments

__all__ = [
    "Bucket",
    "Figures",
    "Measured",
    "Missing",
    "changed_version",
    "current",
    "estimates",
    "estimates_and_whole",
    "markers_at",
    "missing_verdicts",
    "version_markers",
    "wording_change",
]


_STATUSES = ("ok", *FAILURES)
_PLAIN = {
    **{name: ("sum", f"count(*) FILTER (status = '{name}')") for name in _STATUSES},
    **{f"online_{name}": ("sum", f"count(*) FILTER (status = '{name}' AND source = 'online')") for name in _STATUSES},
    "lost": ("sum", "coalesce(sum(CASE WHEN status IN ('invalid', 'error') THEN 1 / pi END), 0)"),
    "first": ("min", "min(CASE WHEN status = 'ok' AND source = 'online' THEN request_time END)"),
    "last": ("max", "max(request_time)"),
    "passed": ("sum", "coalesce(sum(CASE WHEN passing THEN 1 / pi END), 0)"),
    "called": ("sum", "coalesce(sum(CASE WHEN passing IS NOT NULL THEN 1 / pi END), 0)"),
    "unclear": ("sum", f"coalesce(sum(CASE WHEN {UNCLEAR} THEN 1 / pi END), 0)"),
    "n_unclear": ("sum", f"count(*) FILTER ({UNCLEAR})"),
    "identified": ("max", "max(identified)"),
    "n_passed": ("sum", "count(*) FILTER (passing)"),
    "n_called": ("sum", "count(passing)"),
    "n": ("sum", "count(y)"),
    "w": ("sum", "sum(CASE WHEN y IS NOT NULL THEN 1 / pi END)"),
    "wy": ("sum", "sum(y * (1 / pi))"),
    "wyy": ("sum", "sum(y * (y * (1 / pi)))"),
    "ww": ("sum", "sum(CASE WHEN y IS NOT NULL THEN (1 / pi) * (1 / pi) END)"),
    "heaviest": ("max", "1 / min(CASE WHEN y IS NOT NULL THEN pi END)"),
    "low": ("min", "min(y)"),
    "high": ("max", "max(y)"),
    "between": ("sum", "count(*) FILTER (y > 0 AND y < 1)"),
}
"""Sums over the verdicts of one class of pi, and how sums are joined; from `n` on they are for `_MOMENTS`."""
_JOINED = ", ".join(f"{how}({name}) AS {name}" for name, (how, _) in _PLAIN.items())
_SUMMED = [*_PLAIN].index("n")
_BY_USER = (
    "count(w) AS clusters, sum(w * w) AS w2, sum(w * wy) AS ws, sum(wy * wy) AS s2, sum(wy * (wy / w)) AS means,"
    " sum(ww / w) AS own, max(w) AS largest"
)
_MOMENTS = (
    "n, clusters, w, wy, wyy, ww, w2, ws, s2, means, own, heaviest, largest, low, high, between, class_wwy,"
    " class_wwyy, class_n"
)
"""The fields of `statistics.Moments`."""
_LOW, _HIGH = -6, -5
"""The places of the least and the largest value in a row."""


def estimates(
    store: Store,
    evaluator: str | None,
    window: Window,
    filters: Filter,
    *,
    groups: tuple[str, ...] = (),
    family: str = "quality",
    cluster: str = CLUSTER,
) -> list[Bucket]:
    """Estimate a measure of quality per group, version, judge and bucket.

    `quality` is the normalized score, `score` the native one; the others are
    `pass_rate`, `fail_rate`, `unclear_rate` and `feedback`.

    For one evaluator, or for all (None) in one pass. A bucket without any verdict is included if answers were selected:
    all are missing.
    """
    if evaluator is not None:
        evaluator = measured(family, evaluator)
    sample = sample_of(store, evaluator, window.parameters, filters, columns=groups, cluster=cluster)
    sql = f"{_clustered(sample.sql, window, groups, family)} {_summed('line', ('t', *groups))}"
    rows = store.read(sql, sample.parameters).rows
    # People's scores have the scale of their name, which is usually 0 to 1.
    bounded = family != "score"
    if feedback_name(evaluator):
        bounded = all((row[_LOW] or 0.0) >= 0.0 and (row[_HIGH] or 0.0) <= 1.0 for row in rows)
    missing_by_key = missing_verdicts(store, evaluator, window, filters, groups)
    buckets = _buckets(rows, missing_by_key, len(groups), bounded=bounded)
    if family != "pass_rate":
        return buckets
    # A pass rate does not know unclear answers: they are missing.
    return [
        replace(bucket, missing=bucket.missing + Missing(unclear=bucket.n_unclear, weight=bucket.unclear))
        for bucket in buckets
    ]


def estimates_and_whole(store: Store, window: Window, filters: Filter) -> tuple[list[Bucket], list[Bucket]]:
    """Estimate the quality of every evaluator by bucket, and over the whole window, from one pass over the scores.

    A user who asks in several buckets is one user of the window.
    """
    sample = sample_of(store, None, window.parameters, filters)
    sql = f"{_clustered(sample.sql, window, (), 'quality')} {_summed('line', ('t',))}"
    rows = store.read(f"{sql} UNION ALL {_summed('whole', ('NULL::TIMESTAMP AS t',))}", sample.parameters).rows
    missing_by_key, first = missing_verdicts(store, None, window, filters, ()), window.first
    in_all: dict[tuple[Any, ...], Missing] = {}
    for (evaluator, _), bucket_missing in missing_by_key.items():
        in_all[evaluator, first] = in_all.get((evaluator, first), Missing()) + bucket_missing
    whole_rows = [(row[0], first, *row[2:]) for row in rows if row[1] is None]
    buckets = _buckets([row for row in rows if row[1] is not None], missing_by_key, 0, bounded=True)
    return buckets, _buckets(whole_rows, in_all, 0, bounded=True)


def _clustered(sample: str, window: Window, groups: tuple[str, ...], family: str) -> str:
    """Return CTEs of verdicts and of their sums by user and line (evaluator, bucket, group, version, judge).

    Most users ask once in a bucket, so that these sums have few columns.
    """
    line = "evaluator, version, judge"
    group_sql = "".join(f", {group}" for group in groups)
    return f"""
        WITH verdicts AS MATERIALIZED (
            SELECT {line}, {window.bucket("request_time")} AS t{group_sql}, cluster, pi, source, status, request_time,
                   identified, CASE WHEN status = 'ok' THEN passing END AS passing,
                   CASE WHEN status = 'ok' THEN label END AS label,
                   CASE WHEN status = 'ok' THEN {MEASURES[family]} END AS y,
                   hash({line}) AS whole, hash({line}, t{group_sql}) AS line
            FROM ({sample}) WHERE pi IS NOT NULL),
        parts AS MATERIALIZED (
            SELECT {line}, t{group_sql}, whole, line, floor(log2(1 / pi)) AS class,
                   {", ".join(f"{sql} AS {name}" for name, (_, sql) in _PLAIN.items())}
            FROM verdicts GROUP BY ALL),
        users AS MATERIALIZED (
            SELECT line, whole, cluster, sum(1 / pi) AS w, sum(y * (1 / pi)) AS wy, sum((1 / pi) * (1 / pi)) AS ww
            FROM verdicts WHERE y IS NOT NULL GROUP BY line, whole, cluster)"""


def _summed(key: str, place_columns: tuple[str, ...]) -> str:
    """Return the query for the sums of each line; `whole` lines join the users of all buckets."""
    users, head = "users", f"evaluator, {', '.join(place_columns)}, version, judge, {key}"
    if key == "whole":
        users = "(SELECT whole, cluster, sum(w) AS w, sum(wy) AS wy, sum(ww) AS ww FROM users GROUP BY whole, cluster)"
    parts = f"SELECT {head}, class, {_JOINED} FROM parts GROUP BY ALL"
    return f"""
        SELECT p.* EXCLUDE ({key}, {", ".join([*_PLAIN][_SUMMED:])}, class_wwy, class_wwyy, class_n), {_MOMENTS}
        FROM (SELECT * EXCLUDE (class, {", ".join(_PLAIN)}), {_JOINED}, {BY_CLASS} FROM ({parts}) GROUP BY ALL) p
        LEFT JOIN (SELECT {key}, {_BY_USER} FROM {users} GROUP BY {key}) u ON u.{key} = p.{key}"""


def _buckets(
    rows: Iterable[Sequence[Any]], missing_by_key: Mapping[tuple[Any, ...], Missing], groups: int, *, bounded: bool
) -> list[Bucket]:
    n_keys = 4 + groups
    buckets = [_bucket(row[:n_keys], row[n_keys:], missing_by_key, bounded) for row in rows]
    buckets += _unseen(buckets, missing_by_key, bounded)
    return sorted(
        buckets,
        key=lambda bucket: (bucket.evaluator, bucket.start, str(bucket.group), bucket.last, str(bucket.version)),
    )


def _bucket(
    key: Sequence[Any], row: Sequence[Any], missing_by_key: Mapping[tuple[Any, ...], Missing], bounded: bool
) -> Bucket:
    evaluator, start, *group, version, judge = key
    sums = dict(zip(_PLAIN, row[:_SUMMED], strict=False))
    missing, failed = missing_by_key.get(tuple(key[:-2]), Missing()), sums["invalid"] + sums["error"]
    return Bucket(
        evaluator=evaluator,
        group=tuple(group),
        version=version,
        judge=judge,
        start=start,
        moments=Moments.of(row[_SUMMED:]),
        counts={status: sums[status] for status in FAILURES},
        online={status: n for status in _STATUSES if (n := sums[f"online_{status}"])},
        missing=replace(missing, failed=failed, weight=missing.weight + sums["lost"]),
        bounded=bounded,
        n_passed=(sums["n_passed"], sums["n_called"]) if sums["n_called"] else None,
        **{name: sums[name] for name in ("first", "last", "passed", "called", "unclear", "n_unclear", "identified")},
    )


def _unseen(
    buckets: Sequence[Bucket], missing_by_key: Mapping[tuple[Any, ...], Missing], bounded: bool
) -> list[Bucket]:
    """Return buckets without any verdict, with the version in force: the last one before, else the first."""
    keys = {(bucket.evaluator, bucket.start, *bucket.group) for bucket in buckets}
    unseen = []
    for key, missing in missing_by_key.items():
        evaluator, start, *group = key
        candidates = sorted(
            (bucket for bucket in buckets if bucket.evaluator == evaluator), key=lambda bucket: bucket.last
        )
        candidates = [bucket for bucket in candidates if bucket.group == tuple(group)] or candidates
        latest = next(
            (bucket for bucket in reversed(candidates) if bucket.start <= start), candidates[0] if candidates else None
        )
        if key not in keys and missing.n:
            unseen.append(
                Bucket(
                    evaluator=evaluator, group=tuple(group), version=latest.version if latest else None,
                    judge=latest.judge if latest else None, start=start, counts=dict.fromkeys(FAILURES, 0), online={},
                    missing=missing, last=start, bounded=bounded,
                )
            )  # fmt: skip
    return unseen


def missing_verdicts(
    store: Store, evaluator: str | None, window: Window, filters: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], Missing]:
    """Return the selected units without a verdict, by evaluator, bucket and group."""
    rows = store.read(
        # There are few, mostly none: made first, they spare the facts of all requests.
        f"WITH lost AS MATERIALIZED ({without_verdict(evaluator)})"
        f" SELECT d.evaluator, {window.bucket('d.request_time')} AS t{''.join(f', t.{group}' for group in groups)},"
        " count(*) FILTER (NOT d.sampled), count(*) FILTER (d.sampled), sum(1 / least(d.pi, t.upstream_pi))"
        f" FROM lost d JOIN ({facts_of(filters, (*groups, 'upstream_pi'))}) t ON t.trace_id = d.trace_id"
        # Pacing leaves out units with u above pi: they were never selected. A cap drops selected units.
        " WHERE d.sampled OR d.u * coalesce(t.upstream_pi, 1) < d.pi GROUP BY ALL",
        {**({} if evaluator is None else {"evaluator": evaluator}), **window.parameters, **filters.parameters},
    ).rows
    return {tuple(row[:-3]): Missing(dropped=row[-3], pending=row[-2], weight=row[-1]) for row in rows}
