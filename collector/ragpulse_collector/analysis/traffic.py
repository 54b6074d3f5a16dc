"""The traffic: its metrics in one pass, weighted where an upstream sampler dropped requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.answers import COUNTING, GroupValue, Marker, Place, flag
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.refusals import Invalid, nearest
from ragpulse_collector.store import Store
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.estimates import (
    CLUSTER,
    CLUSTER_SUMS,
    ESTIMATED,
    IDENTIFIED,
    KEPT,
    MOMENTS,
    WEIGHT,
    by_class,
    quantiles,
)
from ragpulse_collector.store.protocol import Parameters
from ragpulse_collector.store.queries.failures import FAILURE, KINDS
from ragpulse_collector.store.queries.labels import SHARES_OF, STORED, label_column
from ragpulse_collector.store.queries.scores import FEEDBACK, MEASURES, feedback_name, measured
from ragpulse_collector.store.queries.traces import Filter, of_range, requests_since, version_starts, versions_in
from ragpulse_collector.store.topics import OTHER_TOPIC, stored_topics
from ragpulse_evaluators.statistics import Moments


@dataclass(frozen=True, slots=True)
class Traffic:
    """A metric of the traffic: SQL for its value (None for a mean), its unit, and whether an empty bucket is 0."""

    sql: str | None
    unit: str
    count: bool = False
    of: str | None = None
    """The column that it reads; every total has a share of unknown values."""
    each: str | None = None
    """A mean: its SQL for a request, null if the request does not count."""
    labels: tuple[str, ...] = ()
    """The labels that it reads, as columns."""
    quantile: tuple[str, float] | None = None
    """A percentile: its column and share; the SQL is right where no upstream sampler dropped requests."""


def _quantile_of(column: str, share: float) -> Traffic:
    shares = _QUANTILES[column]
    # DuckDB computes equal aggregates once.
    sql = f"quantile_cont({column}, {list(shares)})[{shares.index(share) + 1}]"
    return Traffic(sql, "ms", quantile=(column, share))


def _share_of(answer: str) -> Traffic:
    """Return the share of the answers that are so, of those that are known to be answered or not."""
    each = f"CASE WHEN answer IS NOT NULL THEN ({answer})::INTEGER END"
    return Traffic(None, "share", of="answer", each=each)


def _share_of_label(name: str, label: str) -> Traffic:
    """Return the share of the requests with a label, of those that have one; a request without a failure has none."""
    if name == FAILURE:
        column = label_column(FAILURE)
        each = f"({column} IS NOT DISTINCT FROM {literal(label)})::INTEGER"
        return Traffic(None, "share", each=each, labels=(column,))
    each = f"CASE WHEN {STORED[name]} IS NOT NULL THEN ({STORED[name]} = {literal(label)})::INTEGER END"
    return Traffic(None, "share", of=STORED[name], each=each)


def _counted(condition: str) -> str:
    """Return SQL for the number of requests that are so."""
    return f"sum(CASE WHEN {condition} THEN {WEIGHT} ELSE 0 END)"


_QUANTILES = {"latency_ms": (0.5, 0.95, 0.99), "ttft_ms": (0.5, 0.95)}
_REQUESTS = f"sum({WEIGHT})"
ACCEPTED = "CASE WHEN feedback IS NOT NULL THEN greatest(feedback, 0) END"
"""What a request adds to acceptance; a thumb down is 0, also if the client sent -1."""
NAMES: dict[str, Traffic] = {
    "requests": Traffic(_REQUESTS, "requests", count=True),
    "errors": Traffic(_counted("error"), "requests", count=True),
    "error_rate": Traffic(None, "share", each="coalesce(error, false)::INTEGER"),
    "latency_p50": _quantile_of("latency_ms", 0.5),
    "latency_p95": _quantile_of("latency_ms", 0.95),
    "latency_p99": _quantile_of("latency_ms", 0.99),
    "ttft_p50": _quantile_of("ttft_ms", 0.5),
    "ttft_p95": _quantile_of("ttft_ms", 0.95),
    "input_tokens": Traffic(f"sum(input_tokens * {WEIGHT})", "tokens", of="input_tokens"),
    "output_tokens": Traffic(f"sum(output_tokens * {WEIGHT})", "tokens", of="output_tokens"),
    "cost_usd": Traffic(f"sum(cost_usd * {WEIGHT})", "USD", of="cost_usd"),
    "throughput": Traffic(_REQUESTS, "requests/s", count=True),
    "empty_rate": _share_of("answer = 'empty'"),
    "refused_rate": _share_of("answer = 'refused'"),
    "unanswered_rate": _share_of("answer <> 'answered'"),
    "acceptance": Traffic(None, "share", of="feedback", each=ACCEPTED),
    "other_share": _share_of_label("topic", OTHER_TOPIC),
    "question_drift": Traffic(None, "ratio", of="question_distance", each="question_distance"),
}
"""The metrics beside those of an evaluator (`quality:`, `fail_rate:`, ..., see `MEASURES`)."""


def traffic_of(metric: str) -> Traffic | None:
    """Return a metric of the traffic, one of NAMES, `topic_share:NAME` or `failure_share:KIND`; else None."""
    family, colon, name = metric.partition(":")
    return _share_of_label(SHARES_OF[family], name) if colon and family in SHARES_OF else NAMES.get(metric)


def known_traffic(metric: str) -> Traffic:
    """Return a metric that is one of the traffic."""
    found = traffic_of(metric)
    assert found is not None, metric
    return found


_FAMILIES = (*MEASURES, "coverage", *SHARES_OF)


def check_metric(
    metric: str, names: Collection[str], stored_names: Callable[[], Collection[str]] | None = None
) -> None:
    """Raise Invalid with the nearest name unless it is a metric; see `check_evaluator`."""
    family, colon, evaluator = metric.partition(":")
    if not colon and metric in NAMES:
        return
    if not evaluator or family not in _FAMILIES:
        possible = (*NAMES, *(f"{name}:{evaluator or '<evaluator>'}" for name in _FAMILIES))
        hint = nearest(metric, possible) or f"; possible: {', '.join(possible)}"
        raise Invalid(f"no metric {metric!r}{hint}")
    label = SHARES_OF.get(family)
    if label == FAILURE:
        if evaluator not in KINDS:
            raise Invalid(f"no kind of failure {evaluator!r}{nearest(evaluator, KINDS) or ': ' + ', '.join(KINDS)}")
    elif label is None:
        check_evaluator(measured(family, evaluator), names, stored_names)
    elif stored_names and metric not in (known := stored_names()):
        raise Invalid(f"no {label} {evaluator!r}{nearest(metric, known) or f': see `ragpulse {label}s`'}")


def stored_metrics(store: Store) -> set[str]:
    """Return the metrics that the store has names for: those of topics."""
    return {f"topic_share:{topic.name}" for topic in stored_topics(store.read)}


def check_evaluator(
    name: str, names: Collection[str], stored_names: Callable[[], Collection[str]] | None = None
) -> None:
    """Raise Invalid with the nearest name unless an evaluator is in `names` or in `stored_names()`.

    Without `stored_names` only a slip of a known name is refused: other names may get scores later.
    """
    bare = name if feedback_name(name) else name.partition("@")[0]
    if bare in names or bare == FEEDBACK:
        return
    stored = () if stored_names is None else stored_names()
    hint = nearest(bare, {*names, *stored}, cutoff=0.6 if stored_names else 0.8)
    if bare not in stored and (hint or stored_names):
        raise Invalid(f"no evaluator {bare!r}{hint or '; there are: ' + ', '.join(sorted(stored or names))}")


_TOTALS = ("count(*)", ESTIMATED, _counted("answer = 'empty'"), _counted("answer = 'refused'"))
"""The fields of `TrafficBucket` from `n` on."""


@dataclass(frozen=True, slots=True)
class TrafficBucket:
    """The requests of one group in one bucket; where an upstream sampler dropped some, the figures are scaled up."""

    start: datetime
    group: tuple[GroupValue, ...]
    values: Mapping[str, float | None]
    """The metrics that are no means, by the keys of NAMES."""
    known: Mapping[str, float]
    """The requests with a value of a column."""
    n: int
    """The stored requests."""
    estimated: bool
    """Whether an upstream sampler dropped requests."""
    empty: float
    refused: float

    def unknown_share(self, name: str) -> float:
        """Return the share of requests without a value of the metric."""
        column = known_traffic(name).of
        return 0.0 if column is None else 1.0 - self.known[column] / self.total("requests")

    def total(self, name: str) -> float:
        """Return a metric, 0 where it is unknown."""
        return self.values[name] or 0.0


def traffic(store: Store, window: Window, filters: Filter, groups: tuple[str, ...]) -> list[TrafficBucket]:
    """Return every metric that is no mean, per group and bucket."""
    values = {name: metric.sql for name, metric in NAMES.items() if metric.sql is not None}
    lacking = tuple(dict.fromkeys(one.of for one in NAMES.values() if one.of))
    known = (_counted(f"{name} IS NOT NULL") for name in lacking)
    parameters = {**window.parameters, **filters.parameters}
    columns = (f"{window.bucket('start_time')} AS t", *groups, *values.values(), *known, *_TOTALS)
    source = of_range(filters, groups)
    rows = store.read(f"SELECT {', '.join(columns)} {source} GROUP BY ALL HAVING count(*) > 0", parameters).rows
    first = 1 + len(groups)
    middle, totals = first + len(values), first + len(values) + len(lacking)
    buckets = [
        TrafficBucket(
            row[0],
            tuple(row[1:first]),
            dict(zip(values, row[first:middle], strict=True)),
            dict(zip(lacking, row[middle:totals], strict=True)),
            *row[totals:],
        )
        for row in rows
    ]
    if not any(bucket.estimated for bucket in buckets):
        return buckets
    timed = f"SELECT *, {window.bucket('start_time')} AS t {source}"
    found = _all_quantiles(store, timed, ("t", *groups), parameters)
    return [replace(bucket, values={**bucket.values, **found[bucket.start, *bucket.group]}) for bucket in buckets]


def cost_unknown_reason(store: Store, window: Window, filters: Filter) -> str | None:
    """Return why most of the requests without a cost have none; None where every cost is known."""
    sql = f"SELECT mode(cost_unknown_reason) {of_range(filters)} AND cost_usd IS NULL"
    rows = store.read(sql, {**window.parameters, **filters.parameters}).rows
    reason: str | None = rows[0][0]
    return reason


def _all_quantiles(
    store: Store, source: str, keys: Sequence[str], parameters: Parameters
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the percentiles of NAMES by the values of the keys, weighted."""
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for name, metric in NAMES.items():
        if metric.quantile is not None:
            for place, value in weighted_quantile(store, source, *metric.quantile, parameters, keys=keys).items():
                found[place][name] = value
    return found


