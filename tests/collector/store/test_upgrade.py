"""A file of a newer version is refused; an older one is copied and migrated; a kill leaves it old or new."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import forks
import pytest
from served import Served

from ragpulse_collector.cli import run
from ragpulse_collector.client import connect
from ragpulse_collector.store import FileReader, StoreError
from ragpulse_collector.store.schema import SCHEMA_VERSION

WRITTEN = Path(__file__).parents[1] / "fixtures" / "store-0.1.duckdb.gz"
"""A store of version 0.1, written by tests/golden_store.py of commit 3eae9ab."""
TRACES = 24
OLD = 2
MOMENTS = 8

_OPENED = """
import os, signal, sys
from pathlib import Path
from ragpulse_collector.conventions import decode
from ragpulse_collector.store.embedded import EmbeddedStore
watched, seen = sys.argv[1].split(), 0
def lines(frame, event, argument):
    global seen
    seen += event == "line"
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return lines
for path, at in zip(sys.argv[2::2], map(int, sys.argv[3::2])):
    if not os.fork():
        sys.settrace(lambda frame, event, argument: lines if frame.f_code.co_name in watched else None)
        store = EmbeddedStore(Path(path), decode=decode)
        sys.settrace(None)
        store.close()
        print(seen, flush=True)
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
_COPYING = "_copy copyfileobj _sync_folder"
_MIGRATING = "migrate _upgrade create_views"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The file of 0.1, brought back to schema version 2: without the column and the views that version 3 added."""
    path = tmp_path / "store.duckdb"
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    with duckdb.connect(str(path)) as connection:
        views = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
        for schema, view in connection.execute(views).fetchall():
            connection.execute(f'DROP VIEW "{schema}"."{view}"')
        connection.execute("ALTER TABLE raw.trace_facts DROP COLUMN retriever")
        connection.execute("DELETE FROM raw.meta WHERE key = 'views'")
        connection.execute(f"UPDATE raw.meta SET value = '{OLD}' WHERE key = 'schema_version'")
    return path


def stored(path: Path) -> tuple[int, int, bool]:
    """Return schema version, traces and whether the column of version 3 is there, as DuckDB alone reads the file."""
    with duckdb.connect(str(path), read_only=True) as connection:
        version = connection.execute("SELECT max(value::INT) FROM raw.meta WHERE key = 'schema_version'").fetchall()
        traces = connection.execute("SELECT count(DISTINCT trace_id) FROM raw.trace_facts").fetchall()
        column = "SELECT count(*) FROM duckdb_columns() WHERE table_name = 'trace_facts' AND column_name = 'retriever'"
        return int(version[0][0]), int(traces[0][0]), bool(connection.execute(column).fetchall()[0][0])


AS_OLD = (OLD, TRACES, False)
AS_NEW = (SCHEMA_VERSION, TRACES, True)


def copy_of(path: Path) -> Path:
    """Return where the copy of an older file is expected."""
    return path.with_name(f"{path.name}.before-v{SCHEMA_VERSION}")


class Ended(NamedTuple):
    """How the processes ended that opened stores, and how many lines of the watched functions each one ran."""

    codes: list[int]
    lines: list[int]


def opened(*files: Path, watched: str = "", moments: Sequence[int] = ()) -> Ended:
    """Open each store in a process, which kills itself before that line of the watched functions.

    The processes are forks of one that has imported the store.
    """
    starts = [str(one) for pair in zip(files, moments or [-1] * len(files), strict=True) for one in pair]
    done = forks.run(_OPENED, watched, *starts, timeout_s=300)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    codes = [int(line.removeprefix("ended ")) for line in printed if line.startswith("ended ")]
    return Ended(codes, [int(line) for line in printed if line.isdigit()])


def killed_everywhere(old: Path, watched: str) -> list[tuple[Path, int]]:
    """Kill a start at moments over the whole of the watched functions; return each file with its version after that."""
    (lines,) = opened(Path(shutil.copyfile(old, old.with_name("whole.duckdb"))), watched=watched).lines
    assert lines > MOMENTS
    files = [Path(shutil.copyfile(old, old.with_name(f"killed-{moment}.duckdb"))) for moment in range(MOMENTS)]
    moments = [1 + moment * (lines - 1) // (MOMENTS - 1) for moment in range(MOMENTS)]
    assert opened(*files, watched=watched, moments=moments).codes == [-signal.SIGKILL] * MOMENTS
    found = []
    for file in files:
        found.append((file, stored(file)[0]))
        assert stored(file) in (AS_OLD, AS_NEW)
    return found


def test_a_newer_file_is_refused_by_its_version(old: Path) -> None:
    """The start ends with the version of the file and the fix; the file stays as it is."""
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE raw.meta SET value = '99' WHERE key = 'schema_version'")
    before = old.read_bytes()
    with pytest.raises(AssertionError, match=rf"schema version 99.*up to {SCHEMA_VERSION}.*pip install -U ragpulse"):
        Served(old)
    assert old.read_bytes() == before
    with pytest.raises(StoreError, match="schema version 99"):
        FileReader(old)


def test_a_start_copies_an_older_file_and_migrates_it(old: Path) -> None:
    """The copy is the old file, readable by its owner alone; the collector shows what the old version stored."""
    with Served(old) as served:
        assert connect(served.url).sql("select count(*) as n from traces").rows() == [{"n": TRACES}]
        assert "before-v" in served.errors
        served.terminate()
    assert stored(copy_of(old)) == AS_OLD
    assert copy_of(old).stat().st_mode & 0o777 == 0o600
    assert stored(old) == AS_NEW
    assert not list(old.parent.glob("*.part"))


def test_a_current_file_is_not_copied(old: Path) -> None:
    """The second start finds a file of its version."""
    assert run(["migrate", "--db", str(old), "--in-place"]) == 0
    assert opened(old).codes == [0]
    assert not copy_of(old).exists()


def test_a_kill_during_the_copy_leaves_the_old_file(old: Path) -> None:
    """A name without `.part` is a whole copy; the next start copies again and migrates."""
    killed = killed_everywhere(old, _COPYING)
    assert {version for _, version in killed} == {OLD}
    assert {copy_of(file).exists() for file, _ in killed} == {False, True}
    assert any(file.with_name(f"{copy_of(file).name}.part").exists() for file, _ in killed)
    assert {stored(copy_of(file)) for file, _ in killed if copy_of(file).exists()} == {AS_OLD}
    assert opened(*(file for file, _ in killed)).codes == [0] * MOMENTS
    for file, _ in killed:
        assert (stored(copy_of(file)), stored(file)) == (AS_OLD, AS_NEW)
    assert not list(old.parent.glob("*.part"))


def test_a_kill_during_the_migration_leaves_the_old_file_or_the_new_one(old: Path) -> None:
    """Old before COMMIT, new after it, with the copy in both cases; the next start completes it."""
    killed = killed_everywhere(old, _MIGRATING)
    assert {version for _, version in killed} == {OLD, SCHEMA_VERSION}
    assert opened(*(file for file, _ in killed)).codes == [0] * MOMENTS
    for file, _ in killed:
        assert (stored(copy_of(file)), stored(file)) == (AS_OLD, AS_NEW)


def test_a_disk_without_room_names_the_command_that_needs_no_copy(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start is refused and changes nothing; the command that it names migrates in place."""
    place = tmp_path / "small disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={old.stat().st_size + 30 * 2**20}", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        file = Path(shutil.copyfile(old, place / "store.duckdb"))
        with pytest.raises(AssertionError, match=r"schema version 2.*bytes free.*ragpulse migrate") as refused:
            Served(file)
        assert stored(file) == AS_OLD
        assert [found.name for found in place.iterdir()] == ["store.duckdb"]
        named = re.search(r"`ragpulse (.*)`", str(refused.value))
        assert named is not None
        assert run(shlex.split(named[1])) == 0
        assert f"schema version {OLD} before, {SCHEMA_VERSION} now; no copy was made" in capsys.readouterr().out
        assert stored(file) == AS_NEW
        assert not copy_of(file).exists()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_closed_older_file_names_the_command(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading changes nothing, so `--db` refuses an older file; `ragpulse migrate` copies and migrates it."""
    assert run(["sql", "select 1", "--db", str(old)]) == 1
    error = capsys.readouterr().err
    assert f"schema version {OLD}" in error
    assert f"ragpulse migrate --db {old}" in error
    assert run(["migrate", "--db", str(old)]) == 0
    assert str(copy_of(old)) in capsys.readouterr().out
    assert (stored(copy_of(old)), stored(old)) == (AS_OLD, AS_NEW)
    assert run(["sql", "select count(*) as n from traces", "--json", "--db", str(old)]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": TRACES}]
    assert run(["migrate", "--db", str(old)]) == 0
    assert "already" in capsys.readouterr().out


pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a POSIX system")


_TORN = """
import os, sys
from pathlib import Path
from ragpulse_collector.store.connection import attach_file, duckdb_settings
from ragpulse_collector.store.migrations import migrate
settings = duckdb_settings(threads=1, memory_limit="128MB", wal_limit="64MB")
connection = attach_file(Path(sys.argv[1]), "ragpulse", settings)
connection.execute("PRAGMA disable_checkpoint_on_shutdown")
migrate(connection.execute, lambda sql: connection.execute(sql).fetchall(), name="torn", in_file=True)
os._exit(0)
"""


@pytest.mark.parametrize("version", [OLD, 3])
def test_an_upgrade_killed_within_its_commit_continues_at_the_next_start(
    old: Path, tmp_path: Path, version: int
) -> None:
    """The log is cut at twenty places, ten in each version: the next start copies the old file and migrates it."""
    if version == 3:
        old.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    before = old.read_bytes()
    forks.run(_TORN, str(old)).check_returncode()
    log = old.with_name(f"{old.name}.wal").read_bytes()
    assert (old.read_bytes() == before, len(log) > 1000) == (True, True)
    torn = []
    for number in range(version % 2, 20, 2):
        torn.append(tmp_path / f"torn{number}.duckdb")
        torn[-1].write_bytes(before)
        torn[-1].with_name(f"{torn[-1].name}.wal").write_bytes(log[: len(log) * (number + 1) // 20 - 1])
    assert opened(*torn).codes == [0] * 10
    assert [stored(path) for path in torn] == [AS_NEW] * 10
    assert {copy_of(path).exists() for path in torn} == {True}
