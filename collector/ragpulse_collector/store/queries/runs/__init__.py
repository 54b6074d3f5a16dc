"""Runs: each change of state appends a row to `raw.runs`; the latest row of a run is its present state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter

from ragpulse_collector.store.protocol import Parameters, Read, Store, Transaction
from ragpulse_collector.store.queries.jobs import OPEN_RUN, unfinished


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the caller of a client-side replay states about its evaluator."""

    __pydantic_config__ = ConfigDict(extra="ignore")  # as a parameter too: numbers are no names
    evaluator: str
    version: str
    judge: str | None = None
    label: str = "1"
    needs: tuple[str, ...] = ()
    """Fields of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """The request of a replay, as `raw.runs` holds it, and how many units match."""

    judge: str | None = None
    prompts: str | None = None
    loads: tuple[str, ...] = ()
    where: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    matching: int | None = None
    dataset: str | None = None
    """The dataset whose frozen answers are judged, in place of stored traces."""
    labelled: bool = False
    """Whether the labelled answers of this package are judged, in place of stored traces."""
    external: Declaration | None = None
    """The evaluator if the caller evaluates; the open status is then `external`."""
    sent: bool = False
    """Whether the caller ran it and sent the report: it has no jobs."""

    @property
    def is_frozen(self) -> bool:
        """Whether its cases do not come from stored traces."""
        return self.labelled or self.dataset is not None


_SPECS = TypeAdapter(ReplaySpec)


@dataclass(frozen=True, slots=True)
class Run:
    """The latest row of one run."""

    run_id: str
    evaluator: str
    """As requested: a name, or NAME@VERSION."""
    version: str
    judge: str | None
    """Its id as the scores show it."""
    status: str
    total: int
    max_usd: float | None
    error: str | None
    created_at: datetime
    in_use: bool
    """Whether lists, charts and figures read its scores; else it is exploratory."""
    spec: ReplaySpec
    kind: Literal["check"] | None = None
    """`check`: it tests a judge, and nothing else reads its scores; None: a replay."""
    started_at: datetime | None = None
    """When its first row was made; that of `created_at` is its last."""

    @property
    def purpose(self) -> Literal["live", "exploratory", "check"]:
        """Who reads its scores: lists and figures, nobody but its result, or the check of a judge."""
        return self.kind or ("live" if self.in_use else "exploratory")


_COLUMNS = ("run_id", "evaluator", "version", "judge", "status", "total", "max_usd", "error", "created_at", "in_use",
            "spec", "kind")  # fmt: skip
LABELLED = "faithfulness, pairwise"
"""What a check of a judge on labelled answers evaluates, as the evaluator of its run."""
ENDED = ("done", "cancelled", "capped", "failed")
"""The states of a replay that nothing evaluates now."""
DELETED = "deleted"
"""The status of a replay that is gone: its row stays, so that a result that arrives late does not count."""


def latest_runs(
    store: Store, *, status: str | None = None, run_id: str | None = None, checks: bool | None = None
) -> dict[str, Run]:
    """Return the runs by id, newest first; with `status` or `run_id` only those, with `checks` only (no) checks."""
    rows = store.read(
        f"SELECT {', '.join(_COLUMNS)}, min(created_at) OVER (PARTITION BY run_id)"
        " FROM (SELECT * REPLACE (coalesce(in_use, true) AS in_use) FROM raw.runs)"
        " QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY created_at DESC) = 1"
        f" AND status <> '{DELETED}' AND ($status IS NULL OR status = $status) AND ($run IS NULL OR run_id = $run)"
        " AND ($checks IS NULL OR (kind IS NOT NULL) = $checks) ORDER BY created_at DESC",
        {"status": status, "run": run_id, "checks": checks},
    ).rows
    return {run.run_id: replace(run, spec=_spec(cast(Any, run.spec))) for run in (Run(*row) for row in rows)}


def _spec(text: str | None) -> ReplaySpec:
    return _SPECS.validate_json(text or "{}")


def set_status(
    tx: Transaction,
    run_id: str,
    status: str,
    *,
    error: str | None = None,
    max_usd: float | None = None,
    only_from: tuple[str, ...] = ("running",),
) -> None:
    """Append the next state of a replay: its latest row with another status, if its status is in `only_from`."""
    tx.execute(
        "INSERT INTO raw.runs BY NAME SELECT * REPLACE ($status AS status, $error AS error, $now::TIMESTAMP AS"
        f" created_at, coalesce($max_usd, max_usd) AS max_usd, in_use AND $status <> '{DELETED}' AS in_use)"
        " FROM (SELECT * FROM raw.runs r WHERE r.run_id = $run ORDER BY r.created_at DESC LIMIT 1)"
        " WHERE status IN (SELECT unnest($before::VARCHAR[]))",
        {"status": status, "error": error, "now": tx.at, "run": run_id, "before": list(only_from), "max_usd": max_usd},
    )


def set_in_use(tx: Transaction, run_id: str, *, in_use: bool) -> None:
    """Append the next state of a replay: in use, or exploratory."""
    tx.execute(
        "INSERT INTO raw.runs BY NAME SELECT * REPLACE ($in_use AS in_use, $now::TIMESTAMP AS created_at)"
        " FROM raw.runs r WHERE r.run_id = $run ORDER BY r.created_at DESC LIMIT 1",
        {"run": run_id, "in_use": in_use, "now": tx.at},
    )
    keep_for_others(tx, run_id)


def keep_for_others(tx: Transaction, run_id: str) -> None:
    """Mark the items of versions before 12 that share a score of this replay: it counts for them, whatever it does."""
    tx.execute(
        "UPDATE raw.run_items SET reused = true WHERE reused IS NULL AND run_id <> $run"
        " AND score_key IN (SELECT score_key FROM raw.scores WHERE run_id = $run)",
        {"run": run_id},
    )


def put_in_use(read: Read, evaluator: str) -> set[tuple[str, str | None]]:
    """Return versions and judges of an evaluator of which an exploratory replay was put in use."""
    rows = read(
        "SELECT version, judge FROM raw.runs WHERE split_part(evaluator, '@', 1) = $name"
        " GROUP BY run_id, version, judge HAVING bool_or(NOT in_use) AND arg_max(in_use, created_at)",
        {"name": evaluator},
    ).rows
    return set(rows)


def close_finished(store: Store) -> list[str]:
    """Mark the running replays whose every job is finished (or a dead letter) as done; returns their ids."""
    running = latest_runs(store, status="running")
    if not running:
        return []
    of_runs = "run_id IN (SELECT unnest($ids::VARCHAR[]))"
    done = store.read(
        "SELECT unnest($ids::VARCHAR[]) EXCEPT"
        f" SELECT run_id FROM ({unfinished(of_runs, scores=of_runs, decisions='false')})",
        {"ids": list(running)},
    ).values

    def work(tx: Transaction) -> None:
        for run_id in done:
            set_status(tx, run_id, "done")

    if done:
        store.write(work).result()
    return done


_NOT_DONE = "run_id IN (SELECT run_id FROM runs WHERE status <> 'done')"
_OPEN_JOBS = unfinished(_NOT_DONE, scores=_NOT_DONE, decisions="false")


@dataclass(frozen=True, slots=True)
class Share:
    """The finished part of a replay, in order of u: a random sample with this probability."""

    run_id: str
    pi: float
    below: float
    """Only units with a smaller u belong to the sample: beyond the first gap quick answers are more likely."""
    where: str | None
    """The condition on its traces; None: all of its time range."""
    version: str


def shares(store: Store, evaluator: str | None, *, exploratory: bool = False) -> list[Share]:
    """Return the finished share of each replay in use of an evaluator (None: of any), or also of `exploratory` ones."""
    if not store.read("SELECT 1 FROM raw.runs LIMIT 1").rows:
        return []
    rows = store.read(
        "WITH runs AS (SELECT a.run_id, arg_max(a.spec, a.created_at) AS spec, arg_max(a.total, a.created_at) AS total,"
        "   any_value(a.version) AS version,"
        "   arg_max(a.status, a.created_at) AS status FROM raw.runs a"
        "   WHERE $name::VARCHAR IS NULL OR a.evaluator = $name OR a.evaluator LIKE $name || '@%' GROUP BY a.run_id"
        "   HAVING $exploratory OR coalesce(arg_max(a.in_use, a.created_at), true)),"
        f" open AS (SELECT j.run_id, min(j.u) AS u FROM ({_OPEN_JOBS}) j GROUP BY j.run_id)"
        " SELECT r.run_id, r.spec, r.total, r.version, o.u,"
        "   (SELECT count(*) FROM raw.run_items i WHERE i.run_id = r.run_id AND i.u < o.u) FROM runs r"
        " LEFT JOIN open o ON o.run_id = r.run_id",
        {"name": evaluator, "exploratory": exploratory},
    ).rows
    result = []
    for run_id, spec, total, version, first_open, done in rows:
        spec = _spec(spec)
        matching = spec.matching or total
        finished = total if first_open is None else done
        if finished and matching:
            below = 2.0 if first_open is None else first_open
            result.append(Share(run_id, min(1.0, finished / matching), below, spec.where, version))
    return result


def add_run(tx: Transaction, run: Run) -> None:
    """Append a new run, or the next state of one."""
    spec = _SPECS.dump_json(run.spec, exclude_none=True).decode()
    tx.append("runs", _COLUMNS, [tuple(spec if name == "spec" else getattr(run, name) for name in _COLUMNS)])


def add_report(tx: Transaction, run_id: str, report: str) -> None:
    """Append the report (JSON) of a run that is done."""
    tx.execute(
        "INSERT INTO raw.runs BY NAME SELECT * REPLACE ($report AS result, $now::TIMESTAMP AS created_at)"
        " FROM raw.runs r WHERE r.run_id = $run ORDER BY r.created_at DESC LIMIT 1",
        {"run": run_id, "report": report, "now": tx.at},
    )


def reports(read: Read, run_ids: Collection[str]) -> dict[str, str]:
    """Return the report (JSON) of each of the runs that has one."""
    rows = read(
        "SELECT run_id, arg_max(result, created_at) FROM raw.runs WHERE result IS NOT NULL"
        " AND run_id IN (SELECT unnest($ids::VARCHAR[])) GROUP BY run_id",
        {"ids": list(run_ids)},
    ).rows
    return dict(rows)


def last_results(read: Read, run_id: str) -> dict[tuple[UUID, int], str]:
    """Return the last result of each unit of a run, as JSON."""
    rows = read(
        "SELECT trace_id, span_id, json_object('status', status, 'passing', passing, 'explanation', explanation,"
        " 'parts', coalesce(parts, '{}')::JSON, 'calls', coalesce(calls, '[]')::JSON)"
        " FROM raw.scores WHERE run_id = $run"
        " QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY created_at DESC, attempt DESC) = 1",
        {"run": run_id},
    ).rows
    return {(trace_id, span_id): result for trace_id, span_id, result in rows}


class ReplayUnit(NamedTuple):
    """A unit that a replay would score."""

    trace_id: UUID
    span_id: int
    request_time: datetime
    u: float | None
    """None without a decision."""


def units_to_replay(read: Read, condition: str, parameters: Parameters) -> list[ReplayUnit]:
    """Return the units between `$first` and `$last` that meet the condition.

    Of a trace with several units these are the decided ones.
    """
    return read(
        "WITH f AS (SELECT * FROM raw.trace_facts WHERE latest AND unit_span_id IS NOT NULL"
        f"   AND start_time >= $first AND start_time < $last AND {condition}),"
        " d AS (SELECT DISTINCT trace_id, span_id, request_time, u FROM raw.decisions WHERE latest"
        "   AND reason <> 'late' AND request_time >= $first)"
        " SELECT f.trace_id, coalesce(d.span_id, f.unit_span_id), coalesce(d.request_time, f.start_time), d.u"
        " FROM f LEFT JOIN d ON d.trace_id = f.trace_id",
        parameters,
    ).tuples(ReplayUnit)


def checked_values(read: Read, run_id: str) -> dict[tuple[str, str], float | None]:
    """Return what a run of frozen answers found, by trace and span; None where it failed."""
    rows = read(
        "SELECT trace_id, span_id, arg_max(CASE WHEN status = 'ok' THEN normalized END, created_at) FROM raw.scores"
        " WHERE run_id = $run GROUP BY ALL",
        {"run": run_id},
    ).rows
    return {(trace.hex, f"{span:016x}"): value for trace, span, value in rows}


def units_scored(read: Read, evaluator: str, version: str, judge: str | None, units: Sequence[ReplayUnit]) -> int:
    """Count those of the units that have a verdict of this evaluator, version and judge."""
    scored = read(
        "SELECT count(DISTINCT (trace_id, span_id)) FROM raw.scores WHERE evaluator = $name AND version = $version"
        " AND judge IS NOT DISTINCT FROM $judge AND status IN ('ok', 'skipped') AND source <> 'check'"
        " AND (trace_id, span_id) IN (SELECT (unnest($traces::UUID[]), unnest($spans::UBIGINT[])))",
        {
            "name": evaluator,
            "version": version,
            "judge": judge,
            "traces": [unit.trace_id for unit in units],
            "spans": [unit.span_id for unit in units],
        },
    )
    return int(scored.value)


class Finished(NamedTuple):
    """The finished units of a run with one status, and the scores that it made for them."""

    run_id: str
    status: str
    n: int
    cost_usd: float | None
    unpriced: bool
    """Whether the price of any is unknown."""
    going_since: datetime | None
    """When it was started or continued last."""
    recent: int
    """Scores since then: results that are stored together have one time, so the rate is that of the whole stretch."""
    last: datetime | None


def progress(read: Read, run_ids: Collection[str]) -> dict[str, list[Finished]]:
    """Return the finished units of each run, by status."""
    rows = read(
        "WITH ids AS (SELECT unnest($ids::VARCHAR[]) AS run_id),"
        f" going AS (SELECT run_id, max(created_at) FILTER (status IN {OPEN_RUN}) AS since FROM raw.runs"
        "   WHERE run_id IN (FROM ids) GROUP BY run_id),"
        " items AS (SELECT DISTINCT run_id, job_id, score_key FROM raw.run_items WHERE run_id IN (FROM ids)),"
        " verdicts AS (SELECT score_key, arg_max(status, created_at) AS status FROM raw.scores"
        "   WHERE score_key IN (SELECT score_key FROM items) GROUP BY score_key),"
        " own AS (SELECT run_id, score_key, sum(cost_usd) AS cost, bool_or(cost_usd IS NULL) AS unknown,"
        "   max(created_at) AS last FROM raw.scores WHERE run_id IN (FROM ids) GROUP BY ALL)"
        " SELECT i.run_id, v.status, count(*), sum(o.cost), coalesce(bool_or(o.unknown), false), g.since,"
        "   count(*) FILTER (o.last > g.since), max(o.last)"
        " FROM items i JOIN verdicts v ON v.score_key = i.score_key JOIN going g ON g.run_id = i.run_id"
        " LEFT JOIN own o ON o.run_id = i.run_id AND o.score_key = i.score_key GROUP BY i.run_id, v.status, g.since",
        {"ids": list(run_ids)},
    ).tuples(Finished)
    found: dict[str, list[Finished]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        found[row.run_id].append(row)
    return found
