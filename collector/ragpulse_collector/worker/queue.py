"""The queue without a queue table: what is pending is computed from the rows, so a crash can lose nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.cases import Unit
from ragpulse_collector.analysis.runs import given_up
from ragpulse_collector.store import Rows, Store, Transaction

__all__ = [
    "LONG_AGO",
    "Job",
    "Pending",
    "by_ids",
    "dead_letters",
    "drop",
    "of_run",
    "pending",
    "retry",
    "stored_keys",
]

LONG_AGO = datetime(1970, 1, 1)


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

    @property
    def stream(self) -> str:
        """Jobs of one evaluator and run wait in one line."""
        return self.evaluator if self.run_id is None else f"{self.evaluator}\n{self.run_id}"


@dataclass(frozen=True, slots=True)
class Pending:
    """The first jobs that wait, online before replays, replays in order of u."""

    jobs: list[Job]
    since: datetime
    """Every online job created before this instant is finished: the next look may start here."""


_FIRST_STEP = timedelta(seconds=2)
_WAITING = f"""
WITH waiting AS (
    SELECT j.* FROM raw.eval_jobs j ANTI JOIN (SELECT unnest($full::VARCHAR[]) AS stream) s ON s.stream = {{stream}}
    WHERE {{which}}
), finished AS (
    SELECT job_id FROM raw.scores s WHERE ({{scored}})
      AND (status IN ('ok', 'invalid', 'skipped') OR {given_up("s")})
    UNION ALL SELECT job_id FROM raw.run_items WHERE job_id IS NOT NULL
), tried AS (
    SELECT job_id, max(attempt) AS attempts FROM raw.scores
    WHERE ({{scored}}) AND status = 'error' GROUP BY job_id
), dropped AS (
    SELECT trace_id, span_id, evaluator, decided_at FROM raw.decisions
    WHERE latest AND NOT sampled AND reason = 'budget' AND {{decided}}
), found AS (
    SELECT w.job_id, w.trace_id, w.span_id, w.request_time, w.evaluator, w.run_id, w.u, w.created_at,
           coalesce(t.attempts, 0) AS attempts, min(w.created_at) OVER () AS oldest
    FROM waiting w ANTI JOIN finished f ON f.job_id = w.job_id LEFT JOIN tried t ON t.job_id = w.job_id
    LEFT JOIN dropped d ON d.trace_id = w.trace_id AND d.span_id = w.span_id AND d.evaluator = w.evaluator
         AND d.decided_at >= w.created_at WHERE d.decided_at IS NULL
)
SELECT f.* FROM found f ANTI JOIN (SELECT unnest($claimed::UUID[]) AS job_id) c ON c.job_id = f.job_id
ORDER BY {{order}}, f.job_id LIMIT $limit
"""
_ONLINE = _WAITING.format(
    which="run_id IS NULL AND created_at >= $since AND created_at < $until",
    # Scores and decisions carry the request time of their job, by which the store skips those of other hours.
    scored="created_at >= $since - INTERVAL 10 MINUTES AND request_time BETWEEN $first AND $last",
    decided="decided_at >= $since AND request_time BETWEEN $first AND $last",
    stream="j.evaluator",
    order="f.created_at, f.u",
)
_REPLAYED = _WAITING.format(
    which="run_id IN (SELECT unnest($runs::VARCHAR[]))",
    scored="run_id IN (SELECT unnest($runs::VARCHAR[]))",
    decided="false",
    stream="j.evaluator || chr(10) || j.run_id",
    order="f.u",
)


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
    """Return up to `limit` waiting jobs that are not `claimed` and whose `stream` is not `full`.

    Those of replays only where they belong to one of `runs`. A job may become visible `skew` later than it says.
    """
    asked: dict[str, Any] = {"claimed": list(claimed), "full": list(full)}
    online = _online(store, asked, limit, since, skew)
    left = limit - len(online.jobs)
    if not left or not runs:
        return online
    rows = store.read(_REPLAYED, asked | {"runs": list(runs), "limit": left}).rows
    return Pending(online.jobs + [_job(row) for row in rows], online.since)


def _online(store: Store, asked: dict[str, Any], limit: int, since: datetime, skew: timedelta) -> Pending:
    """Look through a longer and longer piece of the line, so that it costs what is taken, not what waits behind.

    A short line is looked through at once.
    """
    line = "FROM raw.eval_jobs WHERE run_id IS NULL AND created_at >= $since"
    ends = f"SELECT min(created_at), max(created_at), count(*) {line}"
    first, newest, waiting = store.read(ends, {"since": since}).rows[0]
    if first is None:
        return Pending([], since)
    step = _FIRST_STEP if waiting > limit else newest - first + _FIRST_STEP
    until, rows = first, list[tuple[Any, ...]]()
    while len(rows) < limit and until <= newest:
        until, step = first + step, step * 2
        window = {"since": first, "until": until}
        times = store.read(f"SELECT min(request_time), max(request_time) {line} AND created_at < $until", window)
        window |= zip(("first", "last"), times.rows[0], strict=True)
        rows = store.read(_ONLINE, asked | window | {"limit": limit}).rows
    if asked["full"] or (asked["claimed"] and not rows):  # what is left out may be older
        return Pending([_job(row) for row in rows], since)
    oldest = rows[0][9] if rows else newest
    return Pending([_job(row) for row in rows], max(since, oldest - skew))


def _job(row: Sequence[Any]) -> Job:
    job_id, trace_id, span_id, request_time, evaluator, run_id, u, created_at, attempts = row[:9]
    unit = Unit(trace_id.hex, f"{span_id:016x}", request_time)
    return Job(job_id.hex, unit, evaluator, run_id, u, created_at, attempts)


def by_ids(read: Callable[..., Rows], job_ids: Sequence[str]) -> list[Job]:
    """Return the unfinished jobs of these ids."""
    rows = read(
        "SELECT j.job_id, j.trace_id, j.span_id, j.request_time, j.evaluator, j.run_id, j.u, j.created_at,"
        " coalesce((SELECT max(s.attempt) FROM raw.scores s WHERE s.job_id = j.job_id AND s.status = 'error'), 0)"
        " FROM raw.eval_jobs j WHERE j.job_id IN (SELECT unnest($ids::UUID[]))"
        " AND NOT EXISTS (SELECT 1 FROM raw.run_items i WHERE i.job_id = j.job_id) AND NOT EXISTS ("
        f"SELECT 1 FROM raw.scores s WHERE s.job_id = j.job_id AND (s.status <> 'error' OR {given_up('s')}))",
        {"ids": list(job_ids)},
    ).rows
    return [_job(row) for row in rows]


def of_run(
    read: Callable[..., Rows], run_id: str, *, limit: int | None = None, job_ids: Sequence[str] | None = None
) -> list[Job]:
    """Return the unfinished jobs of one replay in order of u: the first `limit`, or those of the given ids."""
    rows = read(
        "SELECT j.job_id, any_value(j.trace_id), any_value(j.span_id), any_value(j.request_time),"
        " any_value(j.evaluator), any_value(j.run_id), any_value(j.u) AS u, min(j.created_at),"
        " coalesce(max(s.attempt), 0)"
        " FROM raw.eval_jobs j LEFT JOIN raw.scores s ON s.job_id = j.job_id AND s.status = 'error'"
        " WHERE j.run_id = $run AND ($ids IS NULL OR j.job_id IN (SELECT unnest($ids::UUID[])))"
        " AND NOT EXISTS (SELECT 1 FROM raw.run_items i WHERE i.run_id = $run AND i.job_id = j.job_id)"
        " GROUP BY j.job_id ORDER BY u, j.job_id LIMIT $limit",
        {"run": run_id, "ids": job_ids, "limit": 2**31 if limit is None else limit},
    ).rows
    return [_job(row) for row in rows]


def stored_keys(read: Callable[..., Rows], units: Sequence[Unit], keys: Sequence[str]) -> set[str]:
    """Return those of the keys under which a final score is stored already, with the request time of its unit."""
    known = all(unit.request_time is not None for unit in units)
    times = [unit.request_time or LONG_AGO for unit in units] if known and units else [LONG_AGO, datetime.max]
    rows = read(
        "SELECT DISTINCT score_key FROM raw.scores WHERE trace_id IN (SELECT unnest($ids::UUID[]))"
        " AND request_time BETWEEN $first AND $last"
        " AND score_key IN (SELECT unnest($keys::VARCHAR[])) AND status IN ('ok', 'invalid', 'skipped')",
        {"ids": sorted({unit.trace_id for unit in units}), "keys": list(keys), "first": min(times), "last": max(times)},
    ).rows
    return {key for (key,) in rows}


def drop(tx: Transaction, job: Job) -> None:
    """Append the decision that the cap left this selected job out: same pi, same u, reason `budget`."""
    which = "trace_id = $trace::UUID AND span_id = $span AND evaluator = $name"
    unit = {"trace": job.unit.trace_id, "span": int(job.unit.span_id, 16), "name": job.evaluator}
    tx.execute(
        "INSERT INTO raw.decisions (trace_id, span_id, request_time, evaluator, rule, policy, pi, u, sampled, reason,"
        " decided_at, revision, latest) SELECT trace_id, span_id, request_time, evaluator, rule, policy, pi, u, false,"
        f" 'budget', $now::TIMESTAMP, revision + 1, NULL FROM raw.decisions WHERE latest AND {which}",
        unit | {"now": tx.at},
    )
    tx.execute(f"UPDATE raw.decisions SET latest = latest IS NULL WHERE (latest OR latest IS NULL) AND {which}", unit)


_DEAD = f"""
SELECT o.job_id, o.trace_id, o.span_id, o.request_time, o.evaluator, o.run_id, o.source, o.u, s.explanation, s.attempt,
       s.created_at
