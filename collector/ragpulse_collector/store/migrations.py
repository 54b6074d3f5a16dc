"""The file's version and the way from an older one to this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from ragpulse_collector.store.protocol import StoreError
from ragpulse_collector.store.schema import SCHEMA_VERSION, TABLES
from ragpulse_collector.store.views import create_views, views_digest

Execute = Callable[[str], Any]
Fetch = Callable[[str], list[tuple[Any, ...]]]

STEPS: dict[int, tuple[str, ...]] = {
    2: ("ALTER TABLE raw.spans ADD COLUMN links VARCHAR", "ALTER TABLE raw.feedback ADD COLUMN response_id VARCHAR"),
    3: ("ALTER TABLE raw.trace_facts ADD COLUMN retriever VARCHAR",),
}
"""version → the statements that lead from version-1 to it; a step is never changed once released."""


def file_version(fetch: Fetch) -> int:
    """Return the schema version of an open file, 0 for an empty one."""
    try:
        found = fetch("SELECT max(value::INTEGER) FROM raw.meta WHERE key = 'schema_version'")[0][0]
    except duckdb.CatalogException:
        return 0
    return int(found or 0)


def check_version(version: int, *, name: str) -> None:
    """Refuse a file that a newer ragpulse wrote; raises StoreError."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{name} has schema version {version}, this ragpulse knows up to {SCHEMA_VERSION}: "
            "upgrade with `pip install -U ragpulse`"
        )


def is_older(version: int) -> bool:
    """Return whether a file holds tables of an older version; an empty file does not."""
    return 0 < version < SCHEMA_VERSION


def migrate(execute: Execute, fetch: Fetch, *, name: str) -> int:
    """Bring an open file to this version in one transaction; returns the version it had. Raises StoreError."""
    version = file_version(fetch)
    check_version(version, name=name)
    if version == SCHEMA_VERSION and _views_in_file(fetch) == views_digest():
        return version
    execute("BEGIN TRANSACTION")
    try:
        _upgrade(execute, version)
        execute("COMMIT")
    except BaseException:
        execute("ROLLBACK")
        raise
    return version


def _upgrade(execute: Execute, version: int) -> None:
    if version == 0:
        _create(execute)
    for step in range(version + 1, SCHEMA_VERSION + 1) if version else ():
        for statement in STEPS[step]:
            execute(statement)
    if version != SCHEMA_VERSION:
        execute(f"INSERT INTO raw.meta (key, value) VALUES ('schema_version', '{SCHEMA_VERSION}')")
    create_views(execute)
    execute("DELETE FROM raw.meta WHERE key = 'views'")
    execute(f"INSERT INTO raw.meta (key, value) VALUES ('views', '{views_digest()}')")


def _views_in_file(fetch: Fetch) -> str | None:
    """Views are only written when they changed: writing them takes longer than everything else at start."""
    found = fetch("SELECT max(value) FROM raw.meta WHERE key = 'views'")[0][0]
    return None if found is None else str(found)


def _create(execute: Execute) -> None:
    execute("CREATE SCHEMA IF NOT EXISTS raw")
    for name, columns in TABLES.items():
        execute(f"CREATE TABLE IF NOT EXISTS raw.{name} ({columns})")
