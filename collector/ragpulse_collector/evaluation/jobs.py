"""The job queue without a queue table: pending jobs are computed from the rows, so a crash loses none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.cases import Unit
from ragpulse_collector.store import Rows, Store, Transaction
from ragpulse_collector.store.queries import jobs as queries

LONG_AGO = datetime(1970, 1, 1)
_FIRST_STEP = timedelta(seconds=2)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Job:
    """One evaluator to be run on one unit."""

    job_id: str
    unit: Unit
    evaluator: str
    run_id: str | None
    """None: online; else the replay it belongs to."""
    u: float | None
    created_at: datetime
    attempts: int = 0
    """Errors so far."""
    rule: str | None = None
    """The rule that selected it; None: a replay or a person did."""

    @property
    def stream(self) -> str:
        """The stream it belongs to: all jobs of one evaluator and replay."""
        return self.evaluator if self.run_id is None else f"{self.evaluator}\n{self.run_id}"


@dataclass(frozen=True, slots=True)
class Pending:
    """The first pending jobs: online before replays, replays in order of u."""

    jobs: list[Job]
    since: datetime
    """Every online job created before this instant is finished: the next look may start here."""


def pending(
    store: Store,
    *,
    limit: int,
    since: datetime = LONG_AGO,
    runs: Collection[str] = (),
    claimed: Collection[str] = (),
    full: Collection[str] = (),
    skew: timedelta = timedelta(minutes=10),
) -> Pending:
    """Return up to `limit` pending jobs that are not `claimed` and whose `stream` is not `full`.

    Jobs of replays are returned only for the given `runs`. A job may become visible `skew` later than its `created_at`.
    """
    online = _online(store, since, skew, limit=limit, claimed=claimed, full=full)
    room = limit - len(online.jobs)
    if not room or not runs:
        return online
    rows = queries.pending_of_runs(store.read, runs, limit=room, claimed=claimed, full=full)
    return Pending(online.jobs + [_job(row) for row in rows], online.since)


def _online(
    store: Store, since: datetime, skew: timedelta, *, limit: int, claimed: Collection[str], full: Collection[str]
) -> Pending:
    """Read a longer and longer span of time, so that a look costs what it returns, not what is pending behind it.

    If few jobs were made since then, one read looks at all of them.
    """
    first, newest, count = queries.online_ends(store.read, since)
    if first is None:
        return Pending([], since)
    step = _FIRST_STEP if count > limit else newest - first + _FIRST_STEP
    until, rows = first, list[tuple[Any, ...]]()
    while len(rows) < limit and until <= newest:
        until, step = first + step, step * 2
        rows = queries.pending_online(store.read, first, until, limit=limit, claimed=claimed, full=full)
    if full or (claimed and not rows):  # what is left out may be older
        return Pending([_job(row) for row in rows], since)
    oldest = rows[0][-1] if rows else newest
    if len(rows) == limit:
        rows = _from_both_ends(store, rows, first, newest, claimed=claimed)
    return Pending([_job(row) for row in rows], max(since, oldest - skew))


def _from_both_ends(
    store: Store, oldest: list[tuple[Any, ...]], first: datetime, newest: datetime, *, claimed: Collection[str]
) -> list[tuple[Any, ...]]:
    """Give half of the places to the newest jobs: a fall of the quality shows before a backlog is gone."""
    step, latest, half = _FIRST_STEP, list[tuple[Any, ...]](), len(oldest) // 2
    while len(latest) < half and newest - step > first - 2 * step:
        latest = queries.pending_online(
            store.read, newest - step, newest + _TICK, limit=half, claimed=claimed, full=(), newest=True
        )
        step *= 2
    mixed = [row for pair in zip(oldest, latest, strict=False) for row in pair] + oldest[len(latest) :]
    return list({row[0]: row for row in mixed}.values())[: len(oldest)]


def _job(row: Sequence[Any]) -> Job:
    job_id, trace_id, span_id, request_time, evaluator, run_id, u, created_at, attempts, rule = row[:10]
    unit = Unit(trace_id.hex, f"{span_id:016x}", request_time)
    return Job(job_id.hex, unit, evaluator, run_id, u, created_at, attempts, rule)


def by_ids(read: Callable[..., Rows], job_ids: Sequence[str]) -> list[Job]:
    """Return the unfinished jobs of these ids."""
    return [_job(row) for row in queries.unfinished_by_id(read, job_ids)]


def of_run(
    read: Callable[..., Rows], run_id: str, *, limit: int | None = None, job_ids: Sequence[str] | None = None
) -> list[Job]:
    """Return the unfinished jobs of one replay in order of u: the first `limit`, or those of the given ids."""
    return [_job(row) for row in queries.unfinished_of_run(read, run_id, limit=limit, job_ids=job_ids)]


def stored_keys(read: Callable[..., Rows], units: Sequence[Unit], keys: Sequence[str]) -> set[str]:
    """Return those of the keys under which a final score is stored already, with the request time of its unit."""
    known = all(unit.request_time is not None for unit in units)
    times = [unit.request_time or LONG_AGO for unit in units] if known and units else [LONG_AGO, datetime.max]
    return queries.stored_keys(read, {unit.trace_id for unit in units}, keys, min(times), max(times))


def drop(tx: Transaction, job: Job) -> None:
    """Append the decision that the budget left this selected job out: same pi, same u, reason `budget`."""
    queries.drop(tx, job.unit.trace_id, int(job.unit.span_id, 16), job.evaluator)
