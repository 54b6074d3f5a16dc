"""The tables of the store (schema `raw`: append-only, ordered by time, no index).

Ids are UUID / UBIGINT here and lower-case hex text in the views (views.py); instants are UTC. Only the `latest` flags
of `trace_facts` and `decisions` are ever updated, so that a view needs no window over their history.

An older file or lake is migrated: a copy `NAME.before-vN` first, then one transaction. Tables and columns are only ever
added, so the migration adds what is missing.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from ragpulse_collector.store.connection import attach_file, duckdb_settings, first_line
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.protocol import StoreError
from ragpulse_collector.store.views import create_views, views_digest

SCHEMA_VERSION = 10

VIEW_NAMES = ("traces", "spans", "contexts", "scores", "decisions", "sessions", "quality_daily", "judge_spans")
"""The keys of `views.VIEWS`. A reader process checks queries against them without loading the views' SQL."""

TABLES: dict[str, str] = {
    "meta": "key VARCHAR, value VARCHAR",
    "spans": """
        trace_id UUID, span_id UBIGINT, parent_span_id UBIGINT, start_time TIMESTAMP, received_at TIMESTAMP,
        duration_us BIGINT, name VARCHAR, kind VARCHAR, service VARCHAR, service_version VARCHAR, environment VARCHAR,
        status VARCHAR, status_message VARCHAR, error_type VARCHAR, model VARCHAR, provider VARCHAR,
        response_id VARCHAR, input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT,
        cache_write_tokens BIGINT, reasoning_tokens BIGINT, cost_usd DOUBLE, cost_source VARCHAR,
        cost_unknown_reason VARCHAR, ttft_ms DOUBLE, session_id VARCHAR, user_id VARCHAR, prompt_name VARCHAR,
        prompt_version VARCHAR, variant VARCHAR, tags VARCHAR, metadata VARCHAR, upstream_pi DOUBLE,
        contexts_state VARCHAR, n_contexts INTEGER, top_score DOUBLE, dropped_attributes INTEGER, has_text BOOLEAN,
        attributes VARCHAR, resource VARCHAR, events VARCHAR, mapped_from VARCHAR, links VARCHAR""",
    # `query_from`, `response_from`: the span below that gave the text of a unit without one.
    "contents": """
        trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, query VARCHAR, response VARCHAR, query_from UBIGINT,
        response_from UBIGINT""",
    "contexts": """
        trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, rank INTEGER, id VARCHAR, score DOUBLE, text VARCHAR,
        metadata VARCHAR, hash VARCHAR""",
    # Texts of log events as they arrived; `record` is JSON of query, response, contexts.
    "content_events": """
        trace_id UUID, span_id UBIGINT, time TIMESTAMP, received_at TIMESTAMP, joined BOOLEAN, record VARCHAR""",
    # Scores that arrived over OTLP or the API; the decision's transaction copies them to `scores` under their unit.
    # A score without a trace id waits for the span with its response id. `binding` is JSON.
    "feedback": """
        feedback_id UUID, trace_id UUID, span_id UBIGINT, time TIMESTAMP, received_at TIMESTAMP, name VARCHAR,
        score DOUBLE, label VARCHAR, explanation VARCHAR, source VARCHAR, response_id VARCHAR, binding VARCHAR""",
    "trace_facts": """
        trace_id UUID, revision INTEGER, latest BOOLEAN, decided_at TIMESTAMP, unit_span_id UBIGINT,
        start_time TIMESTAMP, latency_ms DOUBLE, ttft_ms DOUBLE, service VARCHAR, environment VARCHAR, name VARCHAR,
        session_id VARCHAR, user_id VARCHAR, prompt_name VARCHAR, prompt_version VARCHAR, variant VARCHAR,
        model VARCHAR, input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT, cost_usd DOUBLE,
        cost_unknown_reason VARCHAR, error BOOLEAN, top_score DOUBLE, n_spans INTEGER, n_units INTEGER,
        late_spans INTEGER, upstream_pi DOUBLE, query VARCHAR, response VARCHAR, feedback DOUBLE,
        retriever VARCHAR, misdated_spans INTEGER, spans_from TIMESTAMP, tags VARCHAR[],
        metadata MAP(VARCHAR, VARCHAR), release VARCHAR""",
    "decisions": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, rule VARCHAR, policy VARCHAR,
        pi DOUBLE, u DOUBLE, sampled BOOLEAN, reason VARCHAR, decided_at TIMESTAMP, revision INTEGER,
        latest BOOLEAN""",
    "eval_jobs": """
        job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, run_id VARCHAR,
        source VARCHAR, u DOUBLE, created_at TIMESTAMP, rule VARCHAR""",
    "scores": """
        score_key VARCHAR, job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR,
        version VARCHAR, label_version VARCHAR, judge VARCHAR, source VARCHAR, status VARCHAR, score DOUBLE,
        normalized DOUBLE, passing BOOLEAN, label VARCHAR, explanation VARCHAR, parts VARCHAR, ci_lo DOUBLE,
        ci_hi DOUBLE, calls VARCHAR, cost_usd DOUBLE, elapsed_ms DOUBLE, attempt INTEGER, created_at TIMESTAMP,
        run_id VARCHAR""",
    "runs": """
        run_id VARCHAR, evaluator VARCHAR, version VARCHAR, judge VARCHAR, spec VARCHAR, status VARCHAR,
        total BIGINT, max_usd DOUBLE, error VARCHAR, created_at TIMESTAMP""",
    "run_items": "run_id VARCHAR, score_key VARCHAR, trace_id UUID, span_id UBIGINT, u DOUBLE, job_id UUID",
    "judge_calls": "key VARCHAR, judge VARCHAR, reply VARCHAR, created_at TIMESTAMP",
    "ledger": """
        entry_id UUID, day DATE, evaluator VARCHAR, job_id UUID, run_id VARCHAR, kind VARCHAR, usd DOUBLE,
        created_at TIMESTAMP, rule VARCHAR""",
    "labels": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, score DOUBLE, passing BOOLEAN,
        comment VARCHAR, annotator VARCHAR, label_pi DOUBLE, created_at TIMESTAMP""",
    "rules": "name VARCHAR, policy VARCHAR, rule VARCHAR, source VARCHAR, deleted BOOLEAN, created_at TIMESTAMP",
    "monitor_states": """
        monitor VARCHAR, "group" VARCHAR, state VARCHAR, value DOUBLE, lo DOUBLE, hi DOUBLE, text VARCHAR,
        delivery VARCHAR, statistic VARCHAR, created_at TIMESTAMP, event_id UUID""",
    "monitors": "name VARCHAR, definition VARCHAR, mute_until TIMESTAMP, deleted BOOLEAN, created_at TIMESTAMP",
    "alert_messages": """
        event_id UUID, destination VARCHAR, state VARCHAR, attempt INTEGER, error VARCHAR, message VARCHAR,
        due_at TIMESTAMP, created_at TIMESTAMP""",
    # The latest row of a question counts; a deleted row without a question ends everything before it.
    "datasets": "name VARCHAR, query VARCHAR, item VARCHAR, deleted BOOLEAN, created_at TIMESTAMP",
    "audit": "created_at TIMESTAMP, actor VARCHAR, action VARCHAR, detail VARCHAR",
}

