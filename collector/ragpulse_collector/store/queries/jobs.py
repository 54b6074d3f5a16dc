"""Evaluation jobs (which are unfinished, which are pending), their money, and the recorded replies of judges.

A job is a row of `raw.eval_jobs`. It is unfinished until the store holds one of these:

- a score of this job with status `ok`, `invalid` or `skipped`;
- the `error` of its last attempt: the job is then given up;
- a row of `raw.run_items` for it: an equal score was stored earlier.

An unfinished job is pending while it will still be evaluated. It is not pending if the budget dropped it after it was
made, or if its replay was cancelled, was capped or failed. Jobs of a resumed replay are pending again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime
from typing import Literal, NamedTuple
from uuid import UUID

from ragpulse_collector.store.protocol import Read, Transaction

MAX_ATTEMPTS = {False: 3, True: 5}
"""Attempts at a job, by whether a judge is asked: an unreachable judge may be back later."""
OPEN_RUN = ("running", "external")
"""The states of a replay whose jobs are pending: the collector, or the caller (`external`), evaluates them."""


def given_up(scores: str) -> str:
    """Return the condition that a row of `raw.scores` (under this alias) is the error of a job's last attempt.

    An error without a further attempt, such as a mistake in the code, has the number of the last attempt. Such a job is
    a dead letter: it is evaluated again only on request (`POST evaluate`).
    """
    max_attempts = f"CASE WHEN {scores}.judge IS NULL THEN {MAX_ATTEMPTS[False]} ELSE {MAX_ATTEMPTS[True]} END"
    return f"({scores}.status = 'error' AND {scores}.attempt >= {max_attempts})"


def unfinished(jobs: str = "true", *, scores: str = "true", decisions: str = "true") -> str:
    """Return the relation of the unfinished jobs that meet the condition `jobs`.

    Its columns are those of `raw.eval_jobs`, `attempts` (errors so far) and `pending`. `scores` and `decisions` are
    conditions that hold for every score and every decision about these jobs; they keep the scans short.
    """
    return f"""
        SELECT j.*, coalesce(t.attempts, 0) AS attempts,
               d.dropped_at IS NULL AND (j.run_id IS NULL OR coalesce(r.open, false)) AS pending
        FROM (SELECT * FROM raw.eval_jobs WHERE {jobs}) j
        ANTI JOIN (
            SELECT job_id FROM raw.scores s WHERE ({scores}) AND (status <> 'error' OR {given_up("s")})
            UNION ALL SELECT job_id FROM raw.run_items WHERE job_id IS NOT NULL) f ON f.job_id = j.job_id
        LEFT JOIN (
            SELECT job_id, max(attempt) AS attempts FROM raw.scores
            WHERE ({scores}) AND status = 'error' GROUP BY job_id) t ON t.job_id = j.job_id
        LEFT JOIN (
            SELECT trace_id, span_id, evaluator, max(decided_at) AS dropped_at FROM raw.decisions
            WHERE latest AND NOT sampled AND reason = 'budget' AND ({decisions}) GROUP BY ALL) d
          ON d.trace_id = j.trace_id AND d.span_id = j.span_id AND d.evaluator = j.evaluator
         AND d.dropped_at >= j.created_at AND j.run_id IS NULL
        LEFT JOIN (
            SELECT run_id, arg_max(status, created_at) IN {OPEN_RUN} AS open FROM raw.runs GROUP BY run_id) r
          ON r.run_id = j.run_id"""


def pending(jobs: str = "true", *, scores: str = "true", decisions: str = "true") -> str:
    """Return the relation of the pending jobs; parameters and columns are those of `unfinished`."""
    return f"SELECT * FROM ({unfinished(jobs, scores=scores, decisions=decisions)}) WHERE pending"


class JobRow(NamedTuple):
    """A job as the worker reads it."""

    job_id: UUID
    trace_id: UUID
    span_id: int
    request_time: datetime | None
    evaluator: str
    run_id: str | None
    u: float | None
    created_at: datetime
    attempts: int
    rule: str | None
    oldest: datetime | None = None
    """When the oldest pending job of the query, claimed or not, was made."""


_JOB = "f.job_id, f.trace_id, f.span_id, f.request_time, f.evaluator, f.run_id, f.u, f.created_at, f.attempts, f.rule"
"""The columns of a job that the worker reads."""
_NEXT = f"""
    WITH found AS (SELECT *, min(created_at) OVER () AS oldest FROM ({{pending}}))
    SELECT {_JOB}, f.oldest FROM found f
    ANTI JOIN (SELECT unnest($claimed::UUID[]) AS job_id) c ON c.job_id = f.job_id
    {{senders}} ORDER BY {{order}}, f.job_id LIMIT $limit"""
_SENDERS = """
    LEFT JOIN (
        SELECT trace_id, any_value(service) AS sender FROM raw.trace_facts
        WHERE latest AND start_time BETWEEN $first - INTERVAL 1 DAY AND $last GROUP BY trace_id) s
      ON s.trace_id = f.trace_id"""
_TURN = "row_number() OVER (PARTITION BY s.sender ORDER BY {order}), {order}"
"""Services take turns: the jobs of one that floods do not delay those of the others."""
_PENDING_ONLINE = pending(
    "run_id IS NULL AND created_at >= $since AND created_at < $until"
    " AND evaluator NOT IN (SELECT unnest($full::VARCHAR[]))",
    # Scores and decisions carry the request time of their job, by which the store skips those of other hours.
    scores="created_at >= $since - INTERVAL 10 MINUTES AND request_time BETWEEN $first AND $last",
    decisions="decided_at >= $since AND request_time BETWEEN $first AND $last",
)
_OLDEST, _NEWEST = (
    _NEXT.format(pending=_PENDING_ONLINE, senders=_SENDERS, order=_TURN.format(order=order))
    for order in ("f.created_at, f.u", "f.created_at DESC, f.u")
)
_OF_RUNS = _NEXT.format(
    pending=pending(
        "run_id IN (SELECT unnest($runs::VARCHAR[]))"
        " AND evaluator || chr(10) || run_id NOT IN (SELECT unnest($full::VARCHAR[]))",
        scores="run_id IN (SELECT unnest($runs::VARCHAR[]))",
        decisions="false",
    ),
    senders="",
    order="f.u",
)
_SINCE = "FROM raw.eval_jobs WHERE run_id IS NULL AND created_at >= $since"


def online_ends(read: Read, since: datetime) -> tuple[datetime | None, datetime, int]:
    """Return when the first and the last online job since then were made, and how many there are, finished or not."""
    first, last, count = read(f"SELECT min(created_at), max(created_at), count(*) {_SINCE}", {"since": since}).rows[0]
    return first, last, count


def pending_online(
    read: Read,
    since: datetime,
    until: datetime,
    *,
    limit: int,
    claimed: Collection[str],
    full: Collection[str],
    newest: bool = False,
) -> list[JobRow]:
    """Return the first pending online jobs made between the two instants, the oldest or the `newest` first.

    Jobs that are `claimed` and jobs of `full` evaluators are left out.
    """
    window = {"since": since, "until": until}
    times = read(f"SELECT min(request_time), max(request_time) {_SINCE} AND created_at < $until", window).rows[0]
    bounds = {"first": times[0], "last": times[1]}
    chosen = {"limit": limit, "claimed": list(claimed), "full": list(full)}
    return read(_NEWEST if newest else _OLDEST, {**window, **bounds, **chosen}).tuples(JobRow)


def pending_of_runs(
    read: Read, runs: Collection[str], *, limit: int, claimed: Collection[str], full: Collection[str]
) -> list[JobRow]:
    """Return the first pending jobs of these replays in order of u; `full` holds evaluator, newline, run id."""
    named = {"runs": list(runs), "limit": limit, "claimed": list(claimed), "full": list(full)}
    return read(_OF_RUNS, named).tuples(JobRow)


def unfinished_by_id(read: Read, job_ids: Sequence[str]) -> list[JobRow]:
    """Return the unfinished jobs of these ids."""
    condition = "job_id IN (SELECT unnest($ids::UUID[]))"
    sql = f"SELECT {_JOB} FROM ({unfinished(condition, scores=condition)}) f"
    return read(sql, {"ids": list(job_ids)}).tuples(JobRow)


def unfinished_of_run(
    read: Read, run_id: str, *, limit: int | None = None, job_ids: Sequence[str] | None = None
) -> list[JobRow]:
    """Return the unfinished jobs of one replay in order of u: the first `limit`, or those of the given ids."""
    of_run = unfinished(
        "run_id = $run AND ($ids IS NULL OR job_id IN (SELECT unnest($ids::UUID[])))",
        scores="run_id = $run",
        decisions="false",
    )
    row_limit = 2**31 if limit is None else limit
    sql = f"SELECT {_JOB} FROM ({of_run}) f ORDER BY f.u, f.job_id LIMIT $limit"
    return read(sql, {"run": run_id, "ids": job_ids, "limit": row_limit}).tuples(JobRow)


def ids_of_run(read: Read, run_id: str, job_ids: Collection[str]) -> set[str]:
    """Return those of the ids that are jobs of this replay."""
    stored = read(
        "SELECT job_id FROM raw.eval_jobs WHERE run_id = $run AND job_id IN (SELECT unnest($ids::UUID[]))",
        {"run": run_id, "ids": list(job_ids)},
    )
    return {job_id.hex for job_id in stored.values}


def stored_keys(
    read: Read, trace_ids: Collection[str], keys: Sequence[str], first: datetime, last: datetime
) -> dict[str, bool]:
    """Return those of the keys under which a final score of these traces, requested between two times, is stored.

    The value tells whether there is a verdict: an `invalid` reply is final for the rule, and none.
    """
    stored = read(
        "SELECT score_key, bool_or(status <> 'invalid') FROM raw.scores WHERE trace_id IN (SELECT unnest($ids::UUID[]))"
        " AND request_time BETWEEN $first AND $last AND score_key IN (SELECT unnest($keys::VARCHAR[]))"
        " AND status IN ('ok', 'invalid', 'skipped') GROUP BY score_key",
        {"ids": sorted(trace_ids), "keys": list(keys), "first": first, "last": last},
    )
    return dict(stored.rows)


_COLUMNS = ("job_id", "trace_id", "span_id", "request_time", "evaluator", "run_id", "source", "u", "rule", "created_at")


def add_replay_jobs(
    tx: Transaction,
    run_id: str,
    evaluator: str,
    units: Sequence[tuple[UUID, int, datetime | None, float | None]],
    *,
    source: Literal["replay", "check"] = "replay",
) -> None:
    """Append one job of a run for each unit, given as trace id, span id, request time (None: of no time) and u."""
    rows = [
        (_replay_job_id(run_id, trace.hex, span), trace, span, time, evaluator, run_id, source, u, None, tx.at)
        for trace, span, time, u in units
    ]
    if rows:
        tx.append("eval_jobs", _COLUMNS, rows)


def _replay_job_id(run_id: str, trace_id: str, span_id: int) -> str:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}/{trace_id}/{span_id:016x}").hex


class ScoreRow(NamedTuple):
    """A row of `raw.scores`."""

    score_key: str
    job_id: bytes
    trace_id: bytes
    span_id: bytes
    request_time: datetime | None
    evaluator: str
    version: str
    label_version: str | None
    judge: str | None
    source: Literal["online", "replay", "check"]
    status: str
    score: float | None
    normalized: float | None
    passing: bool | None
    label: str | None
    explanation: str | None
    parts: str | None
    """JSON."""
    ci_lo: float | None
    ci_hi: float | None
    calls: str | None
    """JSON."""
    cost_usd: float | None
    elapsed_ms: float | None
    attempt: int
    created_at: datetime
    run_id: str | None


class ItemRow(NamedTuple):
    """A row of `raw.run_items`: the score that meets a job; run None: an online job that reuses an earlier score."""

    run_id: str | None
    score_key: str
    trace_id: bytes
    span_id: bytes
    u: float | None
    job_id: bytes
    reused: bool


def add_results(tx: Transaction, scores: Sequence[ScoreRow], items: Sequence[ItemRow]) -> None:
    """Append scores, and the items that say which score meets which job."""
    if scores:
        tx.append("scores", ScoreRow._fields, scores)
    if items:
        tx.append("run_items", ItemRow._fields, items)


def drop(tx: Transaction, trace_id: str, span_id: int, evaluator: str) -> None:
    """Append the decision that the budget left this selected unit out: same pi, same u, reason `budget`."""
    condition = "trace_id = $trace::UUID AND span_id = $span AND evaluator = $name"
    unit = {"trace": trace_id, "span": span_id, "name": evaluator}
    tx.execute(
        "INSERT INTO raw.decisions (trace_id, span_id, request_time, evaluator, rule, policy, pi, u, sampled, reason,"
        " decided_at, revision, latest) SELECT trace_id, span_id, request_time, evaluator, rule, policy, pi, u, false,"
        f" 'budget', $now::TIMESTAMP, revision + 1, NULL FROM raw.decisions WHERE latest AND {condition}",
        unit | {"now": tx.at},
    )
    tx.execute(
        f"UPDATE raw.decisions SET latest = latest IS NULL WHERE (latest OR latest IS NULL) AND {condition}", unit
    )


HELD_BACK = 0.1
"""Share of the day's budget that is released evenly over the day: a burst cannot spend it."""
Entry = tuple[date, str, str, str | None, str | None, Literal["reserve", "release", "spend"], float]
"""Day, evaluator, job id, run id, rule, kind, USD."""
_LEDGER = ("entry_id", "day", "evaluator", "job_id", "run_id", "rule", "kind", "usd", "created_at")


