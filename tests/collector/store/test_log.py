"""A damaged log: what can be read is used, the whole is kept aside, and the error says how many bytes are missing."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import forks
import pytest

from ragpulse_collector.store import FileReader, StoreError
from ragpulse_collector.store.log import log_path
from ragpulse_collector.store.retention import vacuum

pytestmark = pytest.mark.skipif("RAGPULSE_TEST_LAKE" in os.environ, reason="a lake has no log of its own")

COMMITS = 40
_COMMITTING = f"""
import os, sys
from ragpulse_collector.store import EmbeddedStore
store = EmbeddedStore(sys.argv[1], decode=None)
for number in range({COMMITS}):
    store.write(lambda t: t.append("meta", ("key", "value"), [("k", f"{{number}} " * 50)])).result(60)
os._exit(0)
"""


@pytest.fixture(scope="module")
def crashed_once(tmp_path_factory: pytest.TempPathFactory, empty_file: Path) -> Path:
    """A file whose process was killed after 40 commits, all of them in its log."""
    path = Path(shutil.copy(empty_file, tmp_path_factory.mktemp("crashed")))
    forks.run(_COMMITTING, str(path)).check_returncode()
    return path


@pytest.fixture
def crashed(kit: Any, crashed_once: Path) -> Path:
    """A copy of it and of its log, as the file of this test."""
    shutil.copy(crashed_once, kit.path)
    shutil.copy(log_path(crashed_once), log_path(kit.path))
    return Path(kit.path)


def _flip(log: Path, at: int, count: int = 8) -> None:
    data = bytearray(log.read_bytes())
    data[at : at + count] = bytes(byte ^ 0xFF for byte in data[at : at + count])
    log.write_bytes(data)


def _stored(kit: Any) -> int:
    """Open the file for writing, write once more and count what was there before."""
    store = kit.store()
    found = store.read("SELECT count(*) FROM raw.meta WHERE key = 'k'").rows[0][0]
    store.write(lambda transaction: transaction.append("meta", ("key", "value"), [("after", "")])).result(60)
    return int(found)


def _kept(path: Path) -> list[Path]:
    return list(path.parent.glob("*.damaged-*"))


def _commit_ends(log: Path) -> Iterator[int]:
    return (found.end() for found in re.finditer(rb"\x05\0{7}.{8}d\0d\xff\xff", log.read_bytes(), re.DOTALL))


@pytest.mark.parametrize("at", [0, 1, 4, 14], ids=lambda at: f"byte {at}")
def test_a_log_whose_head_is_damaged_is_kept_aside(
    kit: Any, crashed: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """DuckDB ignores it without a word, or does not open the file."""
    log = log_path(crashed)
    _flip(log, at)
    whole = log.read_bytes()
    assert _stored(kit) == 0
    (kept,) = _kept(crashed)
    assert kept.read_bytes() == whole
    assert f"{len(whole)} bytes cannot be read" in caplog.text
    assert str(kept) in caplog.text


def test_a_log_damaged_in_the_middle_is_read_up_to_there(
    kit: Any, crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file opens; the commits before the damage are there, and the log says how many bytes are not."""
    log = log_path(crashed)
    ends = list(_commit_ends(log))
    assert len(ends) >= COMMITS
    _flip(log, ends[19] + 20)
    whole = log.read_bytes()
    assert _stored(kit) == COMMITS - (len(ends) - 20)
    (kept,) = _kept(crashed)
    assert kept.read_bytes() == whole
    assert f"{len(whole) - ends[19]} bytes cannot be read" in caplog.text