LONG_TEXTS = {"spans": ("attributes",), "contents": ("query", "response"), "contexts": ("text",)}
"""Columns that a file compresses with zstd: 60 % fewer bytes for a span with real texts, and cheaper checkpoints.

Attributes are long because many instrumentations write whole prompts into them."""


def file_columns(table: str, columns: Mapping[str, str]) -> str:
    """Return the declarations of columns (name → type) in a file: long texts are compressed."""
    long = LONG_TEXTS.get(table, ())
    declared = (f'"{name}" {kind}{" USING COMPRESSION zstd" * (name in long)}' for name, kind in columns.items())
    return ", ".join(declared)


TIME_COLUMNS: dict[str, str] = {
    "spans": "start_time",
    "contents": "start_time",
    "contexts": "start_time",
    "content_events": "time",
    "feedback": "time",
    "trace_facts": "start_time",
    "decisions": "request_time",
    "eval_jobs": "request_time",
    "scores": "request_time",
    "labels": "request_time",
    "judge_calls": "created_at",
    "alert_messages": "created_at",
}
"""The column of each table that retention compares; the other tables are never pruned."""


def column_types(table: str) -> dict[str, str]:
    """Return the type of each column of a table, in order."""
    declared = (part.split(maxsplit=1) for part in re.split(r",(?![^(]*\))", TABLES[table]))
    return {name.strip('"'): kind.strip() for name, kind in declared}


Execute = Callable[[str], Any]
Fetch = Callable[[str], list[tuple[Any, ...]]]

_COLUMNS = """
    SELECT table_name, list(column_name) FROM information_schema.columns
    WHERE table_catalog = current_catalog() AND table_schema = 'raw' GROUP BY table_name"""


def file_version(fetch: Fetch) -> int:
    """Return the schema version of an open file, 0 for an empty one."""
    try:
        version = fetch("SELECT max(value::INTEGER) FROM raw.meta WHERE key = 'schema_version'")[0][0]
    except duckdb.CatalogException:
        return 0
    return int(version or 0)


