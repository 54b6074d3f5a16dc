"""The traffic: its own metrics in one pass, and how much of it each evaluator has seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.selection import Window, filter_of, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, CLUSTER_SUMS, IDENTIFIED, MOMENTS
from ragpulse_collector.store.queries.decisions import BARE_NAME, DECIDED_UNITS
from ragpulse_collector.store.queries.jobs import unfinished
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.queries.traces import Filter, facts_of, prompt_starts, with_columns
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.errors import nearest
from ragpulse_evaluators.statistics import Moments


@dataclass(frozen=True, slots=True)
class Traffic:
    """A metric of the traffic: SQL for its value, its unit, and whether an empty bucket is a true zero."""

    sql: str
    unit: str
    count: bool = False
    of: str | None = None
    """The column it adds up; the share of unknown values goes with every total."""


_SCALED = "sum(1 / coalesce(upstream_pi, 1))"
# The same aggregate, written the same, is computed once.
_LATENCY = "quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
_TTFT = "quantile_cont(ttft_ms, [0.5, 0.95])"
NAMES: dict[str, Traffic] = {
    "requests": Traffic(_SCALED, "requests", count=True),
    "errors": Traffic("sum(CASE WHEN error THEN 1 / coalesce(upstream_pi, 1) ELSE 0 END)", "requests", count=True),
    "error_rate": Traffic("count(*) FILTER (error)", "share"),  # how many failed; `failing` has the share
    "latency_p50": Traffic(f"{_LATENCY}[1]", "ms"),
    "latency_p95": Traffic(f"{_LATENCY}[2]", "ms"),
    "latency_p99": Traffic(f"{_LATENCY}[3]", "ms"),
    "ttft_p50": Traffic(f"{_TTFT}[1]", "ms"),
    "ttft_p95": Traffic(f"{_TTFT}[2]", "ms"),
    "input_tokens": Traffic("sum(input_tokens / coalesce(upstream_pi, 1))", "tokens", of="input_tokens"),
    "output_tokens": Traffic("sum(output_tokens / coalesce(upstream_pi, 1))", "tokens", of="output_tokens"),
    "cost_usd": Traffic("sum(cost_usd / coalesce(upstream_pi, 1))", "USD", of="cost_usd"),
    "throughput": Traffic(_SCALED, "requests/s", count=True),
}
"""The metrics beside `quality:`, `score:` and `pass_rate:` of an evaluator."""

_FAMILIES = (*MEASURES, "coverage")
FEEDBACK = "feedback"
"""What a score is called whose sender does not name it."""


def check_metric(metric: str, known: Collection[str], met: Callable[[], Collection[str]] | None = None) -> None:
    """Raise ValueError with the nearest name unless it is a metric; see `check_evaluator`."""
    family, colon, evaluator = metric.partition(":")
    if not colon and metric in NAMES:
        return
    if not evaluator or family not in _FAMILIES:
        possible = (*NAMES, *(f"{name}:<evaluator>" for name in _FAMILIES))
        hint = nearest(metric, possible) or f"; possible: {', '.join(possible)}"
        raise ValueError(f"no metric {metric!r}{hint}")
    check_evaluator(evaluator, known, met)


def check_evaluator(name: str, known: Collection[str], met: Callable[[], Collection[str]] | None = None) -> None:
    """Raise ValueError with the nearest name unless an evaluator is `known` or one that the store has `met`.

    Without `met` only a slip of a known name is refused: another may be that of scores which somebody will send.
    """
    bare = name.partition("@")[0]
    if bare in known or bare == FEEDBACK:
        return
    stored = () if met is None else met()
    slip = nearest(bare, {*known, *stored}, cutoff=0.6 if met else 0.8)
    if bare not in stored and (slip or met):
        raise ValueError(f"no evaluator {bare!r}{slip or '; there are: ' + ', '.join(sorted(stored or known))}")


_TOTALS = {
    "n": "count(*)",
    "estimated": "bool_or(coalesce(upstream_pi, 1) < 1)",
    "cost": "sum(cost_usd)",
    "tokens": "sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))",
    **{f"known_{one.of}": f"count({one.of})" for one in NAMES.values() if one.of},
}


@dataclass(frozen=True, slots=True)
class TrafficBucket:
    """The requests of one group in one bucket."""

    at: datetime
    group: tuple[Any, ...]
    values: dict[str, Any]
    """By the names of NAMES, beside n, estimated (scaled up), cost and tokens (not scaled), known_<column>."""

    def unknown_share(self, name: str) -> float:
        """The share of requests that do not say what the metric adds up."""
        of = NAMES[name].of
        return 0.0 if of is None else 1.0 - float(self.values[f"known_{of}"] / self.values["n"])


def traffic(store: Store, window: Window, keep: Filter, groups: tuple[str, ...]) -> list[TrafficBucket]:
    """Return every metric per group and bucket."""
    wanted = {name: metric.sql for name, metric in NAMES.items()} | _TOTALS
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {', '.join(wanted.values())}{''.join(f', {g}' for g in groups)}"
        f" FROM {with_columns('traces', groups)}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {**window.parameters, **keep.parameters},
    ).rows
    end = 1 + len(wanted)
    return [TrafficBucket(row[0], tuple(row[end:]), dict(zip(wanted, row[1:end], strict=True))) for row in rows]


@dataclass(frozen=True, slots=True)
class Clustered:
    """A measure of requests, those of one user taken as dependent."""

    moments: Moments | None
    """None where no request has a value."""
    identified: bool
    """Whether any request names its user or session."""
    estimated: bool
    """Whether an upstream sampler kept some requests only."""


def by_user(
    store: Store, source: str, keys: Sequence[str], parameters: Mapping[str, Any], *, cluster: str = CLUSTER
) -> dict[tuple[Any, ...], Clustered]:
    """Add up the column `y` of the rows of `source`, weighted by 1/`pi`, for each of the `keys`."""
    listed = "".join(f", {key}" for key in keys)
    users = f"SELECT {_user(cluster)}, {CLUSTER_SUMS.format(y='y')}{listed} FROM ({source}) GROUP BY ALL"
    return _clustered(store, f"SELECT {_MOMENTS}{listed} FROM ({users}) GROUP BY ALL", parameters)


def _user(cluster: str) -> str:
    return (
        f"{cluster} AS cluster, bool_or({IDENTIFIED}) AS identified, coalesce(bool_or(upstream_pi < 1), false)"
        " AS estimated"
    )


_MOMENTS = f"{MOMENTS}, bool_or(identified), bool_or(estimated)"


def _clustered(store: Store, sql: str, parameters: Mapping[str, Any]) -> dict[tuple[Any, ...], Clustered]:
    size = len(fields(Moments))
    return {
        tuple(row[size + 2 :]): Clustered(Moments.of(row[:size]), bool(row[size]), bool(row[size + 1]))
        for row in store.read(sql, parameters).rows
    }


_COUNTED = """
    n AS c_n, n::DOUBLE AS c_w, k::DOUBLE AS c_wy, c_wy AS c_wyy, c_w AS c_ww, 1.0 AS c_rarest,
    (k = n)::INTEGER::DOUBLE AS c_low, (k > 0)::INTEGER::DOUBLE AS c_high, 0 AS c_between"""
"""CLUSTER_SUMS of a share, of the requests of one user: counting takes a third of the time of adding up."""


def failing(store: Store, window: Window, keep: Filter, groups: tuple[str, ...]) -> dict[tuple[Any, ...], Clustered]:
    """Return the share of requests that failed, by bucket and group; of the bucket None it is that of the window.

    There a user of many buckets is one.
    """
    listed = "".join(f", {group}" for group in groups)
    users = (
        f"SELECT {_user(CLUSTER)}, count(*) AS n, count_if(error) AS k, {window.bucket('start_time')} AS t{listed}"
        f" FROM {with_columns('traces', groups)} WHERE start_time >= $first AND start_time < $last AND {keep.sql}"
        " GROUP BY ALL"
    )
    whole = (
        "SELECT bool_or(identified) AS identified, bool_or(estimated) AS estimated, sum(n) AS n, sum(k) AS k,"
        f" NULL AS t{listed} FROM users GROUP BY cluster{listed}"
    )
    sums = f"SELECT {_MOMENTS}, t{listed} FROM (SELECT *, {_COUNTED} FROM ({{}})) GROUP BY ALL"
    sql = f"WITH users AS MATERIALIZED ({users}) {sums.format('FROM users')} UNION ALL {sums.format(whole)}"
    return _clustered(store, sql, {**window.parameters, **keep.parameters})


@dataclass(frozen=True, slots=True)
class Tail:
    """One bucket of requests: how many are slower than 90 % of the range's, and what they cost without the extremes."""

    at: datetime
    n: int
    """Those whose latency is known."""
    slow: int
    paid: int
    """Those whose cost is known."""
    cost: float
    capped: float
    """The cost, where no request costs more than 95 % of the range's."""
    squares: float
    """The sum of the squares of the capped costs."""


