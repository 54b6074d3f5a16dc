"""Reads the requests of a chart with their attributes; the worst, median and best of a bucket."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.traffic import traffic_of
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, ENOUGH_USERS, KEPT
from ragpulse_collector.store.queries.labels import labels_within
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, trace_rows
from ragpulse_collector.store.queries.scores import MEASURES, measured, sample_of
from ragpulse_collector.store.queries.traces import DIMENSIONS, of_range
from ragpulse_collector.store.views import UNCLEAR

_COUNT = 5
VERDICT = "verdict"
"""An attribute of scored answers: `unclear` where the evaluator could not decide."""


def column_of(metric: str) -> str:
    """Return the column of `traces` of a traffic metric; latency for metrics that only count."""
    known = traffic_of("error_rate" if metric == "errors" else metric)
    column = (known.each or (known.quantile or (known.of,))[0]) if known else None
    return column or "latency_ms"


class ExemplarIds(NamedTuple):
    """The ids of the worst, median and best traces."""

    worst: Sequence[str]
    median: Sequence[str]
    best: Sequence[str]


@dataclass(frozen=True, slots=True)
class ExemplarTraces:
    """The worst, median and best traces behind a point."""

    worst: Sequence[ScoredTrace]
    median: Sequence[ScoredTrace]
    best: Sequence[ScoredTrace]


def exemplars(store: Store, query: Query, name: str) -> ExemplarTraces:
    """Answer `GET exemplars`: five worst, median and best traces of one bucket of a metric."""
    return ExemplarTraces(*(trace_rows(store, ids) for ids in exemplar_ids(store, query, name)))


def exemplar_ids(store: Store, query: Query, name: str) -> ExemplarIds:
    """Return five ids each; raises Invalid for a metric that single traces do not have."""
    family, _, evaluator = name.partition(":")
    scored = bool(evaluator) and traffic_of(name) is None
    if scored and family not in MEASURES:
        raise Invalid(f"no metric {name!r}")
    source = _scores_of(query, measured(family, evaluator), store) if scored else _values_of(query, name)
    ((low, high, middle),) = store.read(
        f"SELECT arg_min(id, y, {_COUNT}), arg_max(id, y, {_COUNT}), median(y) FROM ({source.sql})", source.parameters
    ).rows
    near = f"SELECT id FROM ({source.sql}) ORDER BY abs(y - $middle), id LIMIT {_COUNT}"
    rows = [] if middle is None else store.read(near, {**source.parameters, "middle": middle}).rows
    median = [trace_id for (trace_id,) in rows]
    # A high score is good, a high latency is not.
    worst, best = (low, high) if scored else (high, low)
    return ExemplarIds(worst or (), median, best or ())


class _Source(NamedTuple):
    """A query for trace ids and values, with its parameters."""

    sql: str
    parameters: dict[str, Any]


def _requests(query: Query, metric: str) -> str:
    """Return the requests of the query, weighted by the labels that it reads."""
    known = traffic_of(metric)
    return of_range(query.filters, known.labels if known else ())


def _values_of(query: Query, metric: str) -> _Source:
    column = column_of(metric)
    sql = f"SELECT trace_id AS id, {column} AS y {_requests(query, metric)} AND {column} IS NOT NULL"
    return _Source(sql, query.parameters)


def _scores_of(query: Query, evaluator: str, store: Store) -> _Source:
    sample = sample_of(store, evaluator, query.window.parameters, query.filters)
    sql = (
        "SELECT replace(trace_id::VARCHAR, '-', '') AS id, normalized AS y"
        f" FROM ({sample.sql}) WHERE status = 'ok' AND normalized IS NOT NULL"
    )
    return _Source(sql, sample.parameters)


MOST_ROWS = 20_000
_ATTRIBUTES = tuple(name for name in DIMENSIONS if name not in ("session_id", "user_id", "retriever"))
_COLUMNS_READ = ", ".join((*_ATTRIBUTES, "tags", "metadata"))
_COLUMNS_SHOWN = f"{_COLUMNS_READ}::JSON::VARCHAR"  # DuckDB makes a dict of a map in twice the time
_SCRIPTS = ("Hiragana", "Katakana", "Hangul", "Han", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Thai", "Greek")
_SCRIPT = (
    "CASE WHEN strlen(query) = length(query) THEN 'Latin' "
    + " ".join(f"WHEN regexp_matches(query, '\\p{{{name}}}') THEN '{name}'" for name in _SCRIPTS)
    + " WHEN query IS NOT NULL THEN 'Latin' END"
)
"""The script of a question; its language would be a guess."""
_DERIVED = ("scored by", VERDICT, "query script")
_WORST = 0.1
"""Without pass or fail, this share is bad: the highest values of traffic, the lowest scores."""
Key = tuple[str, str]


class ChartedRequest(NamedTuple):
    """One request: time, value, weight, and whether it is bad; None: the evaluator could not decide."""

    trace_id: str
    time: datetime
    value: float
    weight: float
    requests: float
    """How many requests it stands for, where an upstream sampler dropped others."""
    bad: bool | None
    cluster: int
    """A hash of user, session or trace."""


Members = dict[Key, set[int]]
"""The requests, by their place, that have an attribute value."""


def requests_of(store: Store, metric: str, query: Query) -> tuple[Sequence[ChartedRequest], Members]:
    """Return the requests of a range, at most a random sample of 20,000, and which of them have each attribute."""
    family, _, evaluator = metric.partition(":")
    scored = bool(evaluator) and family in MEASURES
    if scored:
        sample = sample_of(
            store,
            measured(family, evaluator),
            query.window.parameters,
            query.filters,
            columns=(*_ATTRIBUTES, "tags", "metadata", "query", "upstream_pi"),
        )
        source, parameters = (
            f"SELECT trace_id, request_time AS start_time, {MEASURES[family]} AS y, pi, passing, cluster,"
            f" {_COLUMNS_READ}, query, upstream_pi, nullif(concat_ws(' by ', version, judge), '') AS scored_by,"
            f" CASE WHEN {UNCLEAR} THEN 'unclear' END AS verdict"
            f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0",
            sample.parameters,
        )
    else:
        source, parameters = (
            f"SELECT trace_id::UUID AS trace_id, start_time, {column_of(metric)} AS y,"
            f" {KEPT} AS pi, NULL AS passing, {CLUSTER} AS cluster, {_COLUMNS_READ}, query, upstream_pi,"
            f" NULL AS scored_by, NULL AS verdict {_requests(query, metric)}",
            query.parameters,
        )
    rows = store.read(
        f"SELECT replace(trace_id::VARCHAR, '-', ''), start_time, y, pi, {KEPT}, passing, {_COLUMNS_SHOWN}, scored_by,"
        f" verdict, {_SCRIPT}, length(query), cluster"
        f" FROM ({source})"
        f" WHERE isfinite(y::DOUBLE) USING SAMPLE reservoir({MOST_ROWS} ROWS) REPEATABLE (1)",
        parameters,
    ).rows
    bad = _bad([(float(row[2]), 1.0 / row[4], row[5]) for row in rows if row[_UNCLEAR] is None], scored=scored)
    charted = [
        ChartedRequest(
            row[0], row[1], float(row[2]), 1.0 / row[3], 1.0 / row[4],
            bad(float(row[2]), row[5]) if row[_UNCLEAR] is None else None, row[-1],
        )
        for row in rows
    ]  # fmt: skip
    members = _members([*zip(*rows, strict=True)][6:-1]) if rows else {}
    for name, label, places in labels_within(store, [row.trace_id for row in charted], query.window.parameters):
        if name != evaluator:
            members[f"label:{name}", label] = set(places)
    return charted, members


_UNCLEAR = -4
"""The place of the verdict in a row."""


def _bad(
    rows: Sequence[tuple[float, float, bool | None]], *, scored: bool
) -> Callable[[float, bool | None], bool | None]:
    """Return the test for bad: an answer that fails, an error, the highest tenth, or the lowest tenth of scores.

    Where the evaluator passes or fails others, an answer with neither is neither.
    """
    if any(passing is not None for *_, passing in rows):
        return lambda _, passing: None if passing is None else not passing
    weighted = sorted(((value, requests) for value, requests, _ in rows), reverse=not scored)
    ordered = [value for value, _ in weighted]
    if not ordered or ordered[0] == ordered[-1]:
        all_bad = not scored and ordered[:1] == [1.0]
        return lambda *_: all_bad
    upto = list(accumulate(requests for _, requests in weighted))
    limit = ordered[bisect_right(upto, upto[-1] * _WORST)]
    if limit == ordered[-1]:  # most are equal: the others
        return lambda value, _: value < limit if scored else value > limit
    return lambda value, _: value <= limit if scored else value >= limit


def told_apart(rows: Sequence[ChartedRequest], *parts: Iterable[int]) -> Sequence[ChartedRequest]:
    """Return the rows, each its own cluster where a few users have nearly all of a part: one alone has no error."""
    for part in parts:
        by_user = defaultdict[int, float](float)
        for index in part:
            by_user[rows[index].cluster] += rows[index].weight
        weights = by_user.values()
        if math.fsum(weights) ** 2 < ENOUGH_USERS * math.fsum(weight * weight for weight in weights):
            return [row._replace(cluster=index) for index, row in enumerate(rows)]
    return rows


def _members(columns: Sequence[Sequence[Any]]) -> Members:
    """Return the rows of each attribute value, column by column; lengths in powers of two."""
    *named, tags, metadata, scored_by, verdict, script, lengths = columns
    members: Members = defaultdict(set)
    for name, column in zip((*_ATTRIBUTES, *_DERIVED), (*named, scored_by, verdict, script), strict=True):
        for value, places in _places(column).items():
            members[name, str(value).lower() if isinstance(value, bool) else str(value)] = places
    for index, (own, pairs) in enumerate(zip(tags, metadata, strict=True)):
        for tag in own or ():
            members["tag", tag].add(index)
        for key, value in (orjson.loads(pairs) if pairs else {}).items():
            if value is not None:
                members[f"metadata.{key}", value].add(index)
    for length, places in _places(lengths).items():
        high = 1 << length.bit_length()
        if length:
            members["query length", f"{high // 2}..{high - 1}"] |= places
    return members


def _places(column: Sequence[Any]) -> dict[Any, set[int]]:
    """Return where each value of a column is, but for null."""
    places: dict[Any, set[int]] = defaultdict(set)
    for index, value in enumerate(column):
        if value is not None:
            places[value].add(index)
    return places
