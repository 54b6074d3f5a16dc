"""A lake of an older version is migrated in one transaction: a kill leaves the old lake or the new one."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from lake_servers import SOURCES, Absent, lake_python

from ragpulse_collector.store.schema import SCHEMA_VERSION

OLD = 2
_PROCESS = """
import os, signal, sys
import duckdb
from ragpulse_collector.store.lake import LakeStore
from ragpulse_collector.store.connection import attach_lake
catalog, data, what, seen = *sys.argv[1:4], 0
def attach():
    connection = duckdb.connect()
    attach_lake(connection, catalog, data, None)
    return connection
def lines(frame, event, argument):
    global seen
    seen += event == "line"
    if seen == int(what):
        os.kill(os.getpid(), signal.SIGKILL)
    return lines
if what == "age":
    connection = attach()
    for view, in connection.execute("SELECT view_name FROM duckdb_views() WHERE database_name = 'lake'").fetchall():
        connection.execute(f"DROP VIEW {view}")
    for column in ("retriever", "tags", "metadata", "release", "misdated_spans", "spans_from"):
        connection.execute(f"ALTER TABLE raw.trace_facts DROP COLUMN {column}")
    connection.execute("ALTER TABLE raw.monitor_states DROP COLUMN event_id")
    connection.execute("ALTER TABLE raw.eval_jobs DROP COLUMN rule")
    connection.execute("ALTER TABLE raw.ledger DROP COLUMN rule")
    connection.execute("DROP TABLE raw.monitors")
    connection.execute("DROP TABLE raw.alert_messages")
    connection.execute("DROP TABLE raw.datasets")
    connection.execute("ALTER TABLE raw.contents DROP COLUMN query_from")
    connection.execute("ALTER TABLE raw.contents DROP COLUMN response_from")
    connection.execute("DELETE FROM raw.meta WHERE key = 'views'")
    connection.execute("UPDATE raw.meta SET value = 'OLD' WHERE key = 'schema_version'")
elif what == "look":
    connection = attach()
    columns = "SELECT count(*) FROM duckdb_columns() WHERE table_name = 'trace_facts' AND column_name = 'retriever'"
    version = "SELECT max(value::INT) FROM raw.meta WHERE key = 'schema_version'"
    print(*connection.execute(version).fetchall()[0], *connection.execute(columns).fetchall()[0])
else:
    watched = ("migrate", "_upgrade", "create_views")
    sys.settrace(lambda frame, event, argument: lines if frame.f_code.co_name in watched else None)
    store = LakeStore(catalog, data_path=data, decode=lambda body: None)
    sys.settrace(None)
    print(seen)
    store.close()
""".replace("OLD", str(OLD))


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the lake's environment."""
    try:
        return lake_python()
    except Absent as error:
        pytest.skip(str(error))


def lake_process(python: Path, folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    """Open the lake in a process: `age` it, `look`, or be killed before a line of the migration (-1: never)."""
    command = [str(python), "-c", _PROCESS, f"ducklake:{folder / 'catalog.ducklake'}", str(folder / "data"), what]
    return subprocess.run(
        command, env=os.environ | {"PYTHONPATH": SOURCES}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_kill_during_the_migration_leaves_the_old_lake_or_the_new_one(python: Path, tmp_path: Path) -> None:
    """Killed again and again on one lake: old until COMMIT, new after it; the last start is whole."""
    assert lake_process(python, tmp_path, "-1").returncode == 0
    assert lake_process(python, tmp_path, "age").returncode == 0
    lines = int(lake_process(python, tmp_path, "-1").stdout)
    assert lake_process(python, tmp_path, "age").returncode == 0
    found = []
    for moment in (lines // 2, lines - 1, lines):
        killed = lake_process(python, tmp_path, str(moment))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        found.append(lake_process(python, tmp_path, "look").stdout.strip())
    assert found == [f"{OLD} 0", f"{OLD} 0", f"{SCHEMA_VERSION} 1"]
    assert lake_process(python, tmp_path, "-1").returncode == 0
