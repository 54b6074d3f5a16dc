"""Migrations of a file or lake to this version: a copy `NAME.before-vN` first, then one transaction.

Tables and columns are only ever added, so an older store is brought to this version by adding what it lacks.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from ragpulse_collector.settings import ACCEPTANCE
from ragpulse_collector.store import schema
from ragpulse_collector.store.connection import attach_file, duckdb_settings, first_line, literal
from ragpulse_collector.store.log import has_commits, log_bytes
from ragpulse_collector.store.protocol import StoreError, utc_now
from ragpulse_collector.store.schema import REQUESTS_SINCE, SCHEMA_VERSION, TABLES, column_types
from ragpulse_collector.store.units.decided import feedback_of
from ragpulse_collector.store.views import create_views, views_digest

Execute = Callable[[str], Any]
Fetch = Callable[[str], list[tuple[Any, ...]]]

_COLUMNS = """
    SELECT table_name, list(column_name) FROM information_schema.columns
    WHERE table_catalog = current_catalog() AND table_schema = 'raw' GROUP BY table_name"""

_BY_NAME = """(
    SELECT trace_id, evaluator AS name, arg_max(score, created_at) AS score, max(created_at) AS received_at
    FROM raw.scores WHERE source = 'human' AND score IS NOT NULL GROUP BY ALL)"""
_NAME_FEEDBACK = f"""
    UPDATE raw.trace_facts SET
        feedback = n.feedback, feedbacks = n.feedbacks, feedbacks_off_scale = n.feedbacks_off_scale
    FROM ({feedback_of(_BY_NAME, accepted=str(list(ACCEPTANCE)), scales="map([]::VARCHAR[], []::DOUBLE[][])")}) n
    WHERE latest AND trace_facts.trace_id = n.trace_id"""
"""Before version 11 the newest score of any name was acceptance."""
_ANCHORS = """(
    SELECT evaluator, frozen_at, version, judge, anchor, place,
           'frozen ' || evaluator || ' ' || frozen_at AS name,
           coalesce(anchor->>'$.case.query', '(no question)') AS query,
           (anchor->>'$.trace_id') || '/' || (anchor->>'$.span_id') AS key
    FROM (SELECT value->>'$.evaluator' AS evaluator, value->>'$.frozen_at' AS frozen_at, value->>'$.version' AS version,
                 value->>'$.judge' AS judge, from_json(value->'$.anchors', '["JSON"]') AS anchors,
                 unnest(anchors) AS anchor, generate_subscripts(anchors, 1) AS place
          FROM raw.meta WHERE starts_with(key, 'anchors/')))"""
_CHECKS = """(
    SELECT evaluator, frozen_at, value->>'$.version' AS version, value->>'$.judge' AS judge,
           value->>'$.at' AS checked_at, left(md5(value), 12) AS run_id, (value->>'$.cost_usd')::DOUBLE AS cost_usd,
           from_json(value->'$.values', '["DOUBLE"]') AS results
    FROM (SELECT value, value->>'$.evaluator' AS evaluator, value->>'$.frozen_at' AS frozen_at FROM raw.meta
          WHERE starts_with(key, 'drift/')))"""
_INSTANT = "rtrim({}, 'Z')::TIMESTAMP"
_FROZEN_SETS = (
    f"""INSERT INTO raw.datasets (name, query, item, deleted, created_at)
        SELECT name, key, json_object('query', query, 'response', anchor->>'$.case.response',
                   'trace_id', anchor->>'$.trace_id', 'at', rtrim(frozen_at, 'Z'),
                   'scores', [json_object('evaluator', evaluator, 'version', version, 'judge', judge,
                       'normalized', (anchor->>'$.value')::DOUBLE, 'pi', (anchor->>'$.pi')::DOUBLE)],
                   'frozen', json_object('case', anchor->'$.case', 'span_id', anchor->>'$.span_id',
                       'user', anchor->>'$.user')), false, {_INSTANT.format("frozen_at")}
        FROM {_ANCHORS}
        QUALIFY frozen_at = max(frozen_at) OVER (PARTITION BY evaluator)""",
    f"""INSERT INTO raw.runs BY NAME
        SELECT run_id, evaluator, version, judge, 'done' AS status, len(results) AS total,
            {_INSTANT.format("checked_at")} AS created_at, false AS in_use, 'check' AS kind,
            json_object('dataset', 'frozen ' || evaluator || ' ' || frozen_at)::VARCHAR AS spec
        FROM {_CHECKS}""",
    f"""INSERT INTO raw.scores BY NAME
        SELECT c.run_id || '/' || a.place AS score_key, uuid() AS job_id, (a.anchor->>'$.trace_id')::UUID AS trace_id,
            ('0x' || (a.anchor->>'$.span_id'))::UBIGINT AS span_id, c.evaluator, c.version, c.judge, 'check' AS source,
            CASE WHEN c.results[a.place] IS NULL THEN 'error' ELSE 'ok' END AS status, c.results[a.place] AS score,
            c.results[a.place] AS normalized, c.cost_usd / len(c.results) AS cost_usd, 1 AS attempt,
            {_INSTANT.format("c.checked_at")} AS created_at, c.run_id
        FROM {_CHECKS} c JOIN {_ANCHORS} a ON a.evaluator = c.evaluator AND a.frozen_at = c.frozen_at""",
    """INSERT INTO raw.run_items BY NAME
        SELECT run_id, score_key, trace_id, span_id, job_id, false AS reused FROM raw.scores WHERE source = 'check'""",
    "DELETE FROM raw.meta WHERE starts_with(key, 'anchors/') OR starts_with(key, 'drift/')",
)
"""Before version 14 frozen answers and their checks were texts of `raw.meta`, not datasets and runs."""
_CHECKED = """
    INSERT INTO raw.runs BY NAME
    SELECT left(md5({line}), 12) AS run_id, 'faithfulness, pairwise' AS evaluator, '' AS version,
           {line}->>'$.check.judge' AS judge, 'done' AS status, ({line}->>'$.check.questions')::BIGINT AS total,
           coalesce(try_cast({line}->>'$.at' AS TIMESTAMP), now()::TIMESTAMP) AS created_at,
           false AS in_use, 'check' AS kind,
           '{{"labelled": true, "sent": true}}' AS spec, ({line}->'$.check')::VARCHAR AS result"""
"""Before version 15 checks of judges on labelled answers were lines of a file beside the store."""
_REQUESTS_ALONE = 13
"""Before this version every root counted as a request."""
_RUNS, _REPORTS = 14, 15


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
        existing: dict[str, Sequence[str]] = dict(fetch(_COLUMNS))
        _add_missing(execute, existing, in_file=in_file)
        if "feedbacks" not in existing.get("trace_facts", ("feedbacks",)):
            execute(_NAME_FEEDBACK)
        if 0 < version < _RUNS and fetch("SELECT 1 FROM raw.meta WHERE starts_with(key, 'anchors/') LIMIT 1"):
            for statement in _FROZEN_SETS:
                execute(statement)
        if version < _REPORTS:
            for line in _checks_beside(name, in_file=in_file):
                execute(_CHECKED.format(line=literal(line)))
        _write_version(execute, version)
        execute("COMMIT")
    except BaseException:
        execute("ROLLBACK")
        raise
    return version


def _checks_beside(name: str, *, in_file: bool) -> list[str]:
    """Return the checks of judges in the file beside a store; a line that a crash cut off is left out."""
    file = Path(f"{name if in_file else 'ragpulse'}.judge-checks.jsonl")
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    return list(filter(_is_check, lines))


def _is_check(line: str) -> bool:
    try:
        return bool(json.loads(line)["check"]["judge"])
    except (ValueError, TypeError, LookupError):
        return False


def _write_version(execute: Execute, version: int) -> None:
    if 0 < version < _REQUESTS_ALONE:
        execute(f"""INSERT INTO raw.meta (key, value)
                    SELECT '{REQUESTS_SINCE}', '{utc_now()}' FROM raw.trace_facts LIMIT 1""")
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
            declared = schema.file_columns(table, column_types(table)) if in_file else columns
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
        version = version_of(connection)
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
    if has_commits(path) or _state(path) != copied:
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


def version_of(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the schema version of an open file, 0 for an empty one."""
    return file_version(lambda sql: connection.execute(sql).fetchall())