def check_version(version: int, *, name: str) -> None:
    """Refuse a file that a newer ragpulse wrote; raises StoreError."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{name} has schema version {version}, this ragpulse knows up to {SCHEMA_VERSION}: "
            "upgrade with `pip install -U ragpulse`"
        )


def is_older(version: int) -> bool:
    """Return whether a file has tables of an older version; an empty file has none."""
    return 0 < version < SCHEMA_VERSION


def migrate(execute: Execute, fetch: Fetch, *, name: str, in_file: bool = False) -> int:
    """Migrate an open file (or a lake) to this version in one transaction; returns its version before.

    Raises StoreError.
    """
    version = file_version(fetch)
    check_version(version, name=name)
    if version == SCHEMA_VERSION and _views_in_file(fetch) == views_digest():
        return version
    execute("BEGIN TRANSACTION")
    try:
        _add_missing(execute, dict(fetch(_COLUMNS)), in_file=in_file)
        _write_version(execute, version)
        execute("COMMIT")
    except BaseException:
        execute("ROLLBACK")
        raise
    return version


def _write_version(execute: Execute, version: int) -> None:
    if version != SCHEMA_VERSION:
        execute(f"INSERT INTO raw.meta (key, value) VALUES ('schema_version', '{SCHEMA_VERSION}')")
    create_views(execute)
    execute("DELETE FROM raw.meta WHERE key = 'views'")
    execute(f"INSERT INTO raw.meta (key, value) VALUES ('views', '{views_digest()}')")


def _add_missing(execute: Execute, existing: Mapping[str, Sequence[str]], *, in_file: bool) -> None:
    """Add the tables and columns that the store lacks, given the columns of its tables."""
    execute("CREATE SCHEMA IF NOT EXISTS raw")
    for table, columns in TABLES.items():
        if table not in existing:
            declared = file_columns(table, column_types(table)) if in_file else columns
            execute(f"CREATE TABLE IF NOT EXISTS raw.{table} ({declared})")
            continue
        for name, declared in column_types(table).items():
            if name not in existing[table]:
                execute(f'ALTER TABLE raw.{table} ADD COLUMN "{name}" {declared}')


def _views_in_file(fetch: Fetch) -> str | None:
    """Return the digest of the stored views. They are rewritten only after a change: it takes most of the startup."""
    digest = fetch("SELECT max(value) FROM raw.meta WHERE key = 'views'")[0][0]
    return None if digest is None else str(digest)


_log = logging.getLogger(__name__)
Attach = Callable[[], duckdb.DuckDBPyConnection]
SPARE_BYTES = 64 * 2**20
"""Free space needed beside the copy: the migration writes a log of at most this size before the file."""
_CHUNK_BYTES = 2**20


def copy_path(path: Path) -> Path:
    """Return the path of the copy of an older file."""
    return path.with_name(f"{path.name}.before-v{SCHEMA_VERSION}")


def migrate_file(path: Path, *, in_place: bool) -> int:
    """Migrate a closed file; returns its version before. Raises StoreError like `open_current`."""
    config = duckdb_settings(threads=1, memory_limit="512MB", wal_limit="64MB")
    connection, version = open_current(path, lambda: attach_file(path, "ragpulse", config), in_place=in_place)
    connection.close()
    return version


def open_current(path: Path, attach: Attach, *, in_place: bool = False) -> tuple[duckdb.DuckDBPyConnection, int]:
    """Open a file and migrate it to this version; returns its version before.

    An older file is copied first unless `in_place`. Raises StoreError if it is newer, or cannot be copied.
    """
    connection = attach()
    try:
        version = _version(connection)
        check_version(version, name=str(path))
        if is_older(version) and not in_place:
            connection = _copy_and_open(path, version, connection, attach)
        migrate(connection.execute, lambda sql: connection.execute(sql).fetchall(), name=str(path), in_file=True)
    except BaseException:
        connection.close()
        raise
    return connection, version


def _copy_and_open(
    path: Path, version: int, connection: duckdb.DuckDBPyConnection, attach: Attach
) -> duckdb.DuckDBPyConnection:
    """Copy the closed file and reopen it: closing any descriptor of an open file would release DuckDB's lock."""
    _check_room(path, version)
    try:
        connection.execute("CHECKPOINT")  # the file alone holds everything now
        connection.close()
        copied = _state(path)
        _copy(path, copy_path(path))
    except (OSError, duckdb.Error) as error:
        raise StoreError(f"{_cannot_copy(path, version)} ({first_line(error)}): {_fix(path)}") from error
    opened = attach()
    if log_bytes(path) or _state(path) != copied:
        opened.close()
        raise StoreError(f"another process changed {path} while it was copied: start again")
    _log.warning("%s has schema version %d; its copy before the migration is %s", path, version, copy_path(path))
    return opened


def _check_room(path: Path, version: int) -> None:
    needed = path.stat().st_size + log_bytes(path) + SPARE_BYTES
    free = shutil.disk_usage(path.absolute().parent).free
    if free < needed:
        raise StoreError(
            f"{_cannot_copy(path, version)} (the disk has {free:,} bytes free, {needed:,} are needed): {_fix(path)}"
        )


def _cannot_copy(path: Path, version: int) -> str:
    return f"{path} has schema version {version}, this ragpulse uses {SCHEMA_VERSION}, and it cannot be copied first"


def _fix(path: Path) -> str:
    return f"free space, or migrate without a copy: `ragpulse migrate --db {shlex.quote(str(path))} --in-place`"


def _copy(path: Path, target: Path) -> None:
    """Copy a file; the target appears only when the copy is complete and on disk."""
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    try:
        with path.open("rb") as source, open(partial, "xb", opener=_private) as copy:
            shutil.copyfileobj(source, copy, _CHUNK_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(target.absolute().parent)


def _private(name: str, flags: int) -> int:
    """Open a file that only its owner can read, like the database."""
    return os.open(name, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Make a new file name durable; Windows does this by itself."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _state(path: Path) -> tuple[int, int, int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    return file_version(lambda sql: connection.execute(sql).fetchall())
