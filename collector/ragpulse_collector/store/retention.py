"""Retention: what is older than its time or beyond the store's size goes, and a service when somebody says so.

Deleted space is used again by what comes; the file itself does not shrink (`vacuum` on a closed file does that).
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
from ragpulse_collector.store.reading import outbox_folder
from ragpulse_collector.store.schema import LONG_TEXTS, TABLES, TIME_COLUMNS, in_file

_OF_TRACES = tuple(sorted((name for name, held in TABLES.items() if "trace_id UUID" in held), key="spans".__eq__))
"""The tables whose rows belong to a trace; `spans`, which say whose a trace is, last."""
_TOOK_PART = "trace_id IN (SELECT trace_id FROM raw.spans WHERE service = $service AND start_time < $before)"
_AIM = 0.95
"""Size retention aims at this share of the limit: between the limit and the 90 % that always stay."""
Reason = dict[str, object]
"""Why something was deleted, as the audit states it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a clean-up removed, or would remove."""

    cutoff: datetime | None
    """Rows of requests before it went; None: nothing had to."""
    rows: dict[str, int]
    """Rows by table, only tables that lost some."""


def prune(
    store: Store, *, older_than: datetime, dry_run: bool = False, actor: str = "retention", reason: Reason | None = None
) -> Pruned:
    """Delete the rows of requests before `older_than`.

    Rows age by the time of their request, never by the time of an evaluation. The deletion is one row in the audit,
    with its `reason`.
    """
    conditions = {table: f"{column} < $before" for table, column in TIME_COLUMNS.items()}
    detail: Reason = {"reason": "age", **(reason or {}), "before": str(older_than)}
    found = _removed(store, conditions, {"before": older_than}, detail, dry_run=dry_run, actor=actor)
    return Pruned(cutoff=older_than, rows=found)


def prune_to_size(store: Store, max_bytes: int, *, actor: str = "retention") -> list[Pruned]:
    """Delete the oldest rows until what is left takes at most `max_bytes`; returns what each step removed.

    Each step removes half of what is beyond the aim and measures again, so that no more than a tenth of the limit goes
    below it, also where old texts are twice as long as new ones.
    """
    steps: list[Pruned] = []
    while (used := store.used_bytes()) > max_bytes:
        share = (1.0 - _AIM * max_bytes / used) / 2
        cutoff = store.read("SELECT quantile_disc(start_time, ?::DOUBLE) FROM raw.spans", [share]).rows[0][0]
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
    """Delete every trace in which a service took part, with all that belongs to it; one row in the audit.

    With `older_than` only traces in which it took part before. What is kept under no trace stays until its time:
    recorded judge replies, money spent.
    """
    given = {"service": service, "before": older_than or datetime.max}
    aged = {} if older_than is None else {"reason": "age", "before": str(older_than)}
    conditions = dict.fromkeys(_OF_TRACES, _TOOK_PART)
    found = _removed(store, conditions, given, {"service": service, **aged}, dry_run=dry_run, actor=actor)
    return Pruned(cutoff=older_than, rows=found)


def _removed(
    store: Store, conditions: Mapping[str, str], given: Mapping[str, Any], detail: Reason, *, dry_run: bool, actor: str
) -> dict[str, int]:
    """Delete the rows that meet the condition of their table, a table at a time; returns how many there were."""
    sql = "SELECT count(*) FROM raw.{} WHERE {}"
    counted = {name: store.read(sql.format(name, where), given).rows[0][0] for name, where in conditions.items()}
    found = {name: int(count) for name, count in counted.items() if count}
    if found and not dry_run:
        for name in found:
            store.write(partial(_deleted, table=name, where=conditions[name], parameters=given)).result()
        store.write(partial(audit, actor=actor, action="prune", detail={**detail, **found})).result()
    return found


Subject = Literal["user", "session", "trace"]
"""Whose traces are forgotten: a person's, a conversation's, or one."""
_STATED_BY = {"user": "user_id = $id", "session": "session_id = $id", "trace": "trace_id = $id::UUID"}
_LEAST_TEXT = 8
"""A shorter question or answer stands in the prompts of others, too."""
_FORGOTTEN = """
    CREATE OR REPLACE TEMP TABLE forgotten AS
    SELECT trace_id FROM raw.spans WHERE {stated} UNION SELECT trace_id FROM raw.trace_facts WHERE {stated}"""
_THEIR_SESSIONS = """
    SELECT session_id FROM raw.spans WHERE trace_id IN (FROM forgotten)
    UNION SELECT session_id FROM raw.trace_facts WHERE trace_id IN (FROM forgotten)"""
_SAME_SESSION = f"""
    CREATE OR REPLACE TEMP TABLE related AS
    SELECT trace_id FROM raw.spans WHERE session_id IN ({_THEIR_SESSIONS})
    UNION SELECT trace_id FROM raw.trace_facts WHERE session_id IN ({_THEIR_SESSIONS}) UNION FROM forgotten"""
_ASKED_OF_THEM = f"""
    SELECT key FROM raw.judge_calls WHERE (reply->>'$.prompt') IN (
        SELECT unnest(from_json(calls, '[{{"prompt": "VARCHAR"}}]')).prompt FROM raw.scores
        WHERE trace_id IN (FROM related) AND calls IS NOT NULL)
    UNION
    SELECT j.key FROM raw.judge_calls j JOIN (
        SELECT DISTINCT unnest([query, response]) AS text FROM raw.contents WHERE trace_id IN (FROM forgotten)) t
      ON length(t.text) >= {_LEAST_TEXT} AND contains((j.reply->>'$.prompt'), t.text)"""
_SCORED_BY_RESPONSE = """trace_id IS NULL AND response_id IN (
    SELECT response_id FROM raw.spans WHERE trace_id IN (FROM forgotten) AND response_id IS NOT NULL)"""
Forget = Callable[[Transaction, Sequence[str]], int]
"""Removes what else is kept of traces (ids as hex text); returns how much that was."""


def forget(
    store: Store, subject: Subject, identity: str, *, also: Mapping[str, Forget], dry_run: bool = False, actor: str
) -> dict[str, int]:
    """Delete the traces of a user, a session or one trace with all that is kept of them; returns rows by table.

    A user's traces are also the other turns of the user's sessions. Other turns of a session whose turns go lose the
    recorded prompts, which quote the turns before. The audit names neither the subject's id nor a trace.
    """

    def work(transaction: Transaction) -> dict[str, int]:
        found = _forget(transaction, subject, identity, also)
        if dry_run:
            raise _DryRun(found)
        if found:
            audit(transaction, actor=actor, action="prune", detail={"reason": subject, **found})
        return found

    try:
        return store.write(work).result()
    except _DryRun as end:
        return end.found


class _DryRun(Exception):
    """Rolls the deletion back; it was only counted."""

    def __init__(self, found: dict[str, int]) -> None:
        super().__init__("nothing is deleted")
        self.found = found


_TAKEN_FROM_THEM = "json_extract_string(item, '$.trace_id') IN (SELECT unnest($traces::VARCHAR[]))"


def _forget(transaction: Transaction, subject: Subject, identity: str, also: Mapping[str, Forget]) -> dict[str, int]:
    run = transaction.execute
    run(_FORGOTTEN.format(stated=_STATED_BY[subject]), {"id": identity})
    run(_SAME_SESSION)
    if subject == "user":
        run("CREATE OR REPLACE TEMP TABLE forgotten AS FROM related")
    keys = [row[0] for row in run(_ASKED_OF_THEM).rows]
    related = [row[0].hex for row in run("FROM related").rows]
    counted = {
        "judge_calls": _deleted(transaction, "judge_calls", "key IN (SELECT unnest($keys::VARCHAR[]))", {"keys": keys}),
        "feedback": _deleted(transaction, "feedback", _SCORED_BY_RESPONSE),
        "datasets": _deleted(transaction, "datasets", _TAKEN_FROM_THEM, {"traces": related}),
        **{name: remove(transaction, related) for name, remove in also.items()},
    }
    for table in _OF_TRACES:
        counted[table] = counted.get(table, 0) + _deleted(transaction, table, "trace_id IN (FROM forgotten)")
    run("UPDATE raw.scores SET calls = NULL WHERE trace_id IN (FROM related) AND calls IS NOT NULL")
    return {table: count for table, count in counted.items() if count}


def _deleted(transaction: Transaction, table: str, where: str, parameters: Mapping[str, Any] | None = None) -> int:
    count = int(transaction.execute(f"SELECT count(*) FROM raw.{table} WHERE {where}", parameters or ()).rows[0][0])
    if count:
        transaction.execute(f"DELETE FROM raw.{table} WHERE {where}", parameters or ())
    return count


def audit(transaction: Transaction, *, actor: str, action: str, detail: dict[str, object]) -> None:
    """Keep who deleted or changed what."""
    text = orjson.dumps(detail, default=str).decode()
    transaction.append("audit", ("created_at", "actor", "action", "detail"), [(transaction.at, actor, action, text)])


def vacuum(path: Path) -> tuple[int, int]:
    """Rewrite a closed file without its free space; returns bytes before and after. Raises StoreError when in use.

    The bytes before include the log, which goes into the file.
    """
    before = path.stat().st_size + log_bytes(path)
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
            connection.execute(f"CREATE OR REPLACE TABLE vacuumed.raw.{table} ({in_file(table, dict(columns))})")
        connection.execute(f'COPY FROM DATABASE "{source}" TO vacuumed (DATA)')
        connection.execute("DETACH vacuumed")
    except duckdb.Error as error:
        copy.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be rewritten: {first_line(error)}") from error
    finally:
        connection.close()
    shutil.copymode(path, copy)
    copy.replace(path)
    return before, path.stat().st_size