def tails(store: Store, window: Window, keep: Filter) -> list[Tail]:
    """Return the buckets in order of time."""
    rows = store.read(
        f"WITH known AS MATERIALIZED (SELECT {window.bucket('start_time')} AS t, latency_ms, cost_usd {_INSIDE}"
        f"{keep.sql}) SELECT t, count(latency_ms), count_if(latency_ms > usual), count(cost_usd),"
        " coalesce(sum(cost_usd), 0), coalesce(sum(least(cost_usd, cap)), 0),"
        " coalesce(sum(least(cost_usd, cap) ** 2), 0) FROM known, (SELECT quantile_cont(latency_ms, 0.9) AS usual,"
        " quantile_cont(cost_usd, 0.95) AS cap FROM known) GROUP BY t ORDER BY t",
        {**window.parameters, **keep.parameters},
    ).rows
    return [Tail(*row) for row in rows]


_INSIDE = "FROM traces WHERE start_time >= $first AND start_time < $last AND "


def p95(store: Store, window: Window, keep: Filter) -> float:
    """Return the 95th percentile of latency over the whole window, 0 without requests."""
    sql = f"SELECT quantile_cont(latency_ms, 0.95) {_INSIDE}{keep.sql}"
    return float(store.read(sql, {**window.parameters, **keep.parameters}).rows[0][0] or 0.0)