def weighted_quantile(
    store: Store, source: str, column: str, share: float, parameters: Parameters, *, keys: Sequence[str] = ()
) -> dict[tuple[GroupValue, ...], float]:
    """Return a quantile of the requests that the rows of `source` stand for, by the values of the keys."""
    rows = store.read(quantiles(source, column, (share,), keys=keys), parameters).rows
    return {tuple(key): value for *key, (value,) in rows}


def by_user(
    store: Store, source: str, keys: Sequence[str], parameters: Parameters, *, cluster: str = CLUSTER
) -> dict[tuple[GroupValue, ...], Moments]:
    """Add up the column `y` of the rows of `source`, weighted by 1/`pi`, for each of the `keys` with a value.

    The rows of one user are dependent.
    """
    columns = ", ".join((*keys, _user(cluster), CLUSTER_SUMS.format(y="y")))
    users = f"SELECT {columns} FROM ({source}) GROUP BY ALL"
    found = _sums(store, f"SELECT {', '.join((*keys, _MOMENTS))} FROM ({users}) GROUP BY ALL", parameters, len(keys))
    if any(map(is_estimated, found.values())):
        # What the sampler kept less often often varies least: then the interval needs the classes of pi.
        for row in store.read(by_class(f"({source})", ", ".join(keys)), parameters).rows:
            key, (wwy, wwyy, n) = tuple(row[: len(keys)]), row[len(keys) :]
            found[key] = replace(found[key], class_wwy=wwy, class_wwyy=wwyy, class_n=n)
    return found


