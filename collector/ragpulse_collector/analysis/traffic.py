"""The traffic: its metrics in one pass, and the coverage of each evaluator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.answers import GroupValue, Marker, Place
from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, CLUSTER_SUMS, IDENTIFIED, MOMENTS
from ragpulse_collector.store.protocol import Parameters
from ragpulse_collector.store.queries.decisions import BARE_NAME, DECIDED_UNITS
from ragpulse_collector.store.queries.jobs import unfinished
from ragpulse_collector.store.queries.scores import FEEDBACK, MEASURES, feedback_name, measured
from ragpulse_collector.store.queries.traces import Filter, facts_of, prompt_starts, prompts_in, with_columns
from ragpulse_evaluators.errors import nearest
from ragpulse_evaluators.statistics import Moments


@dataclass(frozen=True, slots=True)
class Traffic:
    """A metric of the traffic: SQL for its value, its unit, and whether an empty bucket is 0."""

    sql: str
    unit: str
    count: bool = False
    of: str | None = None
    """The column that it reads; every total has a share of unknown values."""
    each: str | None = None
    """A mean: its SQL for a request, null if the request does not count."""


def _share_of(answer: str) -> Traffic:
    """Return the share of the answers that are so, of those that are known to be answered or not."""
    each = f"CASE WHEN answer IS NOT NULL THEN ({answer})::INTEGER END"
    return Traffic(f"avg({each})", "share", of="answer", each=each)


_SCALED = "sum(1 / coalesce(upstream_pi, 1))"
# DuckDB computes equal aggregates once.
_LATENCY = "quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
_TTFT = "quantile_cont(ttft_ms, [0.5, 0.95])"
ACCEPTED = "CASE WHEN feedback IS NOT NULL THEN greatest(feedback, 0) END"
"""What a request adds to acceptance; a thumb down is 0, also if the client sent -1."""
NAMES: dict[str, Traffic] = {
    "requests": Traffic(_SCALED, "requests", count=True),
    "errors": Traffic("sum(CASE WHEN error THEN 1 / coalesce(upstream_pi, 1) ELSE 0 END)", "requests", count=True),
    "error_rate": Traffic("count(*) FILTER (error)", "share"),  # the number of failures; `failing` has the share
    "latency_p50": Traffic(f"{_LATENCY}[1]", "ms"),
    "latency_p95": Traffic(f"{_LATENCY}[2]", "ms"),
    "latency_p99": Traffic(f"{_LATENCY}[3]", "ms"),
    "ttft_p50": Traffic(f"{_TTFT}[1]", "ms"),
    "ttft_p95": Traffic(f"{_TTFT}[2]", "ms"),
    "input_tokens": Traffic("sum(input_tokens / coalesce(upstream_pi, 1))", "tokens", of="input_tokens"),
    "output_tokens": Traffic("sum(output_tokens / coalesce(upstream_pi, 1))", "tokens", of="output_tokens"),
    "cost_usd": Traffic("sum(cost_usd / coalesce(upstream_pi, 1))", "USD", of="cost_usd"),
    "throughput": Traffic(_SCALED, "requests/s", count=True),
    "empty_rate": _share_of("answer = 'empty'"),
    "refused_rate": _share_of("answer = 'refused'"),
    "unanswered_rate": _share_of("answer <> 'answered'"),
    "acceptance": Traffic(f"avg({ACCEPTED})", "share", of="feedback", each=ACCEPTED),
}
"""The metrics beside those of an evaluator (`quality:`, `fail_rate:`, ..., see `MEASURES`)."""

_FAMILIES = (*MEASURES, "coverage")


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
    check_evaluator(measured(family, evaluator), names, stored_names)


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


_TOTALS = (
    "count(*)",
    "bool_or(coalesce(upstream_pi, 1) < 1)",
    "sum(cost_usd)",
    "coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)), 0)",
    "count(*) FILTER (error)",
    "count(*) FILTER (answer = 'empty')",
    "count(*) FILTER (answer = 'refused')",
)
"""The fields of `TrafficBucket` from `n` on."""
_KNOWN = tuple(dict.fromkeys(one.of for one in NAMES.values() if one.of))
"""Columns that a request may lack."""


@dataclass(frozen=True, slots=True)
class TrafficBucket:
    """The requests of one group in one bucket."""

    start: datetime
    group: tuple[GroupValue, ...]
    values: Mapping[str, float | None]
    """The metrics, by the keys of NAMES."""
    known: Mapping[str, int]
    """The requests with a value of a column."""
    n: int
    estimated: bool
    """Whether an upstream sampler dropped requests: the metrics are scaled up, all other fields are not."""
    cost: float | None
    tokens: int
    failed: int
    empty: int
    refused: int

    def unknown_share(self, name: str) -> float:
        """Return the share of requests without a value of the metric."""
        column = NAMES[name].of
        return 0.0 if column is None else 1.0 - self.known[column] / self.n


def traffic(store: Store, window: Window, filters: Filter, groups: tuple[str, ...]) -> list[TrafficBucket]:
    """Return every metric per group and bucket."""
    columns = (*groups, *(metric.sql for metric in NAMES.values()), *(f"count({name})" for name in _KNOWN), *_TOTALS)
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {', '.join(columns)} FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filters.sql} GROUP BY ALL",
        {**window.parameters, **filters.parameters},
    ).rows
    first = 1 + len(groups)
    known, totals = first + len(NAMES), first + len(NAMES) + len(_KNOWN)
    return [
        TrafficBucket(
            row[0],
            tuple(row[1:first]),
            dict(zip(NAMES, row[first:known], strict=True)),
            dict(zip(_KNOWN, row[known:totals], strict=True)),
            *row[totals:],
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean over requests; those of one user are dependent."""

    moments: Moments | None
    """None without a value."""
    identified: bool
    """Whether any request names its user or session."""
    estimated: bool
    """Whether an upstream sampler dropped requests."""