FROM raw.scores s JOIN raw.eval_jobs o ON o.job_id = s.job_id
WHERE {given_up("s")} AND NOT EXISTS (
    SELECT 1 FROM raw.eval_jobs j WHERE j.trace_id = o.trace_id AND j.span_id = o.span_id
    AND j.evaluator = o.evaluator AND j.run_id IS NOT DISTINCT FROM o.run_id AND j.created_at > o.created_at)
ORDER BY s.created_at DESC
"""


def dead_letters(store: Store, *, limit: int = 100) -> list[dict[str, Any]]:
    """Return the jobs that failed too often, newest first: ids, evaluator, error text, attempts, when."""
    answer = store.read(f"{_DEAD} LIMIT {int(limit)}")
    return [_letter(row) for row in answer.dicts()]


def _letter(row: dict[str, Any]) -> dict[str, Any]:
    ids = {"job_id": row["job_id"].hex, "trace_id": row["trace_id"].hex, "span_id": f"{row['span_id']:016x}"}
    times = {"request_time": row["request_time"], "failed_at": row["created_at"]}
    told = {key: row[key] for key in ("evaluator", "run_id", "source")}
    return {**ids, **told, **times, "error": row["explanation"], "attempts": row["attempt"]}


def retry(store: Store, job_ids: Collection[str] | None = None) -> int:
    """Queue dead letters again (None: all of them) under new job ids; returns how many."""
    wanted = None if job_ids is None else set(job_ids)

    def work(tx: Transaction) -> int:
        dead = tx.execute(_DEAD)
        rows = [_job_row(row, tx.at) for row in dead.dicts() if wanted is None or row["job_id"].hex in wanted]
        tx.append("eval_jobs", _JOB_COLUMNS, rows)
        return len(rows)

    return store.write(work).result()


_JOB_COLUMNS = ("job_id", "trace_id", "span_id", "request_time", "evaluator", "run_id", "source", "u", "created_at")


def _job_row(dead: dict[str, Any], created_at: datetime) -> tuple[Any, ...]:
    ids = (uuid.uuid4().hex, dead["trace_id"].hex, dead["span_id"])
    return (*ids, *(dead[column] for column in _JOB_COLUMNS[3:-1]), created_at)