def is_estimated(sums: Moments) -> bool:
    """Return whether an upstream sampler dropped requests: then figures are scaled up."""
    return sums.heaviest > 1.0


def _user(cluster: str) -> str:
    return f"{cluster} AS cluster, max({IDENTIFIED}) AS identified"


_MOMENTS = f"{MOMENTS}, max(identified)"


def _sums(store: Store, sql: str, parameters: Parameters, keys: int) -> dict[tuple[Any, ...], Moments]:
    rows = store.read(sql, parameters).rows
    return {tuple(row[:keys]): sums for row in rows if (sums := Moments.of(row[keys:]))}


def adding(
    value: str, window: Window, filters: Filter, columns: tuple[str, ...], *, condition: str = "y IS NOT NULL"
) -> str:
    """Return the query for requests with their bucket `t`, their probability `pi` and what they add, `y`."""
    return (
        f"SELECT *, {window.bucket('start_time')} AS t, {KEPT} AS pi, {value} AS y"
        f" {of_range(filters, columns)} AND {condition}"
    )


def means(store: Store, metric: str, window: Window, filters: Filter, groups: tuple[str, ...]) -> dict[Place, Moments]:
    """Return the mean of a metric with `each` by bucket and group."""
    known = known_traffic(metric)
    source = adding(known.each or "1", window, filters, (*groups, *known.labels))
    return _by_place(by_user(store, source, ("t", *groups), {**window.parameters, **filters.parameters}))