def by_user(
    store: Store, source: str, keys: Sequence[str], parameters: Parameters, *, cluster: str = CLUSTER
) -> dict[tuple[GroupValue, ...], ClusteredMean]:
    """Add up the column `y` of the rows of `source`, weighted by 1/`pi`, for each of the `keys`."""
    columns = ", ".join((*keys, _user(cluster), CLUSTER_SUMS.format(y="y")))
    users = f"SELECT {columns} FROM ({source}) GROUP BY ALL"
    sql = f"SELECT {', '.join((*keys, _MOMENTS))} FROM ({users}) GROUP BY ALL"
    return dict(_clustered(store, sql, parameters, keys=len(keys)))


def _user(cluster: str) -> str:
    return (
        f"{cluster} AS cluster, bool_or({IDENTIFIED}) AS identified, coalesce(bool_or(upstream_pi < 1), false)"
        " AS estimated"
    )


_MOMENTS = f"bool_or(identified), bool_or(estimated), {MOMENTS}"


def _clustered(
    store: Store, sql: str, parameters: Parameters, *, keys: int
) -> Iterator[tuple[tuple[Any, ...], ClusteredMean]]:
    """Yield the first columns, the keys, with the mean of the others."""
    for row in store.read(sql, parameters).rows:
        identified, estimated, *sums = row[keys:]
        yield tuple(row[:keys]), ClusteredMean(Moments.of(sums), bool(identified), bool(estimated))


def means(
    store: Store, metric: str, window: Window, filters: Filter, groups: tuple[str, ...]
) -> dict[Place, ClusteredMean]:
    """Return the mean of a metric with `each` by bucket and group."""
    source = (
        f"SELECT *, {window.bucket('start_time')} AS t, coalesce(upstream_pi, 1) AS pi, {NAMES[metric].each} AS y"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filters.sql} AND y IS NOT NULL"
    )
    return _by_place(by_user(store, source, ("t", *groups), {**window.parameters, **filters.parameters}).items())


def _by_place(means: Iterable[tuple[tuple[Any, ...], ClusteredMean]]) -> dict[Place, ClusteredMean]:
    return {Place(start, tuple(group)): mean for (start, *group), mean in means}