_MOST_MARKERS = 50


def prompt_markers(store: Store, window: Window, keep: Filter) -> list[dict[str, Any]]:
    """Return `{"t", "kind", "text"}` for each prompt version that began inside the window, its first one apart."""
    rows = store.read(f"{prompt_starts(keep)} LIMIT {_MOST_MARKERS}", {**window.parameters, **keep.parameters}).rows
    return [
        {"t": iso(at), "kind": "prompt_version", "text": f"prompt {name or ''} {version}".replace("  ", " ")}
        for name, version, at in rows
    ]


_MARGIN = timedelta(minutes=10)
"""A job may become visible this much later than its `created_at` says."""


def coverage(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Per evaluator: units eligible, selected, scored, skipped, invalid, error, dropped; the share never covered."""
    now = clock()
    window, keep = window_of({"width": 1, **params}, now=now).whole, filter_of(params)
    return {
        "coverage": covered(store, window, keep, estimates(store, None, window, keep)),
        "queued": queue(store, now=now).waiting,
    }


def covered(store: Store, window: Window, keep: Filter, buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """The rows of `coverage`; `buckets` are those of every evaluator in the window."""
    return summed(decided(store, window, keep), buckets)


@dataclass(frozen=True, slots=True)
class Decided:
    """What the sampler said about the units of one evaluator and group in one bucket."""

    evaluator: str
    at: datetime
    group: tuple[Any, ...]
    eligible: int
    selected: int
    dropped: int
    """Selected ones that a cap left out."""
    uncovered: int
    """Those that no draw could have selected."""


def decided(store: Store, window: Window, keep: Filter, groups: tuple[str, ...] = ()) -> list[Decided]:
    """Count the decisions per evaluator, bucket and group."""
    listed = "".join(f", {group}" for group in groups)
    only = f" JOIN ({facts_of(keep, groups)}) t ON t.trace_id = d.trace_id" if keep or groups else ""
    rows = store.read(
        f"SELECT {BARE_NAME} AS evaluator, {window.bucket('request_time')}, count(*),"
        "   count_if(sampled OR (reason = 'budget' AND u < pi)),"
        "   count_if(NOT sampled AND reason = 'budget' AND u < pi),"
        f"   count_if(pi <= 0){listed}"
        f" FROM ({DECIDED_UNITS}) d{only} GROUP BY ALL ORDER BY 1, 2",
        {**window.parameters, **keep.parameters},
    ).rows
    return [Decided(row[0], row[1], tuple(row[6:]), *row[2:6]) for row in rows]


def summed(counted: Sequence[Decided], buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """One row per evaluator over all buckets."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for part in counted:
        totals[part.evaluator].update(
            eligible=part.eligible, selected=part.selected, dropped=part.dropped, uncovered=part.uncovered
        )
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in buckets:
        verdicts[one.evaluator].update(one.online)
    return [
        {"evaluator": name}
        | {count: total[count] for count in ("eligible", "selected", "dropped")}
        | {"uncovered_share": total["uncovered"] / total["eligible"], "scored": verdicts[name]["ok"]}
        | {status: verdicts[name][status] for status in ("skipped", "invalid", "error")}
        for name, total in totals.items()
    ]


@dataclass(frozen=True, slots=True)
class Queue:
    """How many jobs are pending."""

    waiting: int
    since: datetime
    """Every job created before is finished: the next look may begin here."""


_QUEUE = f"""
    SELECT count(*) FILTER (pending), min(created_at)
    FROM ({unfinished("created_at >= $since", scores="created_at >= $since", decisions="decided_at >= $since")})"""


def queue(store: Store, *, now: datetime, since: datetime | None = None) -> Queue:
    """Count the pending jobs of the last day; `since` from an earlier look leaves out what was finished by then."""
    day = now - timedelta(days=1)
    pending, first = store.read(_QUEUE, {"since": max(day, since or day)}).rows[0]
    return Queue(int(pending), min(first or now, now - _MARGIN))