def _by_place(found: Mapping[tuple[Any, ...], Moments]) -> dict[Place, Moments]:
    return {Place(start, tuple(group)): sums for (start, *group), sums in found.items()}


_COUNTED = """
    n AS c_n, n::DOUBLE AS c_w, k::DOUBLE AS c_wy, c_wy AS c_wyy, c_w AS c_ww, rarest AS c_rarest,
    (k = n)::INTEGER::DOUBLE AS c_low, (k > 0)::INTEGER::DOUBLE AS c_high, 0 AS c_between"""
"""CLUSTER_SUMS of the share of a user's requests, each of weight 1 unless the `rarest` says that some are not."""


def failing(store: Store, window: Window, filters: Filter, groups: tuple[str, ...]) -> dict[Place, Moments]:
    """Return the share of failed requests by bucket and group; bucket None is the whole window.

    There a user of many buckets counts once.
    """
    found = _failing(store, window, filters, groups)
    if not any(map(is_estimated, found.values())):
        return found
    whole = means(store, "error_rate", window.whole, filters, groups)
    return means(store, "error_rate", window, filters, groups) | {
        Place(None, place.group): mean for place, mean in whole.items()
    }


def _failing(store: Store, window: Window, filters: Filter, groups: tuple[str, ...]) -> dict[Place, Moments]:
    """Return what `failing` does where no upstream sampler dropped requests: counting needs a third of the time."""
    group_sql = "".join(f", {group}" for group in groups)
    users = (
        f"SELECT {window.bucket('start_time')} AS t{group_sql}, {_user(CLUSTER)}, count(*) AS n,"
        f" count(*) FILTER (error) AS k, min({KEPT}) AS rarest {of_range(filters, groups)} GROUP BY ALL"
    )
    whole_users = (
        f"SELECT NULL AS t{group_sql}, max(identified) AS identified, min(rarest) AS rarest,"
        f" sum(n) AS n, sum(k) AS k FROM users GROUP BY cluster{group_sql}"
    )
    sums = f"SELECT t{group_sql}, {_MOMENTS} FROM (SELECT *, {_COUNTED} FROM ({{}})) GROUP BY ALL"
    sql = f"WITH users AS MATERIALIZED ({users}) {sums.format('FROM users')} UNION ALL {sums.format(whole_users)}"
    parameters = {**window.parameters, **filters.parameters}
    return _by_place(_sums(store, sql, parameters, 1 + len(groups)))