_COUNTED = """
    n AS c_n, n::DOUBLE AS c_w, k::DOUBLE AS c_wy, c_wy AS c_wyy, c_w AS c_ww, 1.0 AS c_rarest,
    (k = n)::INTEGER::DOUBLE AS c_low, (k > 0)::INTEGER::DOUBLE AS c_high, 0 AS c_between"""
"""CLUSTER_SUMS of the share of a user's requests: counting takes a third of the time of adding up."""


def failing(store: Store, window: Window, filters: Filter, groups: tuple[str, ...]) -> dict[Place, ClusteredMean]:
    """Return the share of failed requests by bucket and group; bucket None is the whole window.

    There a user of many buckets counts once.
    """
    group_sql = "".join(f", {group}" for group in groups)
    users = (
        f"SELECT {window.bucket('start_time')} AS t{group_sql}, {_user(CLUSTER)}, count(*) AS n, count_if(error) AS k"
        f" FROM {with_columns('traces', groups)} WHERE start_time >= $first AND start_time < $last AND {filters.sql}"
        " GROUP BY ALL"
    )
    whole_users = (
        f"SELECT NULL AS t{group_sql}, bool_or(identified) AS identified, bool_or(estimated) AS estimated,"
        f" sum(n) AS n, sum(k) AS k FROM users GROUP BY cluster{group_sql}"
    )
    sums = f"SELECT t{group_sql}, {_MOMENTS} FROM (SELECT *, {_COUNTED} FROM ({{}})) GROUP BY ALL"
    sql = f"WITH users AS MATERIALIZED ({users}) {sums.format('FROM users')} UNION ALL {sums.format(whole_users)}"
    parameters = {**window.parameters, **filters.parameters}
    return _by_place(_clustered(store, sql, parameters, keys=1 + len(groups)))


@dataclass(frozen=True, slots=True)
class Tail:
    """One bucket of requests: how many are slower than 90 % of the range's, and their cost without extremes."""

    start: datetime
    n: int
    """Requests with a known latency."""
    slow: int
    paid: int
    """Requests with a known cost."""
    cost: float
    capped: float
    """The cost, each request capped at the range's 95th percentile."""
    squares: float
    """The sum of the squares of the capped costs."""


def tails(store: Store, window: Window, filters: Filter) -> list[Tail]:
    """Return the buckets in order of time."""
    rows = store.read(
        f"WITH known AS MATERIALIZED (SELECT {window.bucket('start_time')} AS t, latency_ms, cost_usd {_INSIDE}"
        f"{filters.sql}) SELECT t, count(latency_ms), count_if(latency_ms > usual), count(cost_usd),"
        " coalesce(sum(cost_usd), 0), coalesce(sum(least(cost_usd, cap)), 0),"
        " coalesce(sum(least(cost_usd, cap) ** 2), 0) FROM known, (SELECT quantile_cont(latency_ms, 0.9) AS usual,"
        " quantile_cont(cost_usd, 0.95) AS cap FROM known) GROUP BY t ORDER BY t",
        {**window.parameters, **filters.parameters},
    ).rows
    return [Tail(*row) for row in rows]


_INSIDE = "FROM traces WHERE start_time >= $first AND start_time < $last AND "


def p95(store: Store, window: Window, filters: Filter) -> float:
    """Return the 95th percentile of latency over the whole window, 0 without requests."""
    sql = f"SELECT quantile_cont(latency_ms, 0.95) {_INSIDE}{filters.sql}"
    return float(store.read(sql, {**window.parameters, **filters.parameters}).rows[0][0] or 0.0)


_MOST_MARKERS = 50


_SAME = "s.prompt_version = p.prompt_version AND s.prompt_name IS NOT DISTINCT FROM p.prompt_name"


def prompt_markers(store: Store, query: Query) -> list[Marker]:
    """Return the start of each prompt version that started inside the window and serves requests of the query.

    A filter does not move the start: the first failed request of a version is not its beginning.
    """
    only = f" SEMI JOIN ({prompts_in(query.filters)}) p ON {_SAME}" if query.filters != query.bound else ""
    starts = f"FROM ({prompt_starts(query.bound)}) s{only} ORDER BY t LIMIT {_MOST_MARKERS}"
    return [
        Marker(start, "prompt_version", f"prompt {name or ''} {version}".replace("  ", " "), name, sorted(services))
        for name, version, start, services in store.read(starts, query.parameters).rows
    ]


