"""How much of the traffic an evaluator has really seen: so that a good number cannot hide a broken pipe."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.window import Window, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.decisions import BARE_NAME, DECIDED_UNITS
from ragpulse_collector.store.queries.jobs import unfinished
from ragpulse_collector.store.queries.traces import facts_of
from ragpulse_collector.store.rows import utc_now

__all__ = ["Decided", "Queue", "coverage", "covered", "decided", "queue", "summed"]

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