@pytest.mark.parametrize("first", [0, 4])
def test_a_record_that_seems_too_long_hides_no_commit(
    kit: Any, crashed: Path, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """DuckDB takes it for the end of the log, or gives up; commits behind it prove that it is not."""
    log = log_path(crashed)
    ends = list(_commit_ends(log))
    _flip(log, ends[19] + first, 4)
    whole = log.read_bytes()
    assert _stored(kit) == COMMITS - (len(ends) - 20)
    (kept,) = _kept(crashed)
    assert kept.read_bytes() == whole
    assert f"{len(whole) - ends[19]} bytes cannot be read" in caplog.text


@pytest.mark.parametrize("cut", [0, 30])
def test_a_log_that_a_crash_cut_short_is_no_damage(
    kit: Any, crashed: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A transaction without an end was not acknowledged: nothing is kept aside, nobody is alarmed."""
    log = log_path(crashed)
    os.truncate(log, log.stat().st_size - cut)
    assert _stored(kit) == COMMITS - bool(cut)
    assert _kept(crashed) == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_log_of_another_file_is_kept_aside(kit: Any, crashed: Path) -> None:
    """Someone put an older copy of the database into its place: it opens, and its commits are not mixed with others."""
    whole = log_path(crashed).read_bytes()
    crashed.unlink()
    log_path(crashed).rename(crashed.parent / "log")
    kit.store().close()
    (crashed.parent / "log").rename(log_path(crashed))
    assert _stored(kit) == 0
    assert [kept.read_bytes() for kept in _kept(crashed)] == [whole]


def test_the_log_of_a_missing_file_is_kept_aside(kit: Any, crashed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DuckDB removes it and begins again."""
    whole = log_path(crashed).read_bytes()
    crashed.unlink()
    assert _stored(kit) == 0
    assert [kept.read_bytes() for kept in _kept(crashed)] == [whole]
    assert f"the database file {crashed} is missing" in caplog.text


@pytest.mark.parametrize("at", [0, 2_000])
def test_a_reader_refuses_a_damaged_log_and_names_the_command(crashed: Path, at: int) -> None:
    """Reading cannot keep it aside, and must not answer as if it were whole."""
    _flip(log_path(crashed), at)
    with pytest.raises(StoreError, match="ragpulse serve --db"):
        FileReader(crashed)


def test_vacuum_keeps_a_damaged_log(crashed: Path) -> None:
    """It would write the file again without it."""
    _flip(log_path(crashed), 0)
    whole = log_path(crashed).read_bytes()
    vacuum(crashed)
    assert [kept.read_bytes() for kept in _kept(crashed)] == [whole]


def test_other_errors_leave_the_log_alone(crashed: Path) -> None:
    """A file that is no database is not opened, whatever lies beside it."""
    shutil.copy(log_path(crashed), crashed.parent / "same")
    crashed.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="not a file this duckdb"):
        FileReader(crashed)
    with pytest.raises(StoreError):
        vacuum(crashed)
    assert log_path(crashed).read_bytes() == (crashed.parent / "same").read_bytes()


_WRITING = """
import os, sys
from pathlib import Path
from ragpulse_collector.store import EmbeddedStore
path, fault, signalled = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
log = Path(f"{path}.wal")
store = EmbeddedStore(path, decode=None)
def write(count):
    for number in range(count):
        store.write(lambda t: t.append("meta", ("key", "value"), [("k", f"{number} " * 50)])).result(60)
write(10)
if fault == "removed":
    log.unlink()
elif fault == "moved":
    log.rename(f"{log}.away")
elif fault == "replaced":
    log.unlink()
    log.write_bytes(b"another")
else:
    os.truncate(log, int(log.stat().st_size * float(fault)))
write(int(signalled))
if signalled == "0":
    store.close()
os._exit(0)
"""


@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("fault", ["removed", "moved", "replaced", "0", "0.01", "0.5", "0.99"])
def test_a_log_that_is_gone_while_the_process_runs_loses_nothing(kit: Any, fault: str, more: int) -> None:
    """Whatever was acknowledged before and after is in the file, after a stop (no more writes) or a kill."""
    forks.run(_WRITING, str(kit.path), fault, str(more)).check_returncode()
    assert _stored(kit) == 10 + more


def test_a_log_without_its_beginning_is_kept_aside(kit: Any, crashed: Path) -> None:
    """Its records do not fit to the file: a table that they write to is not there."""
    log = log_path(crashed)
    data = log.read_bytes()
    with duckdb.connect() as other:  # the tables were in the log only
        other.execute(f"ATTACH '{crashed.with_name('empty')}' AS empty")
    crashed.with_name("empty").replace(crashed)
    ends = list(_commit_ends(log))
    log.write_bytes(data[ends[-3] :])
    assert _stored(kit) == 0
    assert [copy.read_bytes() for copy in _kept(crashed)] == [data[ends[-3] :]]
