"""Retention: deletes rows by age, by the size of the store, by service, and all that is stored of a user.

New rows use the space of deleted ones; the file itself does not shrink (`vacuum` rewrites a closed file).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import duckdb
import orjson

from ragpulse_collector.store.connection import first_line, literal, open_file
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.protocol import Store, StoreError, Transaction
from ragpulse_collector.store.queries.forgotten import remember
from ragpulse_collector.store.queries.jobs import OPEN_RUN
from ragpulse_collector.store.queries.runs import DELETED, ENDED, keep_for_others, set_status
from ragpulse_collector.store.queries.scores import REMEMBER_EVALUATORS
from ragpulse_collector.store.reading import outbox_folder
from ragpulse_collector.store.schema import LONG_TEXTS, TABLES, TIME_COLUMNS, file_columns

_TRACE_TABLES = tuple(sorted((name for name, held in TABLES.items() if "trace_id UUID" in held), key="spans".__eq__))
"""The tables whose rows belong to a trace; `spans` last, which the conditions read."""
_OF_SERVICE = "trace_id IN (SELECT trace_id FROM raw.spans WHERE service = $service AND start_time < $before)"
_OLD_REPORTS = "result IS NOT NULL AND created_at < $before AND spec->>'$.dataset' IS NOT NULL"
"""Comparisons that callers sent: they quote traces. The checks of judges do not."""
_OLD_CHECKS = f"""run_id IN (
    SELECT run_id FROM (
        SELECT run_id, max(created_at) AS last, arg_max(status, created_at) AS status FROM raw.runs
        WHERE kind = 'check' AND run_id NOT IN (
            SELECT arg_max(run_id, created_at) FROM raw.runs WHERE kind = 'check'
            GROUP BY evaluator, judge, spec->>'$.dataset')
        GROUP BY run_id)
    WHERE last < $before AND status NOT IN {OPEN_RUN})"""
"""Ended checks of judges, whose rows have no request; the newest over each set stays: it says how the judge is now."""
_NO_REPORT = "run_id NOT IN (SELECT run_id FROM raw.runs WHERE result IS NOT NULL)"
_QUOTING = "EXISTS (SELECT 1 FROM (SELECT unnest($traces::VARCHAR[]) AS id) t WHERE contains(result, t.id))"
_AIM = 0.95
"""Retention by size aims at this share of the limit; at least 90 % of the limit stay."""
Reason = dict[str, object]
"""The reason of a deletion in the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The result of a deletion, or of its dry run."""

    cutoff: datetime | None
    """Rows of requests before this time are deleted; None: the deletion has no limit of time."""
    rows: dict[str, int]
    """Deleted rows by table, without tables that lost none."""


def prune(
    store: Store, *, older_than: datetime, dry_run: bool = False, actor: str = "retention", reason: Reason | None = None
) -> Pruned:
    """Delete the rows of requests before `older_than`.

    The age of a row is that of its request, never that of an evaluation; where there is none, that of its run. The
    audit gets one row with the `reason`.
    """
    conditions = {table: f"{column} < $before" for table, column in TIME_COLUMNS.items()}
    conditions |= {table: f"{conditions[table]} OR {_OLD_CHECKS}" for table in ("eval_jobs", "scores")}
    conditions |= {"run_items": _OLD_CHECKS, "runs": f"({_OLD_REPORTS}) OR ({_OLD_CHECKS} AND {_NO_REPORT})"}
    detail: Reason = {"reason": "age", **(reason or {}), "before": str(older_than)}
    counts = _removed(store, conditions, {"before": older_than}, detail, dry_run=dry_run, actor=actor)
    return Pruned(cutoff=older_than, rows=counts)


def prune_to_size(store: Store, max_bytes: int, *, actor: str = "retention") -> list[Pruned]:
    """Delete the oldest rows until the rest takes at most `max_bytes`; returns the result of each step.

    Each step removes half of the excess and measures again, so that at least nine tenths of the limit stay, even if old
    texts are twice as long as new ones.
    """
    steps: list[Pruned] = []
    while (used := store.used_bytes()) > max_bytes:
        share = (1.0 - _AIM * max_bytes / used) / 2
        cutoff = store.read("SELECT quantile_disc(start_time, ?::DOUBLE) FROM raw.spans", [share]).value
        if cutoff is None:
            break
        reason: Reason = {"reason": "size", "used_bytes": used, "max_bytes": max_bytes}
        done = prune(store, older_than=cutoff, actor=actor, reason=reason)
        if not done.rows:
            break
        steps.append(done)
    return steps


def prune_service(
    store: Store, service: str, *, older_than: datetime | None = None, dry_run: bool = False, actor: str = "retention"
) -> Pruned:
    """Delete every trace with a span of a service, and all that belongs to it; the audit gets one row.

    With `older_than` only traces with such a span before that time. Rows that belong to no trace stay until their time:
    recorded judge replies, money spent.
    """
    parameters = {"service": service, "before": older_than or datetime.max}
    age = {} if older_than is None else {"reason": "age", "before": str(older_than)}
    conditions = dict.fromkeys(_TRACE_TABLES, _OF_SERVICE)
    counts = _removed(store, conditions, parameters, {"service": service, **age}, dry_run=dry_run, actor=actor)
    return Pruned(cutoff=older_than, rows=counts)


def _removed(
    store: Store,
    conditions: Mapping[str, str],
    parameters: Mapping[str, Any],
    detail: Reason,
    *,
    dry_run: bool,
    actor: str,
) -> dict[str, int]:
    """Delete the rows that meet the condition of their table, one table after another; returns their numbers."""
    sql = "SELECT count(*) FROM raw.{} WHERE {}"
    all_counts = {name: store.read(sql.format(name, where), parameters).value for name, where in conditions.items()}
    counts = {name: int(count) for name, count in all_counts.items() if count}
    if counts and not dry_run:
        for name in counts:
            store.write(partial(_deleted, table=name, where=conditions[name], parameters=parameters)).result()
        store.write(partial(audit, actor=actor, action="prune", detail={**detail, **counts})).result()
    return counts


Subject = Literal["user", "session", "trace"]
"""Whose traces are deleted: a user's, a session's, or one."""
_SUBJECTS = {"user": "user_id = $id", "session": "session_id = $id", "trace": "trace_id = $id::UUID"}
_MIN_LENGTH = 8
"""Shorter questions and answers occur in the prompts about other traces, too."""
_FORGOTTEN = """
    CREATE OR REPLACE TEMP TABLE forgotten AS
    SELECT trace_id FROM raw.spans WHERE {condition} UNION SELECT trace_id FROM raw.trace_facts WHERE {condition}"""
_SESSIONS = """
    SELECT session_id FROM raw.spans WHERE trace_id IN (FROM forgotten)
    UNION SELECT session_id FROM raw.trace_facts WHERE trace_id IN (FROM forgotten)"""
_RELATED = f"""
    CREATE OR REPLACE TEMP TABLE related AS
    SELECT trace_id FROM raw.spans WHERE session_id IN ({_SESSIONS})
    UNION SELECT trace_id FROM raw.trace_facts WHERE session_id IN ({_SESSIONS}) UNION FROM forgotten"""
_JUDGE_CALLS = f"""
    SELECT key FROM raw.judge_calls WHERE (reply->>'$.prompt') IN (
        SELECT unnest(from_json(calls, '[{{"prompt": "VARCHAR"}}]')).prompt FROM raw.scores
        WHERE trace_id IN (FROM related) AND calls IS NOT NULL)
    UNION
    SELECT j.key FROM raw.judge_calls j JOIN (
        SELECT DISTINCT unnest([query, response]) AS text FROM raw.contents WHERE trace_id IN (FROM forgotten)) t
      ON length(t.text) >= {_MIN_LENGTH} AND contains((j.reply->>'$.prompt'), t.text)"""
_FEEDBACK = """trace_id IS NULL AND response_id IN (
    SELECT response_id FROM raw.spans WHERE trace_id IN (FROM forgotten) AND response_id IS NOT NULL)"""
Forget = Callable[[Transaction, Sequence[str]], int]
"""Deletes what else is stored of traces (ids as hex text); returns the number of rows."""


def forget(
    store: Store, subject: Subject, identity: str, *, also: Mapping[str, Forget], dry_run: bool = False, actor: str
) -> dict[str, int]:
    """Delete the traces of a user, a session or one trace, and all that is stored of them; returns rows by table.

    A user's traces include the other turns of the user's sessions. If only some turns of a session are deleted, the
    others lose their recorded prompts, which quote the deleted ones. Digests of the ids stay, so that feedback which
    arrives later is not stored. The audit names neither the subject nor a trace.
    """

    def work(transaction: Transaction) -> dict[str, int]:
        counts = _forget(transaction, subject, identity, also)
        if dry_run:
            raise _DryRun(counts)
        if counts:
            audit(transaction, actor=actor, action="prune", detail={"reason": subject, **counts})
        return counts

    try:
        return store.write(work).result()
    except _DryRun as end:
        return end.counts


class _DryRun(Exception):
    """Rolls back a deletion that was only counted."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__("nothing is deleted")
        self.counts = counts