@dataclass(frozen=True, slots=True)
class Tail:
    """One bucket of requests: how many are slower than 90 % of the range's, and their cost without extremes."""

    start: datetime
    estimated: bool
    """Whether an upstream sampler dropped requests: the figures are scaled up."""
    weight: float
    """How many requests a stored one stands for, by its squares: the others tell nothing (Kish)."""
    n: float
    """Requests with a known latency."""
    slow: float
    paid: float
    """Requests with a known cost."""
    cost: float
    capped: float
    """The cost, each request capped at the range's 95th percentile."""
    squares: float
    """The sum of the squares of the capped costs."""


def tails(store: Store, window: Window, filters: Filter) -> list[Tail]:
    """Return the buckets in order of time."""
    plain = "SELECT quantile_cont(latency_ms, 0.9) AS usual, quantile_cont(cost_usd, 0.95) AS cap FROM known"
    found = _tails(store, window, filters, plain)
    return _tails(store, window, filters, _WEIGHTED_LIMITS) if any(tail.estimated for tail in found) else found


_WEIGHTED_LIMITS = (
    f"SELECT (SELECT x[1] FROM ({quantiles('FROM known', 'latency_ms', (0.9,))}) q(x)) AS usual,"
    f" (SELECT x[1] FROM ({quantiles('FROM known', 'cost_usd', (0.95,))}) q(x)) AS cap"
)


def _tails(store: Store, window: Window, filters: Filter, limits: str) -> list[Tail]:
    capped = "least(cost_usd, cap)"
    sums = (f"coalesce(sum({amount} * {WEIGHT}), 0)" for amount in ("cost_usd", capped, f"{capped} ** 2"))
    counts = (_counted(one) for one in ("latency_ms IS NOT NULL", "latency_ms > usual", "cost_usd IS NOT NULL"))
    rows = store.read(
        f"WITH known AS MATERIALIZED (SELECT {window.bucket('start_time')} AS t, latency_ms, cost_usd, upstream_pi"
        f" {of_range(filters)}) SELECT t, {ESTIMATED}, sum({WEIGHT} * {WEIGHT}) / {_REQUESTS},"
        f" {', '.join((*counts, *sums))} FROM known, ({limits}) GROUP BY t ORDER BY t",
        {**window.parameters, **filters.parameters},
    ).rows
    return [Tail(*row) for row in rows]


def p95(store: Store, window: Window, filters: Filter) -> float:
    """Return the 95th percentile of latency over the whole window, 0 without requests."""
    parameters, inside = {**window.parameters, **filters.parameters}, of_range(filters)
    ((value, estimated),) = store.read(f"SELECT quantile_cont(latency_ms, 0.95), {ESTIMATED} {inside}", parameters).rows
    if estimated and value is not None:
        (value,) = weighted_quantile(store, f"SELECT * {inside}", "latency_ms", 0.95, parameters).values()
    return float(value or 0.0)


def requests_by_service(store: Store, query: Query) -> dict[str, float]:
    """Return how many requests each service has; empty text for those without one."""
    sql = f"SELECT coalesce(service, ''), {_REQUESTS} {of_range(query.filters)} GROUP BY 1"
    return dict(store.read(sql, query.parameters).rows)


def counting_markers(store: Store, window: Window) -> list[Marker]:
    """Return the upgrade inside the window after which only requests are counted, if there was one."""
    since = requests_since(store)
    if since is None or not window.first <= since < window.last:
        return []
    return [Marker(since, COUNTING, "counting requests alone", label=COUNTING)]


_MOST_MARKERS = 50


_SAME = "s.kind = p.kind AND s.version = p.version AND s.what IS NOT DISTINCT FROM p.what"


def start_markers(store: Store, query: Query) -> list[Marker]:
    """Return the start of each version of a prompt or an index that began in the window and serves the query.

    A filter does not move the start: the first failed request of a version is not its beginning.
    """
    only = f" SEMI JOIN ({versions_in(query.filters)}) p ON {_SAME}" if query.filters != query.bound else ""
    starts = f"FROM ({version_starts(query.bound)}) s{only} ORDER BY t LIMIT {_MOST_MARKERS}"
    return [
        Marker(
            start,
            kind,
            f"{kind.removesuffix('_version')} {name or ''} {version}".replace("  ", " "),
            name,
            sorted(services),
            flag(version),
        )
        for kind, name, version, start, services in store.read(starts, query.parameters).rows
    ]
