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
__file__ = "-c"  # DuckDB takes a program without a file for a notebook, where slow statements print their progress
import os, signal, sys
import duckdb
from lake_servers import trust_extensions
from ragpulse_collector.store.lake import LakeStore
from ragpulse_collector.store.connection import attach_lake
catalog, data, seen = *sys.argv[1:3], 0
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
def step(what):
    if what == "age":
        connection = attach()
        for view, in connection.execute("SELECT view_name FROM duckdb_views() WHERE database_name = 'lake'").fetchall():
            connection.execute(f"DROP VIEW {view}")
        for column in (
            "finish_reason", "feedbacks", "retriever", "tags", "metadata", "release", "misdated_spans", "spans_from"
        ):
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
trust_extensions()
for what in sys.argv[3:]:
    if not os.fork():
        step(what)
        sys.stdout.flush()
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
""".replace("OLD", str(OLD))


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the lake's environment."""
    try:
        return lake_python()
    except Absent as error:
        pytest.skip(str(error))


def lake_process(python: Path, folder: Path, *steps: str) -> list[str]:
    """Open the lake in processes, one after another: `age` it, `look`, or be killed before a line of the migration.

    -1 is never. They are forks of one process, which has imported the store. Return what they print.
    """
    command = [str(python), "-c", _PROCESS, f"ducklake:{folder / 'catalog.ducklake'}", str(folder / "data"), *steps]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": SOURCES}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kill_during_the_migration_leaves_the_old_lake_or_the_new_one(python: Path, tmp_path: Path) -> None:
    """Killed again and again on one lake: old until COMMIT, new after it; the last start is whole."""
    _, *whole, counted, last = lake_process(python, tmp_path, "-1", "age", "-1")
    assert [*whole, last] == ["ended 0"] * 3
    lines = int(counted)
    steps = [step for moment in (lines // 2, lines - 1, lines) for step in (str(moment), "look")]
    found = lake_process(python, tmp_path, "age", *steps, "-1")
    killed = f"ended {-signal.SIGKILL}"
    old, new = (killed, f"{OLD} 0", "ended 0"), (killed, f"{SCHEMA_VERSION} 1", "ended 0")
    assert found[:-2] == ["ended 0", *old, *old, *new]
    assert found[-1] == "ended 0"