_DATASET_ITEMS = "json_extract_string(item, '$.trace_id') IN (SELECT unnest($traces::VARCHAR[]))"


def _forget(
    transaction: Transaction, subject: Subject, identity: str, removers: Mapping[str, Forget]
) -> dict[str, int]:
    run = transaction.execute
    run(_FORGOTTEN.format(condition=_SUBJECTS[subject]), {"id": identity})
    run(_RELATED)
    if subject == "user":
        run("CREATE OR REPLACE TEMP TABLE forgotten AS FROM related")
    keys = run(_JUDGE_CALLS).values
    related = [trace_id.hex for trace_id in run("FROM related").values]
    counted = {
        "judge_calls": _deleted(transaction, "judge_calls", "key IN (SELECT unnest($keys::VARCHAR[]))", {"keys": keys}),
        "feedback": _deleted(transaction, "feedback", _FEEDBACK),
        "datasets": _deleted(transaction, "datasets", _DATASET_ITEMS, {"traces": related}),
        "runs": _deleted(transaction, "runs", _QUOTING, {"traces": related}),
        **{name: remove(transaction, related) for name, remove in removers.items()},
    }
    remember(transaction)
    for table in _TRACE_TABLES:
        counted[table] = counted.get(table, 0) + _deleted(transaction, table, "trace_id IN (FROM forgotten)")
    run("UPDATE raw.scores SET calls = NULL WHERE trace_id IN (FROM related) AND calls IS NOT NULL")
    return {table: count for table, count in counted.items() if count}