_MARGIN = timedelta(minutes=10)
"""A job may become visible this much later than its `created_at` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """The outcomes of the units of one evaluator."""

    evaluator: str
    eligible: int
    selected: int
    scored: int
    skipped: int
    invalid: int
    error: int
    dropped: int
    uncovered_share: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """Eligible, selected, scored and dropped units."""

    coverage: Sequence[CoverageRow]
    queued: int


def coverage(store: Store, query: Query) -> Coverage:
    """Answer `GET coverage`: the outcomes of the units of each evaluator; the share never covered."""
    buckets = estimates(store, None, query.window, query.filters)
    rows = coverage_rows(store, query.window, query.filters, buckets)
    return Coverage(rows, queue(store, now=query.now).pending)


def coverage_rows(store: Store, window: Window, filters: Filter, buckets: Sequence[Bucket]) -> list[CoverageRow]:
    """The rows of `coverage`; `buckets` are those of every evaluator in the window."""
    return sum_coverage(decision_counts(store, window, filters), buckets)


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """The sampler's decisions on the units of one evaluator and group in one bucket."""

    evaluator: str
    start: datetime
    group: tuple[GroupValue, ...]
    eligible: int
    selected: int
    dropped: int
    """Selected units that a cap dropped."""
    uncovered: int
    """Units that could not be selected (pi is 0)."""


def decision_counts(
    store: Store, window: Window, filters: Filter, groups: tuple[str, ...] = ()
) -> list[DecisionCounts]:
    """Count the decisions per evaluator, bucket and group."""
    group_sql = "".join(f", {group}" for group in groups)
    only = f" JOIN ({facts_of(filters, groups)}) t ON t.trace_id = d.trace_id" if filters or groups else ""
    rows = store.read(
        f"SELECT {BARE_NAME} AS evaluator, {window.bucket('request_time')}, count(*),"
        "   count_if(sampled OR (reason = 'budget' AND u < pi)),"
        "   count_if(NOT sampled AND reason = 'budget' AND u < pi),"
        f"   count_if(pi <= 0){group_sql}"
        f" FROM ({DECIDED_UNITS}) d{only} GROUP BY ALL ORDER BY 1, 2",
        {**window.parameters, **filters.parameters},
    ).rows
    return [DecisionCounts(row[0], row[1], tuple(row[6:]), *row[2:6]) for row in rows]


def sum_coverage(counted: Sequence[DecisionCounts], buckets: Sequence[Bucket]) -> list[CoverageRow]:
    """Return a row per evaluator over all buckets."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for decisions in counted:
        totals[decisions.evaluator].update(
            eligible=decisions.eligible,
            selected=decisions.selected,
            dropped=decisions.dropped,
            uncovered=decisions.uncovered,
        )
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for bucket in buckets:
        verdicts[bucket.evaluator].update(bucket.online)
    return [
        CoverageRow(
            evaluator=name,
            eligible=total["eligible"],
            selected=total["selected"],
            scored=verdicts[name]["ok"],
            skipped=verdicts[name]["skipped"],
            invalid=verdicts[name]["invalid"],
            error=verdicts[name]["error"],
            dropped=total["dropped"],
            uncovered_share=total["uncovered"] / total["eligible"],
        )
        for name, total in totals.items()
    ]


@dataclass(frozen=True, slots=True)
class Queue:
    """The number of pending jobs."""

    pending: int
    since: datetime
    """Every job created before is finished: the next read may start here."""


_QUEUE = f"""
    SELECT count(*) FILTER (pending), min(created_at)
    FROM ({unfinished("created_at >= $since", scores="created_at >= $since", decisions="decided_at >= $since")})"""


def queue(store: Store, *, now: datetime, since: datetime | None = None) -> Queue:
    """Count the pending jobs of the last day; `since` of an earlier result skips jobs finished by then."""
    day = now - timedelta(days=1)
    pending, first = store.read(_QUEUE, {"since": max(day, since or day)}).rows[0]
    return Queue(int(pending), min(first or now, now - _MARGIN))