def spent_usd(
    read: Read, *, day: date | datetime | None = None, run_id: str | None = None, rule: str | None = None,
    since: date | None = None, until: date | None = None,
) -> float:  # fmt: skip
    """Return USD spent or reserved by a replay, or online on a UTC day or some, by one rule or by all."""
    sql = (
        "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE run_id IS NOT DISTINCT FROM $run"
        " AND ($day IS NULL OR day = $day::DATE) AND ($rule IS NULL OR rule = $rule)"
        " AND ($since IS NULL OR day >= $since::DATE) AND ($until IS NULL OR day < $until::DATE)"
    )
    return float(read(sql, {"run": run_id, "day": day, "rule": rule, "since": since, "until": until}).value)


def add_entries(tx: Transaction, entries: Iterable[Entry], *, at: datetime) -> None:
    """Append entries; their sum is what is spent or reserved."""
    tx.append("ledger", _LEDGER, [(uuid.uuid4().hex, *entry, at) for entry in entries])


class Held(NamedTuple):
    """What attempts at a job reserved and did not settle."""

    release: Entry
    """The entry that releases it."""
    attempts: int


def reserved(read: Read) -> dict[str, list[Held]]:
    """Return by job id what is reserved and not settled."""
    rows = read(
        "SELECT day, evaluator, job_id, run_id, rule, 'release', -sum(usd),"
        " greatest(1, count(*) FILTER (WHERE kind = 'reserve') - count(*) FILTER (WHERE kind = 'release'))"
        " FROM raw.ledger WHERE kind <> 'spend'"
        " GROUP BY day, evaluator, job_id, run_id, rule HAVING sum(usd) > 1e-9"
    ).rows
    found: dict[str, list[Held]] = {}
    for day, evaluator, job_id, run_id, rule, kind, usd, attempts in rows:
        release = (day, evaluator, job_id.hex, run_id, rule, kind, usd)
        found.setdefault(job_id.hex, []).append(Held(release, attempts))
    return found