def _deleted(transaction: Transaction, table: str, where: str, parameters: Mapping[str, Any] | None = None) -> int:
    count = int(transaction.execute(f"SELECT count(*) FROM raw.{table} WHERE {where}", parameters or ()).value)
    if count:
        if table == "scores":
            transaction.execute(REMEMBER_EVALUATORS.format(where=where), parameters or ())
        transaction.execute(f"DELETE FROM raw.{table} WHERE {where}", parameters or ())
    return count


_OF_RUN = {
    "scores": "run_id = $run AND score_key NOT IN"
    " (SELECT score_key FROM raw.run_items WHERE run_id IS NULL OR run_id <> $run)",
    "run_items": "run_id = $run",
    "eval_jobs": "run_id = $run",
}


def delete_run(store: Store, run_id: str, *, actor: str) -> dict[str, int]:
    """Delete a replay that ended; scores stay that another replay or an online evaluation uses, and what was spent."""

    def work(transaction: Transaction) -> dict[str, int]:
        keep_for_others(transaction, run_id)
        counts = {table: _deleted(transaction, table, where, {"run": run_id}) for table, where in _OF_RUN.items()}
        set_status(transaction, run_id, DELETED, only_from=ENDED)
        audit(transaction, actor=actor, action="delete replay", detail={"replay": run_id, **counts})
        return counts

    return store.write(work).result()


def audit(transaction: Transaction, *, actor: str, action: str, detail: dict[str, object]) -> None:
    """Add a row to the audit: who deleted or changed what."""
    text = orjson.dumps(detail, default=str).decode()
    transaction.append("audit", ("created_at", "actor", "action", "detail"), [(transaction.at, actor, action, text)])


def vacuum(path: Path) -> tuple[int, int]:
    """Rewrite a closed file without its free space; returns bytes before (log included) and after.

    Raises StoreError when the file is in use.
    """
    bytes_before = path.stat().st_size + log_bytes(path)
    copy = outbox_folder(path).with_suffix(".vacuum")
    copy.unlink(missing_ok=True)
    # Several threads would leave groups half full, which only a second pass would put together.
    connection = open_file(path, {"threads": 1})
    try:
        source = connection.execute("SELECT current_catalog()").fetchall()[0][0]
        connection.execute(f"ATTACH {literal(copy)} AS vacuumed")
        connection.execute(f'COPY FROM DATABASE "{source}" TO vacuumed (SCHEMA)')
        for table in LONG_TEXTS:  # a file of an older version has them uncompressed
            columns = connection.execute(f"SELECT name, type FROM pragma_table_info('raw.{table}')").fetchall()
            connection.execute(f"CREATE OR REPLACE TABLE vacuumed.raw.{table} ({file_columns(table, dict(columns))})")
        connection.execute(f'COPY FROM DATABASE "{source}" TO vacuumed (DATA)')
        connection.execute("DETACH vacuumed")
    except duckdb.Error as error:
        copy.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be rewritten: {first_line(error)}") from error
    finally:
        connection.close()
    shutil.copymode(path, copy)
    copy.replace(path)
    return bytes_before, path.stat().st_size
