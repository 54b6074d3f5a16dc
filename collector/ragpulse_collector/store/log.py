"""The write-ahead log beside a file (`<file>.wal`): a damaged one is kept aside, never dropped in silence.

DuckDB ignores a log whose first bytes are damaged, and everything behind a record that is longer than the file. It
removes the log of a database file that is missing. Other damage keeps it from opening the file at all.
"""

from __future__ import annotations

import glob
import logging
import mmap
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb

_log = logging.getLogger(__name__)
_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_HEAD = re.compile(rb"d\0be\0%b(?:f\0\x10(?:%b){16})?(?:g\0%b)?\xff\xff" % (_VARINT, _VARINT, _VARINT), re.DOTALL)
"""The first record: the log's version, the file it belongs to (16 bytes) and that file's number of checkpoints."""
_COMMIT = re.compile(rb"\x05\0{7}.{8}d\0d\xff\xff", re.DOTALL)
"""The record that ends a transaction: its length, its checksum and nothing but its type."""
_FRAME_BYTES = 16
"""Before each record: eight bytes of length, eight of checksum."""
_NAMED = re.compile(r'replaying WAL file "(?P<log>[^"]+)"(?:.*entry at byte position (?P<at>\d+))?', re.DOTALL)
_DAMAGE = ("orrupt", "does not match", "out of range")
"""In DuckDB's errors: a wrong checksum, a broken number, a log of another database file, a length beyond reason."""
_LOGS = ("", ".checkpoint", ".recovery")
"""DuckDB writes a second and a third log while it checkpoints."""


class DamagedLog(Exception):
    """Part of the log cannot be read; the message says how much."""


def log_path(path: Path) -> Path:
    """Return where DuckDB keeps the log of a file."""
    return path.with_name(path.name + ".wal")


def damaged_logs(path: Path) -> list[Path]:
    """Return the damaged logs that were kept beside a file."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.wal*.damaged-*"))


def log_bytes(path: Path) -> int:
    """Return the size of a file's log, 0 where there is none."""
    try:
        return log_path(path).stat().st_size
    except FileNotFoundError:
        return 0


def open_past_damage(path: Path, connect: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Open a file for writing; a damaged log is kept aside whole first, and its readable beginning is used.

    Raises OSError where the log cannot be kept.
    """
    if not path.exists() and log_bytes(path):
        _set_aside(log_path(path), 0, f"the database file {path} is missing")
    for _ in _LOGS:
        try:
            connection = connect()
        except duckdb.Error as error:
            if not _set_damaged_aside(error):
                raise
        else:
            _keep_unread(path, connection)
            return connection
    return connect()


def check_log(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise DamagedLog where DuckDB opened a file and ignored finished transactions in its log."""
    start, size = unread_from(path, connection), log_bytes(path)
    if start is not None:
        raise DamagedLog(f"{log_path(path)} is damaged at byte {start} of {size}")


def unread_from(path: Path, connection: duckdb.DuckDBPyConnection) -> int | None:
    """Return from which byte on the log was ignored although transactions end behind it; None where all was read.

    A transaction that a crash cut short has no end: it was never acknowledged.
    """
    if not log_bytes(path):
        return None
    with log_path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
        head = _HEAD.match(log)
        if head is None and _has_replayed(connection):
            return None  # a log that another version of DuckDB wrote
        start = 0 if head is None else _end_of_records(log, head.end())
        return start if _COMMIT.search(log, start) else None


def _end_of_records(log: mmap.mmap, start: int) -> int:
    """Return where the first record begins that is longer than the log."""
    while start + _FRAME_BYTES <= len(log):
        end = start + _FRAME_BYTES + int.from_bytes(log[start : start + 8], "little")
        if end > len(log):
            break
        start = end
    return start


def _has_replayed(connection: duckdb.DuckDBPyConnection) -> bool:
    sizes = connection.execute("SELECT wal_size FROM pragma_database_size()").fetchall()
    return any(size != "0 bytes" for (size,) in sizes)


def _keep_unread(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Copy a log that was read in part before the next commit cuts it off."""
    try:
        start = unread_from(path, connection)
        if start is not None:
            _tell(log_path(path), _copy(log_path(path)), start, "its records end too early")
    except BaseException:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")  # closing must not remove the log
        connection.close()
        raise


def _set_damaged_aside(error: duckdb.Error) -> bool:
    """Keep the log that an error names and cut it off where it is damaged; returns False for any other error."""
    named = _NAMED.search(str(error))
    if named is None or not any(sign in str(error) for sign in _DAMAGE):
        return False
    log = Path(named["log"])
    # DuckDB's position is behind the length and the checksum of the record.
    start = int(named["at"]) - _FRAME_BYTES if named["at"] else _readable_bytes(log)
    _set_aside(log, start, str(error).splitlines()[0])
    return True


def _readable_bytes(log: Path) -> int:
    """Return where a record begins whose length is wrong, 0 where no record's is."""
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head = _HEAD.match(data)
        end = 0 if head is None else _end_of_records(data, head.end())
        return end if end < len(data) else 0


def _set_aside(log: Path, start: int, why: str) -> None:
    kept = _copy(log)
    _tell(log, kept, start, why)
    if start:
        os.truncate(log, start)
    else:
        log.unlink()


def _tell(log: Path, kept: Path, start: int, why: str) -> None:
    size = kept.stat().st_size
    _log.error(
        "%s is damaged from byte %d of %d (%s): %d bytes cannot be read, and spans that were acknowledged may be among "
        "them. The whole log is kept as %s; see Recovery in docs/operations.md",
        log, start, size, why, size - start, kept,
    )  # fmt: skip


def _copy(log: Path) -> Path:
    """Copy a log to `<log>.damaged-<UTC time>`, on disk when this returns."""
    kept = log.with_name(f"{log.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    shutil.copy(log, kept)
    with kept.open("rb") as file:
        os.fsync(file.fileno())
    return kept
