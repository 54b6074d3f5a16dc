"""The coverage of each evaluator: what became of the eligible units; and the queue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.decisions import BARE_NAME, DECIDED_UNITS
from ragpulse_collector.store.queries.jobs import unfinished
from ragpulse_collector.store.queries.traces import Filter, facts_of

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
    rows = sum_coverage(decision_counts(store, query.window, query.filters), buckets)
    return Coverage(rows, queue(store, now=query.now).pending)


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
        "   count(*) FILTER (sampled OR (reason = 'budget' AND u < pi)),"
        "   count(*) FILTER (NOT sampled AND reason = 'budget' AND u < pi),"
        f"   count(*) FILTER (pi <= 0){group_sql}"
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