def dearest(read: Read) -> dict[tuple[str, str | None], float]:
    """Return the most USD that an attempt has cost, by evaluator and replay (None: online)."""
    sql = "SELECT evaluator, run_id, max(usd) FROM raw.ledger WHERE kind = 'spend' AND usd > 0 GROUP BY ALL"
    return {(evaluator, run_id): usd for evaluator, run_id, usd in read(sql).rows}


def reply_tokens(read: Read, evaluator: str, judge: str | None) -> tuple[float, float] | None:
    """Return mean and tenth percentile of the tokens of a judge's newest replies, None where no length is known.

    Replies to this evaluator count alone where there are any.
    """
    rows = read(
        "WITH made AS (SELECT evaluator = $name AS own, unnest(json_extract(calls, '$[*].output_tokens'))::BIGINT AS n"
        "   FROM (SELECT * FROM raw.scores WHERE judge = $judge AND calls IS NOT NULL"
        "     ORDER BY evaluator = $name DESC, created_at DESC LIMIT 1000))"
        " SELECT avg(n), quantile_cont(n, 0.1) FROM made WHERE n > 0 GROUP BY own ORDER BY own DESC LIMIT 1",
        {"name": evaluator, "judge": judge},
    ).rows
    return (float(rows[0][0]), float(rows[0][1])) if rows else None


