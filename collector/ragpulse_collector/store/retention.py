"""Retention: what is older than its time or beyond the store's size goes, and a service when somebody says so.

Deleted space is used again by what comes; the file itself does not shrink (`vacuum` on a closed file does that).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import duckdb
import orjson

from ragpulse_collector.store.connection import first_line, open_file, quoted
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.outbox import outbox_folder
from ragpulse_collector.store.protocol import Store, StoreError, Transaction
from ragpulse_collector.store.schema import TABLES, TIME_COLUMNS

_OF_TRACES = tuple(sorted((name for name, held in TABLES.items() if "trace_id UUID" in held), key="spans".__eq__))
"""The tables whose rows belong to a trace; `spans`, which say whose a trace is, last."""
_TOOK_PART = "trace_id IN (SELECT trace_id FROM raw.spans WHERE service = $service)"
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
    counted = {table: _count(store, table, older_than) for table in TIME_COLUMNS}
    found = {table: count for table, count in counted.items() if count}
    if found and not dry_run:
        for table in found:
            store.write(partial(_delete, table=table, cutoff=older_than)).result()
        detail: dict[str, object] = {"reason": "age", **(reason or {}), "before": str(older_than), **found}
        store.write(partial(audit, actor=actor, action="prune", detail=detail)).result()
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


def prune_service(store: Store, service: str, *, dry_run: bool = False, actor: str = "retention") -> Pruned:
    """Delete every trace in which a service took part, with all that belongs to it; one row in the audit.

    What is kept under no trace stays until its time: recorded judge replies, money spent.
    """
    counted = {table: _count_of(store, table, service) for table in _OF_TRACES}
    found = {table: count for table, count in counted.items() if count}
    if found and not dry_run:
        store.write(partial(_delete_of, service=service)).result()
        detail: dict[str, object] = {"service": service, **found}
        store.write(partial(audit, actor=actor, action="prune", detail=detail)).result()
    return Pruned(cutoff=None, rows=found)


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
        connection.execute(f"ATTACH '{quoted(copy)}' AS vacuumed")
        connection.execute(f'COPY FROM DATABASE "{source}" TO vacuumed')
        connection.execute("DETACH vacuumed")
    except duckdb.Error as error:
        copy.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be rewritten: {first_line(error)}") from error
    finally:
        connection.close()
    shutil.copymode(path, copy)
    copy.replace(path)
    return before, path.stat().st_size


def _count(store: Store, table: str, cutoff: datetime) -> int:
    sql = f"SELECT count(*) FROM raw.{table} WHERE {TIME_COLUMNS[table]} < ?"
    return int(store.read(sql, [cutoff]).rows[0][0])


def _delete(transaction: Transaction, *, table: str, cutoff: datetime) -> None:
    transaction.execute(f"DELETE FROM raw.{table} WHERE {TIME_COLUMNS[table]} < ?", [cutoff])


def _count_of(store: Store, table: str, service: str) -> int:
    sql = f"SELECT count(*) FROM raw.{table} WHERE {_TOOK_PART}"
    return int(store.read(sql, {"service": service}).rows[0][0])


def _delete_of(transaction: Transaction, *, service: str) -> None:
    for table in _OF_TRACES:
        transaction.execute(f"DELETE FROM raw.{table} WHERE {_TOOK_PART}", {"service": service})