def selected_usd(read: Read, since: datetime, until: datetime) -> dict[str, float]:
    """Return USD that the units selected between two instants will cost, by evaluator."""
    rows = read(
        "SELECT evaluator, avg(usd) FROM raw.ledger WHERE kind = 'spend'"
        " AND created_at > $now::TIMESTAMP - INTERVAL 2 DAY GROUP BY 1 HAVING avg(usd) > 0",
        {"now": until},
    ).rows
    units = selected_units(read, since, until, [name for name, _ in rows])
    return {name: units[name] * usd for name, usd in rows if name in units}


def selected_units(read: Read, since: datetime, until: datetime, names: Sequence[str]) -> dict[str, float]:
    """Return how many units were selected between two instants, by evaluator: the sum of pi.

    For a unit decided once more it is what its pi rose by.
    """
    rows = read(
        "WITH fresh AS (SELECT * FROM raw.decisions WHERE list_contains($names::VARCHAR[], evaluator)"
        "   AND decided_at > $since AND decided_at <= $now)"
        " SELECT f.evaluator, sum(f.pi - coalesce(b.pi, 0)) FROM fresh f"
        " LEFT JOIN (SELECT * FROM raw.decisions"
        "   WHERE request_time >= (SELECT min(request_time) FROM fresh WHERE revision > 0)) b"
        " ON b.trace_id = f.trace_id AND b.span_id = f.span_id AND b.evaluator = f.evaluator"
        "   AND b.revision = f.revision - 1 GROUP BY 1",
        {"names": list(names), "since": since, "now": until},
    ).rows
    return dict(rows)


def replies(read: Read, keys: Sequence[str]) -> dict[str, str]:
    """Return the last recorded reply under each key that has one."""
    sql = (
        "SELECT key, arg_max(reply, created_at) FROM raw.judge_calls"
        " WHERE key IN (SELECT unnest($keys::VARCHAR[])) GROUP BY key"
    )
    return dict(read(sql, {"keys": list(keys)}).rows)


def remove_calls(tx: Transaction, prompts: Sequence[str]) -> None:
    """Delete the recorded calls with these prompts."""
    if prompts:
        prompt = "(reply->>'$.prompt')"
        tx.execute(f"DELETE FROM raw.judge_calls WHERE {prompt} IN (SELECT unnest($prompts::VARCHAR[]))",
                   {"prompts": list(prompts)})  # fmt: skip


def add_calls(tx: Transaction, calls: Sequence[tuple[str, str, str]]) -> None:
    """Append replies, each given as key, judge and reply."""
    tx.append("judge_calls", ("key", "judge", "reply", "created_at"), [(*call, tx.at) for call in calls])
